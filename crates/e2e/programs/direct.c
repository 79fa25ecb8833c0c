/* Calls about memory by `syscall`, and with "inline" some that no library sees at all. */
#include "check.h"
#include <sys/syscall.h>

#define BYTES (8 * MIB)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static long raw(long nr, long a, long b, long c)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

static int can_read(const char *at)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    int can = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}

static void by_syscall(int round)
{
    char *at = (char *)syscall(SYS_mmap, NULL, BYTES, RW, PRIVATE, -1, 0);
    CHECK(at != MAP_FAILED && is_zero(at, BYTES));
    memset(at, 0x77, BYTES);
    CHECK(syscall(SYS_mprotect, at + 2 * MIB, 2 * MIB, PROT_READ) == 0);
    CHECK(syscall(SYS_madvise, at + 4 * MIB, MIB, MADV_DONTNEED) == 0 && is_zero(at + 4 * MIB, MIB));
    CHECK(syscall(SYS_mlock, at, 4096) == 0);
    CHECK((char *)syscall(SYS_mmap, at + 6 * MIB, MIB, PROT_READ, PRIVATE | MAP_FIXED, -1, 0) == at + 6 * MIB);
    CHECK(is_zero(at + 6 * MIB, MIB) && at[7 * MIB] == 0x77);
    if (round % 2)
        CHECK(syscall(SYS_munmap, at, BYTES) == 0);
    else
        CHECK(munmap(at, BYTES) == 0);
    CHECK(!can_read(at) && !can_read(at + 5 * MIB));
    CHECK(syscall(SYS_msync, at, BYTES, MS_ASYNC) == -1 && errno == ENOMEM);
    CHECK(syscall(SYS_mprotect, at, BYTES, RW) == -1 && errno == ENOMEM);
    /* Moved away, and its place used by others. */
    at = map(BYTES);
    memset(at, 0x78, BYTES);
    char *to = (char *)syscall(SYS_mremap, at, BYTES, 2 * BYTES, MREMAP_MAYMOVE, NULL);
    CHECK(to != MAP_FAILED && to[BYTES - 1] == 0x78 && to[BYTES] == 0);
    CHECK(syscall(SYS_munmap, to, 2 * BYTES) == 0 && !can_read(to));
    CHECK(syscall(SYS_munmap, to + 1, BYTES) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_mmap, NULL, 0, RW, PRIVATE, -1, 0) == -1 && errno == EINVAL);
}

/* The program unmaps behind the library's back. Whoever gets the addresses next keeps what he puts there. */
static void unseen(int round)
{
    char *at = map(BYTES), *others[64];
    memset(at, 0x79, BYTES);
    if (round % 3 == 1) {
        /* Memory that the library has had before. */
        CHECK(munmap(at, BYTES) == 0);
        at = map(BYTES);
        memset(at, 0x79, BYTES);
    }
    CHECK(raw(SYS_munmap, (long)at, BYTES, 0) == 0);
    CHECK(!can_read(at));
    if (round % 2) {
        CHECK(munmap(at, BYTES) == 0);
        CHECK(!can_read(at));
    }
    FILE *file = tmpfile();
    CHECK(file && ftruncate(fileno(file), 2 * MIB) == 0);
    CHECK(pwrite(fileno(file), "file", 4, MIB) == 4);
    for (int i = 0; i < 64; i++) {
        size_t bytes = i % 4 ? MIB : 2 * MIB;
        others[i] = i % 4 ? map(bytes) : mmap(NULL, bytes, RW, MAP_PRIVATE, fileno(file), 0);
        CHECK(others[i] != MAP_FAILED);
        memset(others[i], i, MIB);
    }
    for (int i = 0; i < 64; i++) {
        CHECK(others[i][0] == i && others[i][MIB - 1] == i && (i % 4 || memcmp(others[i] + MIB, "file", 4) == 0));
        CHECK(munmap(others[i], i % 4 ? MIB : 2 * MIB) == 0);
        CHECK(!can_read(others[i]));
    }
    for (int i = 0; i < 24; i++) {
        others[i] = map((1 + i % 4) * 2 * MIB);
        CHECK(is_zero(others[i], (1 + i % 4) * 2 * MIB));
        memset(others[i], i + 1, (1 + i % 4) * 2 * MIB);
    }
    usleep(10000);
    for (int i = 0; i < 24; i++) {
        CHECK(others[i][0] == i + 1 && others[i][2 * MIB - 1] == i + 1);
        CHECK(munmap(others[i], (1 + i % 4) * 2 * MIB) == 0);
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    int in_line = argc > 1 && strcmp(argv[1], "inline") == 0;
    for (int round = 0; round < 40; round++)
        in_line ? unseen(round) : by_syscall(round);
    puts("done");
}
