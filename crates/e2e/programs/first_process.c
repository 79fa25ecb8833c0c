/* Process 1 of a PID namespace has children that are process 1 of others, and share its memory. */
#include "check.h"
#include <sched.h>
#include <sys/syscall.h>

enum { STACK = 256 << 10 };

static int uses_memory(void *seed)
{
    CHECK(getpid() == 1);
    take_and_give((int)(intptr_t)seed, 4, 6);
    _exit(0);
}

/* Is ended in the midst of its work. The C library's own blocks would not survive that. */
static int goes_on(void *seed)
{
    for (;;) {
        char *at = map(6 * MIB);
        CHECK(is_zero(at, 6 * MIB));
        fill(at, 6 * MIB, (uintptr_t)seed);
        CHECK(munmap(at, 6 * MIB) == 0);
    }
}

static void child(int (*does)(void *), int flags, int i)
{
    static char *stack;
    if (stack == NULL)
        stack = malloc(STACK);
    pid_t pid = clone(does, stack + STACK, flags | CLONE_VM | CLONE_NEWPID | SIGCHLD, (void *)(intptr_t)i);
    CHECK(pid > 1);
    if (does == goes_on) {
        usleep(3000 + 1000 * i);
        CHECK(kill(pid, SIGKILL) == 0 && ended(pid) == 256 + SIGKILL);
    } else {
        CHECK(ended(pid) == 0);
    }
}

static void first(int is_started, int is_killed)
{
    CHECK(getpid() == 1);
    if (is_started)
        take_and_give(1, 8, 6);
    for (int i = 0; i < 5; i++) {
        if (is_killed)
            child(goes_on, 0, i);
        else
            child(uses_memory, CLONE_VFORK, i);
        take_and_give(i, 8, 6);
        CHECK(setuid(0) == 0);
        usleep(2000);
    }
    CHECK(mlockall(MCL_CURRENT) == 0 && munlockall() == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 || argc == 4);
    if (argc == 4) {
        first(argv[1][0] == 's', argv[2][0] == 'k');
        return 0;
    }
    long pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0 && errno == EPERM)
        return puts("no right to a namespace") < 0;
    CHECK(pid >= 0);
    if (pid == 0) {
        /* The limit of a hang. */
        alarm(20);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "first", NULL);
        _exit(8);
    }
    return ended((pid_t)pid);
}
