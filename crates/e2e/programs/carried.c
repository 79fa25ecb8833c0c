/* realloc of blocks of which the program changed all whole pages: what it asked for at the begin of a page is copied, and what
   it closed or laid a file over, too. A block that cannot move leaves other threads' memory alone. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

static size_t from, to;
static char *block, *first, *end;

static void make(int aligned)
{
    if (aligned)
        CHECK(posix_memalign((void **)&block, 4096, from) == 0);
    else
        CHECK((block = malloc(from)) != NULL);
    memset(block, 7, from);
    first = (char *)(((uintptr_t)block + 4095) & ~4095ul), end = (char *)(((uintptr_t)block + from) & ~4095ul);
}

/* Larger, with its bytes; all of it may be written to, and a child has it. */
static void grow(char byte)
{
    size_t least = first - block, most = end - block;
    CHECK((block = realloc(block, to)) != NULL);
    CHECK(block[least + 4096] == byte && block[most - 4096] == byte);
    for (size_t i = 0; i < to; i += 4096)
        block[i] = 9;
    pid_t child = fork();
    if (child == 0)
        _exit(block[0] != 9 || block[to / 2 / 4096 * 4096] != 9);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    free(block);
}

static void closed(int aligned)
{
    make(aligned);
    CHECK(mprotect(first, end - first, PROT_READ) == 0);
    grow(7);
}

static void wiped(int aligned)
{
    make(aligned);
    CHECK(madvise(first, end - first, MADV_WIPEONFORK) == 0);
    grow(7);
}

static void hidden(int aligned)
{
    make(aligned);
    CHECK(madvise(first, end - first, MADV_DONTFORK) == 0);
    grow(7);
}

/* What is written to the larger block is not in the file. */
static void laid(int aligned)
{
    make(aligned);
    int fd = memfd_create("laid", 0);
    CHECK(fd >= 0 && ftruncate(fd, from) == 0);
    CHECK(mmap(first, end - first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == first);
    memset(first, 3, end - first);
    size_t length = end - first;
    grow(3);
    char byte = 0;
    CHECK(pread(fd, &byte, 1, length / 2) == 1 && byte == 3);
    close(fd);
}

/* What was asked for at the begin of a page is locked no more. */
static void locked(int aligned)
{
    make(aligned);
    CHECK(mlock(first, end - first) == 0 && (block = realloc(block, to)) != NULL);
    CHECK(!aligned || locked_bytes() == 0);
    free(block);
}

static volatile int stops;

static void *map_and_look(void *mark)
{
    for (unsigned n = 0; !stops; n++) {
        size_t bytes = (4 + n % 3 * 4) * MIB;
        char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED);
        for (int round = 0; round < 3; round++)
            for (size_t i = 0; i < bytes; i += MIB) {
                CHECK(round == 0 || map[i] == (char)((uintptr_t)mark + i / MIB));
                map[i] = (char)((uintptr_t)mark + i / MIB);
            }
        munmap(map, bytes);
    }
    return NULL;
}

/* A locked block grows where the limit of locked memory does not allow it, beside threads that map memory. */
static void raced(int aligned)
{
    struct rlimit limit = {from * 5 / 4, from * 5 / 4};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (getuid() == 0)
        CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(threads + i, NULL, map_and_look, (void *)(i + 1)) == 0);
    for (int round = 0; round < 150; round++) {
        make(aligned);
        mlock(block, from);
        CHECK((block = realloc(block, to)) != NULL);
        for (size_t i = 0; i < from; i += 4096)
            CHECK(block[i] == 7);
        free(block);
    }
    stops = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*check)(int aligned);
    } all[] = {{"closed", closed}, {"wiped", wiped}, {"hidden", hidden}, {"laid", laid}, {"locked", locked}, {"raced", raced}};
    CHECK(argc == 5);
    from = strtoul(argv[2], NULL, 10) * MIB, to = strtoul(argv[3], NULL, 10) * MIB;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            all[i].check(argv[4][0] == 'a');
    return puts("as in a plain run") < 0;
}
