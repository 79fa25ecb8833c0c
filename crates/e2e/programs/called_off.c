/* A program limits or filters itself, or forks, just when another thread of it asks for much memory for the first time:
 * called_off WAY, of which each try runs this program anew, with another moment. */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { TRIES = 16, THREADS = 2 };

static atomic_int stop;

static void *use_memory(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed + getpid();
    while (!atomic_load(&stop)) {
        size_t bytes = (2 + rand_r(&state) % 40) * MIB;
        char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            continue;
        memset(at, 1, bytes / 8);
        munmap(at, bytes);
    }
    return NULL;
}

static void limit_and_map(void)
{
    struct rlimit limit = { (rlim_t)8 << 30, RLIM_INFINITY };
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHECK(malloc(100 * MIB) != NULL);
}

static void fork_and_limit(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        limit_and_map();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Only what such a program does by itself is allowed to all threads. */
static void filter(void)
{
    static const short allowed[] = { SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_write, SYS_exit, SYS_clock_nanosleep,
                                     SYS_getpid, SYS_rseq, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_futex };
    enum { N = sizeof allowed / sizeof *allowed };
    struct sock_filter lines[2 * N + 5], *end = lines;
    *end++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (size_t i = 0; i < N; i++) {
        *end++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    *end++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1);
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = { (unsigned short)(end - lines), lines };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    struct timespec moment = { 0, 5000000 };
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &moment, NULL);
    syscall(SYS_exit_group, 0);
}

static const struct way ways[] = {
    { "limit", limit_and_map },
    { "fork", fork_and_limit },
    { "filter", filter },
    { NULL, NULL },
};

static void try_once(const char *word, int moment_us)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_memory, (void *)i) == 0);
    usleep(moment_us);
    run_way(word, ways);
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 2);
    if (argc > 2) {
        try_once(argv[1], atoi(argv[2]));
        return 0;
    }
    int failed = 0;
    for (int i = 0; i < TRIES; i++) {
        char moment[16];
        snprintf(moment, sizeof moment, "%d", i * i * 20);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execl("/proc/self/exe", "called_off", argv[1], moment, NULL);
            _exit(8);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        failed += status != 0;
    }
    printf("%d failed\n", failed);
    return 0;
}
