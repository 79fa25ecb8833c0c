/* Uses up the areas that a process may have, then goes on. Prints how many there were, in two ways. */
#include "check.h"

static size_t page;

/* One page after the other, readable and writable in turns, so that no two are one area. */
static size_t by_mmap(void)
{
    static void *at[200000];
    size_t n = 0;
    while (n < 200000) {
        int prot = n % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        at[n] = mmap(NULL, page, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at[n] == MAP_FAILED)
            break;
        n++;
    }
    CHECK(n < 200000 && errno == ENOMEM);
    for (size_t i = 0; i < n; i++)
        CHECK(munmap(at[i], page) == 0);
    return n;
}

/* Every other page of a large mapping made read-only. */
static size_t by_mprotect(void)
{
    size_t bytes = 512 * MIB, n = 0;
    char *at = map(bytes);
    while ((2 * n + 1) * page < bytes && mprotect(at + 2 * n * page, page, PROT_READ) == 0)
        n++;
    CHECK((2 * n + 1) * page < bytes && errno == ENOMEM);
    /* No area is left: what fails fails with ENOMEM, what is there stays as it was. */
    for (size_t i = 0; i < n; i++)
        CHECK(at[2 * i * page] == 0);
    for (int i = 0; i < 20; i++) {
        char *block = malloc((1 + i) * MIB);
        CHECK(block || errno == ENOMEM);
        if (block)
            fill(block, (1 + i) * MIB, i);
        free(block);
    }
    at[page] = 1;
    CHECK(munmap(at, bytes) == 0);
    return n;
}

int main(void)
{
    page = sysconf(_SC_PAGESIZE);
    for (int round = 0; round < 2; round++) {
        size_t a = by_mmap(), b = by_mprotect();
        printf("%zu %zu\n", a, b);
        for (int i = 1; i < 20; i++) {
            char *block = calloc(i, MIB), *more = map(i * 2 * MIB);
            CHECK(block && is_zero(block, i * MIB) && is_zero(more, i * 2 * MIB));
            fill(block, i * MIB, i);
            fill(more, i * 2 * MIB, i + 1);
            CHECK(is_filled(block, i * MIB, i));
            free(block);
            CHECK(munmap(more, i * 2 * MIB) == 0);
        }
    }
}
