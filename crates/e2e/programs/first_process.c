/* Process 1 of a PID namespace has children that are process 1 of others, and share its memory. So do grandchildren
 * that are process 2, as the one is whose memory they share. /proc is that of before, is mounted anew, or each child
 * mounts its own. */
#include "check.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

enum { STACK = 256 << 10 };

/* The number of the process whose memory it is, and of those that share it. */
static int number = 1;
static int mounts_own;

static void mount_proc(void)
{
    CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
}

static void begin(void)
{
    CHECK(getpid() == number);
    if (mounts_own)
        mount_proc();
}

static int uses_memory(void *seed)
{
    begin();
    take_and_give((int)(intptr_t)seed, 4, 6);
    _exit(0);
}

/* Is ended in the midst of its work. The C library's own blocks would not survive that. */
static int goes_on(void *seed)
{
    begin();
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
    pid_t pid = clone(does, stack + STACK, flags | CLONE_VM | SIGCHLD, (void *)(intptr_t)i);
    CHECK(pid > 1);
    if (does == goes_on) {
        usleep(3000 + 1000 * i);
        CHECK(kill(pid, SIGKILL) == 0 && ended(pid) == 256 + SIGKILL);
    } else {
        CHECK(ended(pid) == 0);
    }
}

static int is_killed;

/* Is process 1, and has a child that is process 2. */
static int between(void *i)
{
    CHECK(getpid() == 1);
    child(is_killed ? goes_on : uses_memory, is_killed ? 0 : CLONE_VFORK, (int)(intptr_t)i);
    _exit(0);
}

static void children(int is_started)
{
    static char *stack;
    int flags = CLONE_NEWPID | (mounts_own ? CLONE_NEWNS : 0);
    CHECK(getpid() == number);
    if (is_started)
        take_and_give(1, 8, 6);
    for (int i = 0; i < 5; i++) {
        if (number == 2) {
            if (stack == NULL)
                stack = malloc(STACK);
            int all = flags | CLONE_VM | CLONE_VFORK | SIGCHLD;
            pid_t pid = clone(between, stack + STACK, all, (void *)(intptr_t)i);
            CHECK(pid > 2 && ended(pid) == 0);
        } else if (is_killed) {
            child(goes_on, flags, i);
        } else {
            child(uses_memory, flags | CLONE_VFORK, i);
        }
        take_and_give(i, 8, 6);
        CHECK(setuid(0) == 0);
        usleep(2000);
    }
    CHECK(mlockall(MCL_CURRENT) == 0 && munlockall() == 0);
}

int main(int argc, char **argv)
{
    signal(SIGALRM, hangs);
    CHECK(argc == 4 || argc == 5);
    is_killed = argv[2][0] == 'k';
    mounts_own = strcmp(argv[3], "own") == 0;
    int is_second = strcmp(argv[3], "second") == 0;
    if (argc == 5 && is_second && getpid() == 1) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            execv("/proc/self/exe", argv);
            _exit(8);
        }
        return ended(pid);
    }
    if (argc == 5) {
        number = 1 + is_second;
        /* Behind the start. */
        if (strcmp(argv[3], "anew") == 0) {
            if (argv[1][0] == 's')
                take_and_give(1, 2, 6);
            mount_proc();
        }
        children(argv[1][0] == 's');
        return 0;
    }
    long pid = syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0 && errno == EPERM)
        return puts("no right to a namespace") < 0;
    CHECK(pid >= 0);
    if (pid == 0) {
        /* The limit of a hang. */
        alarm(20);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], "first", NULL);
        _exit(8);
    }
    return ended((pid_t)pid);
}
