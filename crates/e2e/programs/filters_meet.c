/* Threads set filters at the same time ("both"), or beside a thread that limits, locks or unshares ("limit", "lock",
 * "unshare"). The filters forbid calls that the program does not make, of all its threads. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

enum { CHILDREN = 8, BLOCKS = 8 };
#define FORBID(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static volatile int begun, go, done;
static char how;

static void spin_us(long us)
{
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < us);
}

/* A thread that is being made when a filter comes makes calls of its own, and so does the one that makes it. */
static void begin(void)
{
    __sync_fetch_and_add(&begun, 1);
    while (!go)
        ;
}

static void end(void)
{
    __sync_fetch_and_add(&done, 1);
    for (;;)
        pause();
}

static void *filters(void *us)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(rt_sigprocmask), FORBID(madvise), FORBID(munmap), FORBID(mmap), FORBID(mremap), FORBID(tgkill),
        FORBID(process_vm_readv), FORBID(getpid),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    begin();
    spin_us((long)us);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    end();
    return NULL;
}

static void *confines(void *unused)
{
    struct rlimit limit = { 1ul << 45, RLIM_INFINITY };
    (void)unused;
    begin();
    if (how == 'l' && setrlimit(RLIMIT_AS, &limit))
        _exit(8);
    if (how == 'k')
        mlockall(MCL_ONFAULT | MCL_FUTURE);
    if (how == 'u')
        unshare(0);
    end();
    return NULL;
}

static void child(long us)
{
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(40 * MIB)));
        fill(blocks[i], 40 * MIB, i);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, filters, (void *)us) == 0);
    CHECK(how == 'b' ? pthread_create(&thread, NULL, filters, (void *)(us / 2)) == 0
                     : pthread_create(&thread, NULL, confines, NULL) == 0);
    while (begun < 2)
        sched_yield();
    go = 1;
    struct timespec moment = { 0, 1000000 };
    while (done < 2)
        nanosleep(&moment, NULL);
    moment.tv_nsec = 20000000;
    nanosleep(&moment, NULL);
    syscall(SYS_exit_group, 0);
}

int main(int n, char **args)
{
    const char *name = n > 1 ? args[1] : "both";
    how = strcmp(name, "lock") ? name[0] : 'k';
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            child(i * 150);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status) {
            dprintf(2, "%s %d: status %x\n", name, i, status);
            return 1;
        }
    }
    puts("filtered");
}
