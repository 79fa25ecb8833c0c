/* The C library's debugging allocator, preloaded, notices an overrun. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *p = malloc(7);
    printf("usable %zu\n", malloc_usable_size(p));
    char *q = valloc(100);
    memset(q, 1, 100);
    free(q);
    free(malloc(2 << 20));
    q = aligned_alloc(64, 128);
    free(q);
    puts("freed");
    fflush(stdout);
    volatile char *o = p;
    o[7] = ~o[7]; /* All bits: with one changed, 6 of 600 starts did not notice. */
    free(p);
    puts("the overrun was not noticed");
}
