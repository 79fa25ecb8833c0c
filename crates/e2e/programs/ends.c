/* What becomes of a process when one of its threads ends, and the background thread is there. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/ptrace.h>

static pid_t traced, waited;
static int go[2];

/* Returns when the first thread has ended, and its children are another one's. The limit is that of a hang. */
static void await_first_thread(void)
{
    char path[64], line[256], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    alarm(20);
    while (state != 'Z') {
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
        fclose(file);
        state = strrchr(line, ')')[2];
        usleep(1000);
    }
    alarm(0);
}

/* The children of the first thread are this one's now, and no other thread's. */
static void *inherits(void *unused)
{
    (void)unused;
    int status;
    await_first_thread();
    CHECK(waitpid(waited, &status, __WNOTHREAD) == waited && WEXITSTATUS(status) == 4);
    CHECK(write(go[1], "", 1) == 1);
    CHECK(waitpid(traced, &status, 0) == traced && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_CONT, traced, NULL, NULL) == 0);
    CHECK(ended(traced) == 3);
    exit(0);
}

static void children(void)
{
    CHECK(pipe(go) == 0);
    if ((traced = fork()) == 0) {
        char byte;
        CHECK(read(go[0], &byte, 1) == 1 && ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        raise(SIGSTOP);
        _exit(3);
    }
    if ((waited = fork()) == 0)
        _exit(4);
    /* The background thread is older than the program's second one. */
    take_and_give(1, 8, 32);
    usleep(20000);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, inherits, NULL) == 0);
    pthread_exit(NULL);
}

static int uses_memory(void *seed)
{
    take_and_give((int)(intptr_t)seed, 3, 9);
    return (int)(intptr_t)seed;
}

/* The C library ends the one thread of such a child. */
static void cloned(void)
{
    enum { STACK = 1 << 20 };
    char *stack = malloc(STACK);
    /* The limit of a hang. */
    alarm(20);
    take_and_give(1, 4, 8);
    for (int i = 0; i < 40; i++) {
        /* No argument is lost, and no stack need be aligned. */
        pid_t child = clone(uses_memory, stack + STACK - i % 8, SIGCHLD, (void *)(intptr_t)i);
        CHECK(child > 0 && ended(child) == i);
    }
    errno = 0;
    CHECK(clone(NULL, stack + STACK, SIGCHLD, NULL) == -1 && errno == EINVAL);
    CHECK(clone(uses_memory, NULL, SIGCHLD, NULL) == -1 && errno == EINVAL);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (argv[1][0] == 'c' && argv[1][1] == 'h')
        children();
    cloned();
    return 0;
}
