/* A part of a block is unmapped, or not there in a child. Whatever the kernel puts there, as blocks of the C library's, is used
 * like any other. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include <malloc.h>
#include <pthread.h>

#define N (96 * MIB)
#define SIZE 200000

static void *use(void *unused)
{
    static __thread char *block[200], *aligned;
    for (int i = 0; i < 200; i++) {
        block[i] = malloc(SIZE);
        memset(block[i], i, SIZE);
    }
    aligned = aligned_alloc(4096, SIZE);
    memset(aligned, 1, SIZE);
    for (int i = 0; i < 200; i++) {
        CHECK(malloc_usable_size(block[i]) >= SIZE);
        CHECK((block[i] = realloc(block[i], i % 3 ? SIZE + 10000 : 500000)));
        CHECK(block[i][0] == (char)i && memcmp(block[i], block[i] + 1, SIZE - 1) == 0);
    }
    for (int i = 0; i < 200; i++)
        free(block[i]);
    free(aligned);
    return unused;
}

/* Uses up the room above the block, as a program with many mappings does. */
static void fill_room(char *end)
{
    size_t sizes[] = {16 * MIB, MIB, 64 << 10};
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < 4000; n++)
            if ((char *)mmap(NULL, sizes[i], PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) < end)
                break;
}

static void all(char *end)
{
    fill_room(end);
    pthread_t thread;
    use(NULL);
    CHECK(pthread_create(&thread, NULL, use, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    char *block = malloc(N);
    memset(block, 1, 4096);
    char *page = (char *)(((uintptr_t)block + 4095) & ~(uintptr_t)4095);
    size_t part = (N - 8192) & ~(size_t)4095;
    if (!strcmp(argv[1], "unmapped")) {
        CHECK(munmap(page, part) == 0);
        all(block + N);
    } else {
        CHECK(madvise(page, part, MADV_DONTFORK) == 0);
        pid_t child = fork();
        if (child == 0) {
            all(block + N);
            _exit(0);
        }
        CHECK(ended(child) == 0);
    }
    puts("done");
}
