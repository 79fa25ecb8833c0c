/* Built with -fsanitize=address: large blocks, and with "broken" a read of one that was freed. */
#include "check.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < 12; i++) {
        char *block = calloc(i, MIB), *area = map(i * 2 * MIB);
        CHECK(block && is_zero(block, i * MIB) && is_zero(area, i * 2 * MIB));
        fill(block, i * MIB, i);
        block = realloc(block, 3 * i * MIB);
        CHECK(block && is_filled(block, i * MIB, i));
        char *volatile gone = block;
        free(block);
        CHECK(munmap(area, i * 2 * MIB) == 0);
        if (argc > 1 && i == 10)
            printf("%d\n", gone[5]);
    }
    puts("done");
}
