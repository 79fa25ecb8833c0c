/* Calls about ranges with more than one mapping in them, or with a gap. Prints what each answers. */
#include "check.h"

#define BYTES (32 * MIB)

static int protected, gap, advised;

static char *range(void)
{
    char *at = map(BYTES);
    fill(at, BYTES, 3);
    if (protected)
        CHECK(mprotect(at + 8 * MIB, 8 * MIB, PROT_READ) == 0);
    if (gap)
        CHECK(munmap(at + 20 * MIB, 4 * MIB) == 0);
    if (advised)
        CHECK(madvise(at + 4 * MIB, 4 * MIB, MADV_DONTFORK) == 0);
    return at;
}

static void say(const char *what, int failed)
{
    printf("%s: %d\n", what, failed ? errno : 0);
}

#define REMAP(what, ...) (at = range(), say(what, mremap(at, __VA_ARGS__) == MAP_FAILED))
#define CALL(what, call) (at = range(), say(what, (call) != 0))

int main(void)
{
    for (int kind = 0; kind < 8; kind++) {
        protected = kind & 1, gap = kind & 2, advised = kind & 4;
        printf("protected %d, gap %d, advised %d\n", protected, gap, advised);
        char *at;
        unsigned char there[BYTES / 4096];
        REMAP("same size", BYTES, BYTES, 0);
        REMAP("smaller", BYTES, 12 * MIB, 0);
        REMAP("much smaller", BYTES, 2 * MIB, 0);
        REMAP("larger", BYTES, 64 * MIB, MREMAP_MAYMOVE);
        REMAP("left behind", BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        REMAP("smaller elsewhere", BYTES, 12 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, map(BYTES));
        REMAP("fixed alone", BYTES, BYTES, MREMAP_FIXED, map(BYTES));
        at = range();
        say("larger in place", mremap(at, BYTES, 64L << 30, 0) == MAP_FAILED);
        CALL("mprotect", mprotect(at, BYTES, PROT_READ | PROT_WRITE));
        CALL("madvise", madvise(at, BYTES, MADV_DONTNEED));
        CALL("populate", madvise(at, BYTES, MADV_POPULATE_WRITE));
        CALL("mlock", mlock(at, 16 * MIB));
        CALL("munlock", munlock(at, BYTES));
        CALL("mincore", mincore(at, BYTES, there));
        CALL("msync", msync(at, BYTES, MS_ASYNC));
        CALL("munmap", munmap(at, BYTES));
        CALL("munmap twice", munmap(at, BYTES) | munmap(at, BYTES));
    }
    /* What the range held is still there, and new memory is zero. */
    protected = gap = advised = 0;
    char *at = range(), *to = mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
    CHECK(to != MAP_FAILED && is_filled(to, BYTES, 3) && is_zero(to + BYTES, BYTES));
    for (int i = 0; i < 40; i++) {
        at = map((2 + i % 9) * MIB);
        CHECK(is_zero(at, (2 + i % 9) * MIB));
        memset(at, 0xa5, (2 + i % 9) * MIB);
        if (i % 3)
            CHECK(munmap(at, (2 + i % 9) * MIB) == 0);
    }
}
