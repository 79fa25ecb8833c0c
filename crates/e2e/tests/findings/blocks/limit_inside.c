/* The program limits its addresses by an instruction of its own, and then unmaps ranges of several areas.
   "sealed": one of them is sealed, so that the kernel refuses. */
#include "../../../programs/check.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#define BYTES (32 * MIB)

static long call(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

int main(int argc, char **argv)
{
    int sealed = argc > 1 && strcmp(argv[1], "sealed") == 0;
    struct rlimit limit = { 2048 * MIB, 2048 * MIB };
    char *several[6];
    take_and_give(1, 3, 64);
    for (int i = 0; i < 6; i++) {
        several[i] = map(BYTES);
        fill(several[i], BYTES, i);
        CHECK(madvise(several[i] + BYTES / 2, BYTES / 4, MADV_DONTDUMP) == 0);
    }
    /* Where the kernel has no such call, nothing is sealed. */
    int refused = sealed && call(462, (long)several[5] + BYTES / 2, MIB, 0, 0) == 0;
    CHECK(call(SYS_prlimit64, 0, RLIMIT_AS, (long)&limit, 0) == 0);
    for (int i = 0; i < 6; i++) {
        int is_sealed = i == 5 && refused;
        CHECK(munmap(several[i], BYTES) == (is_sealed ? -1 : 0));
        if (is_sealed)
            CHECK(errno == EPERM && is_filled(several[i], BYTES, i));
        else
            CHECK(msync(several[i], 4096, MS_ASYNC) == -1 && errno == ENOMEM);
    }
    for (int i = 0; i < 4; i++) {
        char *at = map(64 * MIB);
        CHECK(is_zero(at, 64 * MIB) && munmap(at, 64 * MIB) == 0);
        char *block = malloc(64 * MIB);
        CHECK(block != NULL);
        memset(block, i, 64 * MIB);
        free(block);
    }
    puts("ok");
}
