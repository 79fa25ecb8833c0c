/* A process has a record lock, gives memory back, and takes its descriptors to a table of its own, which it has
 * already: the lock stays, whatever starts in the process at that moment. */
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { TRIALS = 80, FIRST = 100000 };

extern int close_range(unsigned int, unsigned int, int) __attribute__((weak));

static struct flock whole(int type)
{
    return (struct flock){ .l_type = (short)type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
}

static void by_function(void)
{
    if (close_range != NULL)
        CHECK(close_range(FIRST, ~0U, CLOSE_RANGE_UNSHARE) == 0 || errno == ENOSYS);
}

static void by_syscall(void)
{
    CHECK(syscall(SYS_close_range, FIRST, ~0U, CLOSE_RANGE_UNSHARE) == 0 || errno == ENOSYS);
}

static void by_unshare(void)
{
    CHECK(unshare(CLONE_FILES) == 0);
}

static void in_a_handler(int signal)
{
    (void)signal;
    by_function();
}

static void by_handler(void)
{
    CHECK(signal(SIGUSR1, in_a_handler) != SIG_ERR && raise(SIGUSR1) == 0);
}

/* Another process asks. */
static int is_locked(int fd)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct flock lock = whole(F_WRLCK);
        CHECK(fcntl(fd, F_GETLK, &lock) == 0);
        _exit(lock.l_type == F_WRLCK ? 1 : 2);
    }
    int status = ended(pid);
    CHECK(status == 1 || status == 2);
    return status == 1;
}

static int stays_locked(const char *name, void (*leave)(void), int i)
{
    int fd = open(name, O_RDWR);
    struct flock lock = whole(F_WRLCK);
    CHECK(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
    char *volatile block = malloc(20 * MIB);
    CHECK(block != NULL);
    fill(block, 20 * MIB, i);
    free(block);
    /* The other thread has come more or less far. */
    for (volatile int k = 0; k < i % 20 * 250; k++)
        ;
    leave();
    usleep(2000);
    return is_locked(fd);
}

static void run(void (*leave)(void))
{
    char name[] = "lock-XXXXXX";
    int fd = mkstemp(name), lost = 0;
    CHECK(fd >= 0 && close(fd) == 0);
    take_and_give(1, 2, 4);
    for (int i = 0; i < TRIALS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(stays_locked(name, leave, i) ? 0 : 3);
        int status = ended(pid);
        CHECK(status == 0 || status == 3);
        lost += status == 3;
    }
    CHECK(unlink(name) == 0);
    printf("lost %d of %d\n", lost, TRIALS);
}

static void function(void) { run(by_function); }
static void call(void) { run(by_syscall); }
static void namespace(void) { run(by_unshare); }
static void handler(void) { run(by_handler); }

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    run_way(argv[1], (struct way[]){
        { "function", function }, { "syscall", call }, { "unshare", namespace }, { "handler", handler }, { NULL, NULL },
    });
    return 0;
}
