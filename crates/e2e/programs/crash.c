/* Frees some memory, keeps some that is only partly used, and aborts. */
#include "check.h"

/* Seen from outside, so that nothing written there is left out. */
char *volatile dense, *volatile sparse;

int main(void)
{
    for (int i = 0; i < 8; i++) {
        char *volatile gone = malloc(16 * MIB);
        fill(gone, 16 * MIB, i);
        free(gone);
    }
    dense = malloc(24 * MIB);
    sparse = map(512 * MIB);
    fill(dense, 24 * MIB, 1);
    strcpy(dense, "a word ");
    strcpy(dense + 7, "to be found in the core");
    for (size_t at = 0; at < 512 * MIB; at += 64 * MIB)
        sparse[at] = 1;
    abort();
}
