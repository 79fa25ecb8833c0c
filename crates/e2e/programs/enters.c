/* Enters a control group after its start, and takes nearly all that it may have: at once, by a mapping that is shared, or as it is
 * touched. Arguments: bytes given back before, bytes taken, how, the group's list of processes. With `threads`, another thread is there. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>

static void *wait_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void use(size_t bytes)
{
    char *at = map(bytes);
    memset(at, 1, bytes);
    CHECK(munmap(at, bytes) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 5);
    size_t before = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10);
    pthread_t thread;
    if (argc > 5)
        CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
    for (int i = 0; i < 3; i++)
        use(64 * MIB);
    int group = open(argv[4], O_WRONLY);
    CHECK(group >= 0 && dprintf(group, "%d\n", getpid()) > 0 && close(group) == 0);
    for (int i = 0; i < 2; i++)
        use(before);
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (strcmp(argv[3], "populate") == 0)
        flags |= MAP_POPULATE;
    if (strcmp(argv[3], "shared") == 0)
        flags = MAP_SHARED | MAP_ANONYMOUS;
    char *at = mmap(NULL, bytes, rights, flags, -1, 0);
    CHECK(at != MAP_FAILED);
    if (strcmp(argv[3], "advise") == 0)
        CHECK(madvise(at, bytes, MADV_POPULATE_WRITE) == 0);
    memset(at, 1, bytes);
    puts("done");
    return 0;
}
