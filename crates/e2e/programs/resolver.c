/* A library that allocates while it is linked: in the resolver of an indirect function. */
#include <malloc.h>
#include <stdlib.h>
#include "check.h"

static char *small, *grown, *zeroed, *aligned, *large, *kept;
static int was_zero;

static int use(void)
{
    CHECK(was_zero && is_filled(small, 1500, 1) && is_filled(grown, 1500, 2) && is_filled(zeroed, 5000, 3));
    CHECK(is_filled(aligned, 5000, 4) && is_filled(large, 1 << 20, 5) && is_filled(kept, 600, 6));
    CHECK((size_t)aligned % 4096 == 0 && (size_t)small % 16 == 0 && malloc_usable_size(small) >= 1500);
    free(small);
    free(aligned);
    /* To a block of the C library, to one that is served, and to nothing. */
    CHECK((grown = realloc(grown, 9000)) && is_filled(grown, 1500, 2));
    CHECK((large = realloc(large, 8 * MIB)) && is_filled(large, 1 << 20, 5));
    CHECK(!realloc(zeroed, 0));
    free(grown);
    free(large);
    return 42;
}

static int (*resolve(void))(void)
{
    if ((small = malloc(1500))) fill(small, 1500, 1);
    if ((grown = malloc(600))) fill(grown, 600, 2);
    if ((grown = realloc(grown, 1500)) && is_filled(grown, 600, 2)) fill(grown, 1500, 2);
    if ((zeroed = calloc(100, 50))) was_zero = is_zero(zeroed, 5000), fill(zeroed, 5000, 3);
    if (posix_memalign((void **)&aligned, 4096, 5000) == 0) fill(aligned, 5000, 4);
    if ((large = malloc(1 << 20))) fill(large, 1 << 20, 5);
    if ((kept = realloc(NULL, 600))) fill(kept, 600, 6);
    free(malloc(10));
    free(NULL);
    return use;
}

static int found(void) __attribute__((ifunc("resolve")));
int call(void) { return found(); }
