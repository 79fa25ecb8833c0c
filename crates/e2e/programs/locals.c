/* Has large variables of each thread. The library's own lie below them, in each thread, also in one of the library's. */
#include "check.h"

static __thread unsigned char large[2 * MIB];

int main(int count, char **words)
{
    CHECK(count == 2);
    memset(large, 7, sizeof large);
    for (int round = 0; round < 12; round++) {
        size_t bytes = (4 + round % 3) * MIB;
        char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *block = malloc(bytes);
        CHECK(map != MAP_FAILED && block);
        fill(map, bytes, round);
        fill(block, bytes, round + 100);
        CHECK(is_filled(map, bytes, round) && is_filled(block, bytes, round + 100));
        free(block);
        CHECK(munmap(map, bytes) == 0);
        usleep(5000);
    }
    for (size_t i = 0; i < sizeof large; i++)
        CHECK(large[i] == 7);
    printf("%s\n", words[1]);
    return 0;
}
