/* A child of vfork is at memory, while threads of its parent open files and are at memory: each file that is opened gets
 * the lowest number. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>

static volatile int is_over;

/* A call that the kernel refuses, because the two halves differ. */
static void refused(void)
{
    char *at = map(8 * MIB);
    CHECK(mprotect(at + 4 * MIB, 4 * MIB, PROT_READ) == 0);
    char *moved = mremap(at, 8 * MIB, 10 * MIB, MREMAP_MAYMOVE);
    /* Where the library cannot look, it takes the parts for one mapping. */
    CHECK(moved == MAP_FAILED ? munmap(at, 8 * MIB) == 0 : munmap(moved, 10 * MIB) == 0);
}

static void *open_files(void *unused)
{
    while (!is_over) {
        int file = open("/dev/null", O_RDONLY);
        CHECK(file == 3);
        CHECK(close(file) == 0);
    }
    return unused;
}

static void *map_memory(void *unused)
{
    while (!is_over)
        refused();
    return unused;
}

int main(void)
{
    map_again(16 * MIB, 3);
    CHECK(syscall(SYS_close_range, 3, 1000, 0) == 0);
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, open_files, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, map_memory, NULL) == 0);
    for (int i = 0; i < 30; i++) {
        pid_t child = vfork();
        if (child == 0) {
            syscall(SYS_close_range, 3, ~0u, 0);
            for (int k = 0; k < 300; k++)
                refused();
            _exit(0);
        }
        CHECK(ended(child) == 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return puts("the lowest") < 0;
}
