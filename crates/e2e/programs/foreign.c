/* Blocks of an allocator that is not the C library's (four.c) grow. With OWN it is the program's own, and the C library's
 * reallocarray uses it. */
#ifdef OWN
#include "four.c"
#else
int is_here(const void *block);
#endif
#include "check.h"

int main(void)
{
    char *block = malloc(100000);
    CHECK(block && is_here(block));
    fill(block, 100000, 1);
    CHECK((block = realloc(block, 400000)) && is_filled(block, 100000, 1));
    CHECK((block = realloc(block, 20 * MIB)) && is_filled(block, 100000, 1));
    free(block);
    char *array = malloc(1000);
    fill(array, 1000, 2);
    CHECK((array = reallocarray(array, 100, 20)) && is_filled(array, 1000, 2));
    fill(array, 2000, 3);
    CHECK((array = reallocarray(array, 1000, 2000)) && is_filled(array, 2000, 3));
#ifdef OWN
    CHECK(is_here(array));
#endif
    free(array);
    volatile size_t most = SIZE_MAX / 2;
    errno = 0;
    CHECK(!reallocarray(NULL, most, 3) && errno == ENOMEM);
    /* What is mapped is served all the same. */
    map_again(8 * MIB, 4);
    puts("done");
}
