/* An allocator of the four functions that every program needs, in a library that a program is linked with, or, with OWN, in
 * the program itself. A block has its size before it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define HEAP ((size_t)1 << 30)
static char *heap;
static size_t used;

int is_here(const void *block) { return heap && (const char *)block >= heap && (const char *)block < heap + HEAP; }

void *malloc(size_t bytes)
{
    if (!heap)
        heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t room = ((bytes + 15) & ~(size_t)15) + 16;
    if (bytes > HEAP || used + room > HEAP) {
        errno = ENOMEM;
        return NULL;
    }
    char *block = heap + used + 16;
    used += room;
    ((size_t *)block)[-2] = bytes;
    ((size_t *)block)[-1] = 0;
    return block;
}

void free(void *block) { (void)block; }

void *calloc(size_t n, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(n, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc(all);
}

void *realloc(void *old, size_t bytes)
{
    char *block = malloc(bytes);
    if (block && old) {
        size_t kept = ((size_t *)old)[-2];
        memcpy(block, old, kept < bytes ? kept : bytes);
    }
    return block;
}
