/* Has the C library fill its blocks: "mallopt", or by the environment. */
#include "../../../programs/check.h"
#include <malloc.h>

int main(int argc, char **argv)
{
    char *before = malloc(5 * MIB);
    memset(before, 1, 5 * MIB);
    printf("%d", mallopt(M_MMAP_THRESHOLD, 256 << 10));
    if (argc > 1 && !strcmp(argv[1], "mallopt"))
        printf(" %d", mallopt(M_PERTURB, 0x1a5));
    puts("");
    for (int i = 1; i < 5; i++) {
        size_t bytes = i * MIB + 12345;
        unsigned char *block = malloc(bytes);
        printf("%x %x %x\n", block[0], block[bytes / 2], block[bytes - 1]);
        block = realloc(block, bytes + 100000);
        memset(block, i, bytes);
        free(block);
        block = calloc(2, bytes);
        CHECK(is_zero(block, 2 * bytes));
        free(block);
    }
    before = realloc(before, 9 * MIB);
    CHECK(before[0] == 1 && before[5 * MIB - 1] == 1);
    free(before);
}
