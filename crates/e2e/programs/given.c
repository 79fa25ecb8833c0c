/* Attributes that memory was given end with its mapping: sealed, locked, not inherited, advised by another call. What is
 * mapped next is zero and plain. The argument says how. */
#include "check.h"
#include <sys/syscall.h>
#include <sys/uio.h>

#define BYTES (8 * MIB)
#define SEAL 462
#define GUARD_INSTALL 102

static void sealed(void)
{
    char *at = map(BYTES), *part = map(BYTES);
    fill(at, BYTES, 1);
    fill(part, BYTES, 2);
    if (syscall(SEAL, at, BYTES, 0) != 0) {
        CHECK(errno == ENOSYS);
        return;
    }
    CHECK(syscall(SEAL, part + 4 * MIB, 2 * MIB, 0) == 0);
    for (int round = 0; round < 3; round++) {
        CHECK(munmap(at, BYTES) == -1 && errno == EPERM && is_filled(at, BYTES, 1));
        CHECK(munmap(part, BYTES) == -1 && errno == EPERM && is_filled(part, BYTES, 2));
        CHECK(mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE) == MAP_FAILED && errno == EPERM);
        CHECK(mmap(at, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EPERM);
        map_again(BYTES, 3);
    }
    /* Sealed memory that can be written to may be emptied. */
    for (int round = 0; round < 6; round++) {
        fill(at, BYTES, round);
        CHECK(madvise(at, BYTES, MADV_DONTNEED) == 0 && is_zero(at, BYTES));
    }
    fill(at, BYTES, 1);
    CHECK(mprotect(at, BYTES, PROT_READ) == -1 && errno == EPERM);
    char *hole = map(BYTES);
    CHECK(munmap(hole + 4 * MIB, 2 * MIB) == 0 && syscall(SEAL, hole, BYTES, 0) == -1 && errno == ENOMEM);
}

static long by_function(char *at, int advice) { return madvise(at, BYTES, advice); }
static long by_call(char *at, int advice) { return syscall(SYS_madvise, at, BYTES, advice); }

static long by_process(char *at, int advice)
{
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec all = { at, BYTES };
    long answer = syscall(SYS_process_madvise, self, &all, 1, advice, 0);
    close(self);
    return answer == (long)BYTES ? 0 : answer;
}

static long by_instruction(char *at, int advice)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_madvise), "D"(at), "S"(BYTES), "d"(advice) : "rcx", "r11", "memory");
    return answer;
}

static void advised(void)
{
    static long (*const ways[])(char *, int) = { by_function, by_call, by_process, by_instruction };
    static const int advices[] = { MADV_DONTFORK, MADV_WIPEONFORK, GUARD_INSTALL, MADV_DONTNEED, MADV_FREE, MADV_COLD };
    for (int i = 0; i < 24; i++) {
        map_again(BYTES, 1);
        char *at = map(BYTES);
        fill(at, BYTES, 2);
        /* Older kernels know some of them for the own process alone, or not at all. */
        long given = ways[i % 4](at, advices[i / 4]);
        if (given == 0 && advices[i / 4] == MADV_DONTNEED)
            CHECK(is_zero(at, BYTES));
        CHECK(munmap(at, BYTES) == 0);
        for (int next = 0; next < 3; next++) {
            at = map(BYTES);
            CHECK(is_zero(at, BYTES));
            fill(at, BYTES, 3);
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0)
                _exit(is_filled(at, BYTES, 3) ? 0 : 1);
            CHECK(ended(child) == 0 && munmap(at, BYTES) == 0);
        }
    }
}

static void locked(void)
{
    for (int round = 0; round < 6; round++) {
        char *at = map(BYTES);
        fill(at, BYTES, 1);
        CHECK(mlock(at, MIB) == 0);
        CHECK(madvise(at, BYTES, MADV_DONTNEED) == -1 && errno == EINVAL && is_filled(at, MIB, 1));
        CHECK(mprotect(at + 4 * MIB, MIB, PROT_NONE) == 0 && munmap(at, BYTES) == 0);
        map_again(BYTES, 2);
    }
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "VmLck", 5) == 0)
            fputs(line, stdout);
    fclose(status);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    map_again(BYTES, 1);
    run_way(argv[1], (struct way[]){{"sealed", sealed}, {"advised", advised}, {"locked", locked}, {0}});
    map_again(BYTES, 9);
    puts("done");
}
