/* Threads map and unmap memory all the time. Meanwhile the process forks, and each child limits its addresses: what its
 * parent's threads had in their hands at that moment does not count. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LIMIT (4096 * MIB)

static volatile int over;

static void *churn(void *arg)
{
    for (int i = 0; !over; i++) {
        size_t bytes = (2 + i % 4 * 2) * MIB;
        char *at = map(bytes);
        fill(at, bytes, i);
        CHECK(is_filled(at, bytes, i));
        CHECK(munmap(at, bytes) == 0);
    }
    return arg;
}

static void child(const char *kept)
{
    CHECK(is_filled(kept, 8 * MIB, 7));
    struct rlimit limit = { LIMIT, LIMIT };
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (int i = 0; i < 2; i++) {
        char *at = map(16 * MIB);
        CHECK(is_zero(at, 16 * MIB));
        fill(at, 16 * MIB, i);
        CHECK(munmap(at, 16 * MIB) == 0);
    }
    _exit(0);
}

int main(void)
{
    pthread_t threads[3];
    char *kept = malloc(8 * MIB);
    fill(kept, 8 * MIB, 7);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < 15; i++) {
        usleep(3000 + i * 37 % 1000);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(kept);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    over = 1;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return puts("each child had room") < 0;
}
