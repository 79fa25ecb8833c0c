/* Confines itself while an operation on memory is under way: in a handler that may have interrupted one ("limit",
 * "filter", "namespace"), or beside two threads with blocks ("blocks") or mappings ("maps"). Each of many children does that once,
 * at another moment. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define CHILDREN 40
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static volatile int begun, done;

/* The calls that a plain program makes here. */
static void filter(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(brk), ALLOW(mprotect), ALLOW(madvise), ALLOW(futex),
        ALLOW(write), ALLOW(exit_group), ALLOW(rt_sigreturn), ALLOW(rt_sigprocmask), ALLOW(clock_nanosleep),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

static void limit_in_handler(int signal)
{
    struct rlimit limit = { (size_t)1 << 30, (size_t)1 << 30 };
    (void)signal;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    done = 1;
}

static void filter_in_handler(int signal)
{
    (void)signal;
    filter();
    done = 1;
}

static void leave_in_handler(int signal)
{
    (void)signal;
    CHECK(unshare(CLONE_NEWUSER) == 0);
    done = 1;
}

/* Blocks and mappings of 1 to 16 MiB, until something is done. */
static void use_blocks(uint64_t seed)
{
    while (!done) {
        seed = seed * 6364136223846793005u + 1;
        size_t bytes = ((seed >> 33) % 16 + 1) * MIB;
        char *block = calloc(1, bytes);
        CHECK(block && block[0] == 0 && block[bytes - 1] == 0);
        block[0] = 1;
        CHECK((block = realloc(block, 2 * bytes)) && block[0] == 1);
        free(block);
    }
}

/* A thread that begins, and its first block, take calls that the filter forbids. */
static void begin(void)
{
    free(malloc(3 * MIB));
    __sync_fetch_and_add(&begun, 1);
}

static void *use_blocks_beside(void *seed)
{
    begin();
    use_blocks((uintptr_t)seed);
    return NULL;
}

static void *use_maps_beside(void *seed)
{
    begin();
    for (uint64_t n = (uintptr_t)seed; !done;) {
        n = n * 6364136223846793005u + 1;
        size_t bytes = ((n >> 33) % 16 + 1) * MIB;
        char *at = map(bytes);
        CHECK(at[0] == 0);
        at[0] = 1;
        CHECK(munmap(at, bytes) == 0);
    }
    return NULL;
}

static void interrupt(void (*handler)(int), int i)
{
    struct itimerval in = { { 0, 0 }, { 0, 5000 + i * 173 % 4000 } };
    CHECK(signal(SIGALRM, handler) != SIG_ERR && setitimer(ITIMER_REAL, &in, NULL) == 0);
    use_blocks(i);
}

static void filter_beside(void *(*use)(void *), int i)
{
    for (uintptr_t n = 1; n <= 2; n++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use, (void *)(n * 100 + i)) == 0);
    }
    while (begun < 2)
        sched_yield();
    usleep(20000 + i * 173 % 4000);
    filter();
    usleep(5000);
}

static void confine(const char *how, int i)
{
    for (int n = 0; n < 3; n++) {
        char *block = malloc(16 * MIB);
        CHECK(block);
        memset(block, 1, 16 * MIB);
        free(block);
    }
    if (strcmp(how, "limit") == 0)
        interrupt(limit_in_handler, i);
    else if (strcmp(how, "filter") == 0)
        interrupt(filter_in_handler, i);
    else if (strcmp(how, "namespace") == 0)
        interrupt(leave_in_handler, i);
    else
        filter_beside(strcmp(how, "blocks") == 0 ? use_blocks_beside : use_maps_beside, i);
    for (int n = 0; n < 20; n++) {
        char *block = malloc(16 * MIB);
        CHECK(block);
        fill(block, MIB, n);
        if (n % 2)
            free(block);
    }
    CHECK(munmap(map(256 * MIB), 256 * MIB) == 0);
    _exit(5);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) == 0);
    if (ended(pid) == 1 || strcmp(argv[1], "namespace") != 0) {
        for (int i = 0; i < CHILDREN; i++) {
            CHECK((pid = fork()) >= 0);
            if (pid == 0)
                confine(argv[1], i);
            CHECK(ended(pid) == 5);
        }
    }
    puts("done");
}
