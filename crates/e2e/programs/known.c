/* Asks for memory in ways that a trace of its system calls tells apart, for tests that compare counters with one.
 * A block of malloc gets a mapping of the C library's own, if it is large: its size leaves 24 bytes of that unused, and
 * a remainder of 4096 when it is divided by 64 KiB. What the program maps itself leaves none. */
#include "check.h"

enum { PART = 65536, END = 4096 - 24 };

static char *used(size_t bytes)
{
    char *at = map(bytes);
    fill(at, bytes, bytes);
    return at;
}

static void leave(char *at, size_t bytes)
{
    CHECK(munmap(at, bytes) == 0);
}

/* Never more than three of them at once. */
static void mappings(void)
{
    enum { BYTES = 8 * MIB };
    char *a = used(BYTES), *b = used(BYTES), *c = used(BYTES);
    for (int i = 0; i < 5; i++) {
        leave(a, BYTES);
        leave(c, BYTES);
        a = used(BYTES);
        leave(b, BYTES);
        b = used(BYTES);
        c = used(BYTES);
    }
}

/* What the library leaves to the kernel, and why. */
static void left(void)
{
    used(4 * MIB);
    for (int i = 1; i <= 3; i++)
        used(i * 5 * PART);
    for (int i = 1; i <= 2; i++)
        CHECK(mmap(NULL, i * 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHECK(mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    used(6 * MIB);
}

static void blocks(void)
{
    static const int parts[] = { 5, 17, 32, 33, 64, 100, 4, 256, 31, 5 };
    enum { N = sizeof parts / sizeof parts[0] };
    char *volatile at[N];
    for (int i = 0; i < N; i++) {
        size_t bytes = (size_t)parts[i] * PART + END;
        at[i] = i % 2 ? calloc(1, bytes) : malloc(bytes);
        CHECK(at[i] && (i % 2 == 0 || at[i][bytes - 1] == 0));
        fill(at[i], bytes, i);
        if (i >= 3) {
            free(at[i - 3]);
            at[i - 3] = NULL;
        }
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    switch (argv[1][0]) {
    case 'm': mappings(); return 0;
    case 'l': left(); return 0;
    case 'b': blocks(); return 0;
    default: return 2;
    }
}
