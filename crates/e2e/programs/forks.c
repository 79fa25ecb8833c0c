/* The ways to make a process, while memory comes and goes: fork, the bare system call, vfork, posix_spawn; with
 * "threads", fork while other threads allocate. */
#include "check.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>

#define BYTES (12 * MIB)

extern char **environ;
static char *inherited;
static volatile int over;

static void churn(int seed)
{
    take_and_give(seed, 4, 7);
}

static void child(int seed)
{
    CHECK(is_filled(inherited, BYTES, 77));
    fill(inherited, BYTES, 78);
    churn(seed);
    CHECK(is_filled(inherited, BYTES, 78));
    _exit(seed % 200);
}

static void by_fork(int seed, int bare)
{
    pid_t pid = bare ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(seed);
    churn(seed + 1);
    CHECK(ended(pid) == seed % 200);
    CHECK(is_filled(inherited, BYTES, 77));
}

static void by_exec(int seed)
{
    char number[16];
    snprintf(number, sizeof number, "%d", seed);
    char *args[] = { "/proc/self/exe", "exit", number, NULL };
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execv(args[0], args);
        _exit(99);
    }
    CHECK(ended(pid) == seed);
    CHECK(posix_spawn(&pid, args[0], NULL, NULL, args, environ) == 0);
    CHECK(ended(pid) == seed);
}

static void *busy(void *arg)
{
    for (int i = 0; !over; i++)
        churn(i);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        churn(3);
        return atoi(argv[2]);
    }
    int threaded = argc > 1 && strcmp(argv[1], "threads") == 0;
    pthread_t threads[3];
    inherited = map(BYTES);
    fill(inherited, BYTES, 77);
    for (int i = 0; threaded && i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    for (int i = 0; i < 12; i++) {
        by_fork(i, 0);
        if (!threaded) {
            by_fork(i, 1);
            by_exec(i);
        }
    }
    over = 1;
    for (int i = 0; threaded && i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(is_filled(inherited, BYTES, 77));
    puts("done");
}
