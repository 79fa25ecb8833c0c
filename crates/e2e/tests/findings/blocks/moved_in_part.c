/* A block of several areas grows where not all of it can move: "sealed", or at the limit of areas, so many below it. All of it is
 * there afterwards, wherever that is. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include "../../../programs/instruction.h"
#include <sys/syscall.h>

#define N (64 * MIB)

static void grow(int left)
{
    char *block = malloc(N), *next = malloc(8 * MIB);
    memset(next, 9, 8 * MIB);
    for (size_t i = 0; i < N; i += 4096)
        *(uint64_t *)(block + i) = i + 1;
    uintptr_t page = ((uintptr_t)block + 4095) & ~(uintptr_t)4095;
    if (left < 0) {
        instruction(462, page + N / 2, 4 * MIB, 0);
    } else {
        for (int i = 0; i < 8; i++)
            instruction(SYS_madvise, page + (2 * i + 1) * 3 * MIB, 2 * MIB, MADV_SEQUENTIAL);
        size_t places = 70000;
        char *many = mmap(NULL, places * 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        size_t n = 0;
        while (n < places && mprotect(many + n * 8192, 4096, PROT_READ) == 0)
            n++;
        while (left-- > 0)
            mprotect(many + --n * 8192, 4096, PROT_NONE);
    }
    char *grown = realloc(block, 2 * N);
    if (!grown)
        grown = block;
    for (size_t i = 0; i < N; i += 4096)
        CHECK(*(uint64_t *)(grown + i) == i + 1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int sealed = !strcmp(argv[1], "sealed");
    for (int left = sealed ? -1 : 0; left < (sealed ? 0 : 14); left++) {
        pid_t child = fork();
        if (child == 0) {
            grow(left);
            _exit(0);
        }
        printf("ended %d\n", ended(child));
    }
}
