/* The program's own memory takes the place of a part of a mapping, and an mremap takes all of it. */
#include "check.h"

#define WHOLE (12 * MIB)
#define GROWN (20 * MIB)
#define SLOT (2 * MIB)

static const int PLAIN = MAP_PRIVATE | MAP_ANONYMOUS, BOTH = PROT_READ | PROT_WRITE;

static void fixed(char *at, size_t bytes, int prot, int more)
{
    CHECK(mmap(at, bytes, prot, PLAIN | MAP_FIXED | more, -1, 0) == at);
}

static void cut(char *from, char *at, int how)
{
    size_t rest = from + WHOLE - at;
    switch (how) {
    case 0:
        return fixed(at, rest, BOTH, 0);
    case 1:
        CHECK(munmap(at, rest) == 0);
        return fixed(at, rest, BOTH, MAP_FIXED_NOREPLACE);
    case 2:
        fixed(at, rest, PROT_NONE, 0);
        CHECK(mprotect(at, rest, BOTH) == 0);
        return;
    case 3:
        CHECK(mprotect(at, rest, PROT_READ) == 0 && mprotect(at, rest, BOTH) == 0);
        return;
    case 4:
        return fixed(at, MIB, BOTH, 0);
    default:
        return fixed(at, 4096, BOTH, 0);
    }
}

int main(void)
{
    const size_t places[] = {5 * MIB, 6 * MIB, 5 * MIB + 4096};
    for (int how = 0; how < 6; how++)
        for (int i = 0; i < 12; i++) {
            char *room = mmap(NULL, 4 * GROWN, PROT_NONE, PLAIN | MAP_NORESERVE, -1, 0);
            CHECK(room != MAP_FAILED);
            char *from = (char *)(((uintptr_t)room + SLOT - 1) & ~(SLOT - 1));
            fixed(from, WHOLE, BOTH, 0);
            fill(from, 5 * MIB, how);
            cut(from, from + places[i % 3], how);
            fixed(from + WHOLE, 4096, PROT_NONE, 0);
            char *to = mremap(from, WHOLE, GROWN, MREMAP_MAYMOVE);
            printf("%d at %zu: %s, bytes %d\n", how, places[i % 3], to == MAP_FAILED ? strerror(errno) : "moved",
                   to == MAP_FAILED || (is_filled(to, 5 * MIB, how) && is_zero(to + WHOLE, GROWN - WHOLE)));
            if (to != MAP_FAILED)
                CHECK(munmap(to, GROWN) == 0);
            CHECK(munmap(room, 4 * GROWN) == 0);
        }
    return 0;
}
