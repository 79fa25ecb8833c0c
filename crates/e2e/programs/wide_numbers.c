/* The kernel looks at the lower 32 bits of a call's number: calls with more are about memory, too. */
#include "check.h"
#include <sys/syscall.h>

#define WIDE(number) ((long)(number) | 1L << 32)
enum { ROUNDS = 20 };

int main(void)
{
    void *blocks[ROUNDS];
    free(malloc(32 * MIB));
    /* Rights and locks of a block end with it. */
    for (int i = 0; i < ROUNDS; i++) {
        char *block = aligned_alloc(4096, MIB);
        CHECK(block);
        memset(block, 1, MIB);
        CHECK(syscall(WIDE(SYS_mprotect), block, 4096, PROT_READ) == 0);
        free(block);
        CHECK(blocks[i] = malloc(MIB));
        memset(blocks[i], 1, MIB);
    }
    for (int i = 0; i < ROUNDS; i++)
        free(blocks[i]);
    for (int i = 0; i < 3; i++) {
        char *block = aligned_alloc(4096, MIB);
        CHECK(block && syscall(WIDE(SYS_mlock), block, MIB) == 0);
        free(block);
        CHECK(blocks[i] = malloc(MIB));
    }
    printf("%zu KiB locked\n", kib_of_status("VmLck"));
    char *at = (char *)syscall(WIDE(SYS_mmap), NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && is_zero(at, 8 * MIB) && syscall(WIDE(SYS_munmap), at, 8 * MIB) == 0);
    CHECK(syscall(WIDE(SYS_munmap), 1, 4096) == -1 && errno == EINVAL);
    puts("done");
}
