/* A program with a library that allocates while it is linked (resolver.c). */
#include "check.h"

int call(void);

int main(void)
{
    CHECK(call() == 42);
    char *block = malloc(8 * MIB);
    CHECK(block && (fill(block, 8 * MIB, 1), is_filled(block, 8 * MIB, 1)));
    free(block);
    puts("done");
}
