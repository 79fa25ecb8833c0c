/* The program maps memory where it wants it, and that is where blocks might come to lie later: "ahead", where no block ever was, by a
 * call or by an instruction; "freed", where one was. It is the program's alone, also in a child and once the engine has ended. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include "../../../programs/instruction.h"
#include <malloc.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define N (64 * MIB)
#define BLOCK (16 * MIB)

static int own;

/* Whether a range has nothing but reservations. */
static int is_unused(char *at)
{
    char line[512], rights[8];
    unsigned long start, end, unused = 1;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && start < (unsigned long)at + N &&
            end > (unsigned long)at && strcmp(rights, "---p"))
            unused = 0;
    fclose(maps);
    return unused;
}

static void place(char *at)
{
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *is;
    if (own) {
        is = (char *)instruction(SYS_mmap, (long)at, N, rights, flags, -1);
    } else {
        is = mmap(at, N, rights, flags, -1, 0);
    }
    CHECK(is == at);
    memset(at, 0x77, N);
}

static void look(char *at)
{
    CHECK(at[0] == 0x77 && memcmp(at, at + 1, N - 1) == 0);
}

/* Blocks are zero and elsewhere. */
static void ask(char *at)
{
    static char *block[400];
    for (int i = 0; i < 400; i++) {
        CHECK((block[i] = calloc(1, BLOCK)));
        CHECK(block[i] >= at + N || block[i] + BLOCK <= at);
        for (size_t k = 0; k < BLOCK; k += MIB)
            CHECK(block[i][k] == 0);
        block[i][5 * MIB] = 1;
    }
    look(at);
    for (int i = 0; i < 400; i++)
        free(block[i]);
    look(at);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    own = argc > 2;
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    char *first = malloc(8 * MIB), *at;
    memset(first, 1, 8 * MIB);
    if (!strcmp(argv[1], "ahead")) {
        at = (char *)(((uintptr_t)first + 1024 * MIB) & ~(uintptr_t)4095);
        while (!is_unused(at))
            at += 1024 * MIB;
    } else {
        char *block = malloc(256 * MIB);
        memset(block, 1, 256 * MIB);
        free(block);
        at = (char *)(((uintptr_t)block + 8 * MIB) & ~(uintptr_t)4095);
    }
    place(at);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            look(at);
            if (round == 1) {
                struct rlimit limit;
                getrlimit(RLIMIT_AS, &limit);
                limit.rlim_cur = (rlim_t)1 << 46;
                CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
                look(at);
            }
            ask(at);
            _exit(0);
        }
        CHECK(ended(child) == 0);
        look(at);
        ask(at);
    }
    puts("done");
}
