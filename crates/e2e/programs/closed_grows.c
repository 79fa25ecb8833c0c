/* Mappings that were closed to writes grow, those with little memory too: of these the kernel knows the parts with the
 * engine's advice and those without as different ones, and counts them apart. */
#include "check.h"

static const size_t AT = 64 * MIB, MORE = MIB;

int main(void)
{
    for (int i = 0; i < 16; i++) {
        int rights = i % 2 ? PROT_READ : PROT_NONE;
        char *at = map(AT);
        /* A page in one of the parts. */
        size_t used = i / 2 % 4 * 20 * MIB;
        at[used] = 7;
        CHECK(mprotect(at, AT, rights) == 0);
        at = mremap(at, AT, AT + MORE, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED);
        CHECK(mprotect(at, AT + MORE, PROT_READ | PROT_WRITE) == 0);
        CHECK(at[used] == 7);
        at[used] = 0;
        CHECK(is_zero(at, AT + MORE));
        CHECK(munmap(at, AT + MORE) == 0);
    }
    puts("grown");
}
