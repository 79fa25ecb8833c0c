/* mremap that moves memory and makes it smaller: what falls away may be another mapping, or nothing. */
#include "check.h"

#define WHOLE (64 * MIB)
#define FRONT (24 * MIB)
#define USED (8 * MIB)

static void shrink(size_t bytes, int seed, int is_hole, int flags)
{
    char *from = mmap(NULL, WHOLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *to = mmap(NULL, WHOLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(from != MAP_FAILED && to != MAP_FAILED);
    CHECK(mmap(from, FRONT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from);
    fill(from, USED, seed);
    if (is_hole)
        CHECK(munmap(from + FRONT, 8 * MIB) == 0);
    errno = 0;
    char *at = mremap(from, WHOLE, bytes, flags, to);
    int error = errno;
    int is_right = at == MAP_FAILED || is_filled(at, bytes < USED ? bytes : USED, seed);
    printf("%zu MiB, hole %d, flags %d: %s, error %d, bytes %d\n", bytes / MIB, is_hole, flags,
           at == to ? "there" : at == from ? "here" : at == MAP_FAILED ? "refused" : "elsewhere", error, is_right);
    munmap(from, WHOLE);
    munmap(to, WHOLE);
    if (at != MAP_FAILED)
        munmap(at, bytes);
}

int main(void)
{
    const int flags[] = {0, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED};
    int seed = 0;
    for (int i = 0; i < 6; i++)
        for (size_t mib = 2; mib <= 32; mib += 6)
            for (int hole = 0; hole < 2; hole++)
                for (int f = 0; f < 3; f++)
                    shrink(mib * MIB, seed++, hole, flags[f]);
    return 0;
}
