/* malloc's family with sizes and alignments at their limits. Prints result and error number of each call. */
#include "check.h"
#include <malloc.h>

static void say(const char *what, size_t a, size_t b, void *block)
{
    printf("%s(%zu, %zu): %s, %d\n", what, a, b, block ? "memory" : "none", errno);
    free(block);
    errno = 0;
}

int main(void)
{
    static const size_t sizes[] = { 0, 1, 300000, 3 * MIB, 5 * MIB + 1, SIZE_MAX / 2 - MIB, SIZE_MAX / 2,
                                    SIZE_MAX / 2 + 1, SIZE_MAX - 8 * MIB, SIZE_MAX - 4095, SIZE_MAX - 1, SIZE_MAX };
    static const size_t aligns[] = { 0, 1, 3, 8, 24, 48, 4096, 5000, 65536, 3 * MIB, 64 * MIB, (size_t)1 << 62,
                                     (size_t)1 << 63, ((size_t)1 << 63) + 1, SIZE_MAX };
    errno = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        say("malloc", n, 0, malloc(n));
        say("calloc", n, 1, calloc(n, 1));
        say("calloc", n, 2, calloc(n, 2));
        say("calloc", 300000, n, calloc(300000, n));
        say("valloc", n, 0, valloc(n));
        say("pvalloc", n, 0, pvalloc(n));
        say("reallocarray", n, 3, reallocarray(NULL, n, 3));
        for (int kind = 0; kind < 3; kind++) {
            size_t old = kind ? kind == 1 ? 400000 : 4 * MIB : 100;
            char *block = malloc(old), *resized;
            fill(block, old, kind);
            resized = kind == 1 ? reallocarray(block, n, 1) : realloc(block, n);
            printf("realloc(%zu, %zu): %s, %d\n", old, n, resized ? "memory" : "none", errno);
            errno = 0;
            char *kept = resized || n == 0 ? resized : block;
            CHECK(!kept || is_filled(kept, old < n || !resized ? old : n, kind));
            free(kept);
        }
        for (size_t k = 0; k < sizeof aligns / sizeof *aligns; k++) {
            size_t align = aligns[k];
            void *block = aligned_alloc(align, n);
            CHECK(!block || align == 0 || align & (align - 1) || (uintptr_t)block % align == 0);
            say("aligned_alloc", align, n, block);
            say("memalign", align, n, memalign(align, n));
            block = NULL;
            int error = posix_memalign(&block, align, n);
            printf("%d ", error);
            say("posix_memalign", align, n, block);
        }
    }
    errno = 77;
    free(malloc(5 * MIB));
    free(malloc(500000));
    printf("free: %d\n", errno);
}
