/* Memory before main and after it. */
#include "check.h"

static char *block, *area;

__attribute__((constructor(101))) static void before(void)
{
    block = malloc(8 * MIB);
    area = map(16 * MIB);
    CHECK(block && is_zero(area, 16 * MIB));
    fill(block, 8 * MIB, 5);
    fill(area, 16 * MIB, 6);
}

__attribute__((destructor)) static void after(void)
{
    CHECK(is_filled(block, 16 * MIB, 5));
    free(block);
    char *last = calloc(1, 8 * MIB);
    CHECK(last && is_zero(last, 8 * MIB));
    free(last);
}

static void at_end(void)
{
    CHECK(is_filled(area, 16 * MIB, 6) && munmap(area, 16 * MIB) == 0);
}

int main(void)
{
    CHECK(is_filled(block, 8 * MIB, 5) && is_filled(area, 16 * MIB, 6));
    CHECK(atexit(at_end) == 0);
    block = realloc(block, 16 * MIB);
    CHECK(block && is_filled(block, 8 * MIB, 5));
    fill(block, 16 * MIB, 5);
    puts("done");
}
