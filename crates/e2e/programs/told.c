/* The C library tells how much memory is in use: what a block adds to that is the block. */
#include <malloc.h>
#include "check.h"

static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static size_t in_use_before(void)
{
    struct mallinfo info = mallinfo();
    return (size_t)info.uordblks + (size_t)info.hblkhd;
}

static void tell(const char *what, size_t before, size_t bytes)
{
    size_t added = in_use() - before;
    CHECK(in_use() == in_use_before());
    printf("%s: %s\n", what, added >= bytes && added <= bytes + 128 * 1024 ? "all" : "other");
}

int main(void)
{
    size_t before = in_use();
    char *volatile large = malloc(20 * MIB), *volatile middle = malloc(3 * MIB), *volatile small = malloc(300000);
    CHECK(large && middle && small);
    tell("three", before, 23 * MIB + 300000);
    free(large);
    tell("two", before, 3 * MIB + 300000);
    free(small);
    large = malloc(9 * MIB);
    tell("others", before, 12 * MIB);
    free(large);
    free(middle);
    tell("none", before, 0);
}
