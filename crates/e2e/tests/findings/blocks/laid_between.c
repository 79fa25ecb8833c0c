/* The program maps memory where a block was, while blocks are left close by: "between" blocks of one size, or "behind" a block that
 * came to lie in the first part of a larger one. It is the program's alone, whatever becomes of those blocks, also in children. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include <malloc.h>

#define KIB 1024ul
#define N (64 * KIB)
#define MANY 8

static char *lay(char *at)
{
    char *own = mmap(at, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(own == at);
    return memset(own, 7, N);
}

static void look(const char *own)
{
    CHECK(own[0] == 7 && memcmp(own, own + 1, N - 1) == 0);
}

/* A child that frees a block first, if there is one. */
static void look_in_child(const char *own, char *block, size_t bytes)
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (block) {
            free(block);
            CHECK((block = malloc(bytes)));
            memset(block, 1, bytes);
        }
        look(own);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* No block comes to lie there any more. */
static void ask(const char *own, size_t bytes)
{
    char *block[MANY];
    for (int i = 0; i < MANY; i++) {
        CHECK((block[i] = malloc(bytes)));
        memset(block[i], 3, bytes);
    }
    look(own);
    for (int i = 0; i < MANY; i++)
        free(block[i]);
    look(own);
}

static void between(size_t bytes)
{
    char *block[4];
    for (int i = 0; i < 4; i++) {
        CHECK((block[i] = malloc(bytes)));
        memset(block[i], 1, bytes);
    }
    char *page = (char *)((unsigned long)block[1] & -4096ul);
    free(block[1]);
    char *own = lay(page);
    look_in_child(own, NULL, 0);
    look_in_child(own, block[2], bytes);
    free(block[2]);
    look(own);
    free(block[0]);
    free(block[3]);
    look(own);
    ask(own, bytes);
    munmap(own, N);
}

static void behind(size_t bytes)
{
    char *larger = malloc(8 * MIB);
    CHECK(larger);
    memset(larger, 1, 8 * MIB);
    free(larger);
    char *block = malloc(bytes);
    CHECK(block);
    memset(block, 2, bytes);
    /* In what the larger one had, and where this one is not. */
    int is_apart = larger + 3 * N < block || block + bytes < larger;
    char *own = lay((char *)(((unsigned long)(is_apart ? larger : block + bytes) + 2 * N) & -N));
    look_in_child(own, NULL, 0);
    look_in_child(own, block, bytes);
    CHECK(block[0] == 2 && block[bytes - 1] == 2);
    free(block);
    look(own);
    ask(own, bytes);
    munmap(own, N);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    /* In a plain run, too, a block that is freed has no memory. */
    CHECK(mallopt(M_MMAP_THRESHOLD, 128 * 1024));
    for (size_t kib = 300; kib <= 5000; kib += 300)
        if (argv[1][1] == 'e' && argv[1][2] == 't')
            between(kib * KIB);
        else
            behind(kib * KIB);
    puts("done");
    return 0;
}
