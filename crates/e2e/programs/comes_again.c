/* A block that a program frees and takes again, and uses whole or in part, does not come from the kernel anew each time.
 * The C library keeps blocks of these sizes. */
#include "check.h"
#include <sys/resource.h>

static long faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

int main(void)
{
    const size_t sizes[] = {5 * MIB + 12345, 12 * MIB + 1, 30 * MIB};
    for (int i = 0; i < 3; i++)
        for (int part = 1; part <= 4; part *= 4) {
            size_t bytes = sizes[i] / part;
            long before = 0;
            for (int round = 0; round < 120; round++) {
                if (round == 80)
                    before = faults();
                char *block = malloc(sizes[i]);
                CHECK(block);
                for (size_t at = 0; at < bytes; at += 4096)
                    block[at] = 1;
                __asm__ volatile("" ::"r"(block) : "memory");
                free(block);
            }
            long each = (faults() - before) / 40, pages = bytes / 4096;
            if (each > pages / 2)
                printf("%zu of %zu bytes: %ld faults each time\n", bytes, sizes[i], each);
        }
}
