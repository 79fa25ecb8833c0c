/* The lowest free number is the program's: while one thread takes memory and gives it back, another one opens files and puts
 * files in place of others. Each gets the lowest number, and none is closed. The argument says who: this process, or a child. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

enum { ROUNDS = 200000 };
static volatile int stop;

static void *use_memory(void *unused)
{
    for (int i = 0; !stop; i++) {
        char *at = map(8 * MIB), *block = malloc(5 * MIB);
        CHECK(block);
        for (size_t page = 0; page < 8 * MIB; page += 4096)
            at[page] = 1;
        block[i % 5 * MIB] = 1;
        CHECK(munmap(at, 8 * MIB) == 0);
        free(block);
        /* Advice may have split this one. */
        at = map(96 * MIB);
        at = mremap(at, 96 * MIB, 128 * MIB, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED && munmap(at, 128 * MIB) == 0);
    }
    return unused;
}

static void use_numbers(void)
{
    pthread_t thread;
    int wrong = 0, lost = 0, refused = 0, lowest = open("/dev/null", O_RDONLY);
    CHECK(lowest >= 0 && close(lowest) == 0);
    CHECK(pthread_create(&thread, NULL, use_memory, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        int fd = open("/dev/null", O_RDONLY);
        wrong += fd != lowest;
        CHECK(fd >= 0 && close(fd) == 0);
        if (dup2(0, lowest) != lowest) {
            refused++;
            continue;
        }
        struct stat there;
        for (volatile int wait = 0; wait < 300; wait++)
            ;
        if (fstat(lowest, &there) != 0)
            lost++;
        else
            close(lowest);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    printf("%d wrong, %d lost, %d refused\n", wrong, lost, refused);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (strcmp(argv[1], "child") == 0) {
        map_again(8 * MIB, 1);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid > 0)
            return ended(pid);
    }
    use_numbers();
    return 0;
}
