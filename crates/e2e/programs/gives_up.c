/* A program that uses one page of each huge page, gives up parts of them, and maps more. What is left of them must not
 * grow. Arguments: how it gives them up, and how often. Prints its largest resident memory in KiB. */
#include "check.h"
#include <sys/resource.h>

#define HUGE (2 * MIB)
#define BYTES (8 * MIB)

static char *reserved(int prot)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *at = mmap(NULL, BYTES + HUGE, prot, flags, -1, 0);
    CHECK(at != MAP_FAILED);
    return (char *)(((uintptr_t)at + HUGE - 1) / HUGE * HUGE);
}

static char *touched(char *at)
{
    for (size_t i = 0; i < BYTES; i += HUGE)
        at[i] = 1;
    return at;
}

static char *committed(void)
{
    char *at = reserved(PROT_NONE);
    CHECK(mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    return touched(at);
}

static void move(char *from, size_t by)
{
    char *to = reserved(PROT_NONE) + by;
    CHECK(mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
}

/* Small blocks of which most are freed, and then larger ones, as much as was freed. */
static void in_pieces(void)
{
    enum { BLOCKS = 2000, SMALL = 256 << 10, LARGE = 1000 << 10 };
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(SMALL), 1, SMALL);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 8)
            free(blocks[i]);
    for (int i = 0; i < BLOCKS / 8 * 7 / 4; i++)
        memset(malloc(LARGE), 1, LARGE);
}

/* Small blocks, a child that ends at once, most of them freed, and then as much again by mappings. */
static void beside_a_child(void)
{
    enum { BLOCKS = 400, BYTES_OF_EACH = 512 << 10, MAPPINGS = 70 };
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BYTES_OF_EACH), 1, BYTES_OF_EACH);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(ended(pid) == 0);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 4)
            free(blocks[i]);
    for (int i = 0; i < MAPPINGS; i++)
        memset(map(HUGE), 1, HUGE);
}

/* Memory at an address of its own: used throughout, dropped, and then used here and there. */
static void dropped(void)
{
    size_t bytes = 4 * BYTES;
    char *at = mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    at = (char *)(((uintptr_t)at + HUGE - 1) / HUGE * HUGE);
    CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    memset(at, 1, bytes);
    /* Time for looks. */
    usleep(100000);
    CHECK(madvise(at, bytes, MADV_DONTNEED) == 0);
    for (size_t i = 0; i < bytes; i += HUGE)
        at[i] = 1;
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    const char *how = argv[1];
    for (int round = 0; round < atoi(argv[2]); round++) {
        if (!strcmp(how, "half of each")) {
            char *at = touched(reserved(PROT_READ | PROT_WRITE));
            for (size_t i = 0; i < BYTES; i += HUGE)
                CHECK(munmap(at + i + 4096, HUGE / 2) == 0);
        } else if (!strcmp(how, "a page of each")) {
            char *at = touched(reserved(PROT_READ | PROT_WRITE));
            for (size_t i = 0; i < BYTES; i += HUGE)
                CHECK(mmap(at + i + 8192, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + i + 8192);
        } else if (!strcmp(how, "moved")) {
            move(touched(reserved(PROT_READ | PROT_WRITE)), 4096);
        } else if (!strcmp(how, "committed")) {
            committed();
        } else if (!strcmp(how, "committed in part")) {
            CHECK(munmap(committed(), HUGE) == 0);
        } else if (!strcmp(how, "committed and moved")) {
            move(committed(), 0);
        } else if (!strcmp(how, "blocks")) {
            in_pieces();
        } else if (!strcmp(how, "shrunk")) {
            char *block = malloc(2 * HUGE);
            CHECK(block);
            memset(block, 1, 2 * HUGE);
            CHECK(realloc(block, HUGE + 4096));
        } else if (!strcmp(how, "forked")) {
            beside_a_child();
        } else if (!strcmp(how, "dropped")) {
            dropped();
        } else {
            CHECK(!"a known way");
        }
        /* The background thread goes on. */
        if (round % 8 == 0)
            usleep(3000);
    }
    struct rusage used;
    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    fprintf(stderr, "%ld\n", used.ru_maxrss);
    return 0;
}
