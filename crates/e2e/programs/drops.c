/* MADV_DONTNEED of memory that is dropped again and again, when the kernel refuses it at its beginning ("head"), or goes
 * on behind a hole ("hole"): what it reports, what is dropped and what is left. */
#include "check.h"

#define BYTES (96 * MIB)
#define HUGE (2 * MIB)
enum { PAGE = 4096, TIMES = 8 };

static char *prepared(char *at, size_t bytes)
{
    for (int i = 0; i < TIMES; i++) {
        memset(at, 7 + i, bytes);
        CHECK(madvise(at, bytes, MADV_DONTNEED) == 0 && is_zero(at, bytes));
    }
    memset(at, 0x55, bytes);
    return at;
}

static size_t pages_with(const char *at, size_t bytes, char value)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i += PAGE)
        n += at[i] == value;
    return n;
}

/* One page before memory that could move is locked: the kernel drops nothing. */
static void by_head(void)
{
    uintptr_t start = (uintptr_t)map(BYTES + 2 * HUGE);
    char *at = (char *)((start + HUGE - 1) / HUGE * HUGE + HUGE - PAGE);
    size_t bytes = BYTES - HUGE + PAGE;
    prepared(at, bytes);
    CHECK(mlock(at, PAGE) == 0);
    CHECK(madvise(at, bytes, MADV_DONTNEED) == -1 && errno == EINVAL);
    CHECK(pages_with(at, bytes, 0x55) == bytes / PAGE);
    CHECK(munlock(at, PAGE) == 0 && madvise(at, bytes, MADV_DONTNEED) == 0 && is_zero(at, bytes));
}

/* A page in the middle is unmapped: the kernel drops what is before and behind it, and says that something was missing. */
static void by_hole(void)
{
    char *at = prepared(map(BYTES), BYTES), *hole = at + 11 * MIB + PAGE;
    CHECK(munmap(hole, PAGE) == 0);
    CHECK(madvise(at, BYTES, MADV_DONTNEED) == -1 && errno == ENOMEM);
    CHECK(is_zero(at, hole - at) && is_zero(hole + PAGE, at + BYTES - hole - PAGE));
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    map_again(BYTES, 1);
    strcmp(argv[1], "head") == 0 ? by_head() : by_hole();
    map_again(BYTES, 9);
    puts("as the kernel does");
}
