/* A child that shares its parent's memory confines itself, and goes on: "strict" may only write and exit, "filter" may make few
 * calls, "limit" has a limit of address space. It makes no call that it has not made itself, and its parent is as before. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const char *way;
static char stack[256 << 10];
static char *given;
static int done;

static int is(const char *what) { return strcmp(way, what) == 0; }

#define ALLOW(call)                                  \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), \
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void set_filter(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
        ALLOW(SYS_mremap), ALLOW(SYS_brk), ALLOW(SYS_mprotect), ALLOW(SYS_madvise),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* One that the kernel refuses changes nothing. */
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static int child(void *unused)
{
    (void)unused;
    if (is("strict")) {
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
        given = realloc(given, 2 * MIB);
        free(given);
        done = 1;
        syscall(SYS_exit, 0);
    }
    if (is("filter"))
        set_filter();
    if (is("limit")) {
        struct rlimit limit = {1 << 30, 1 << 30};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    }
    CHECK((given = realloc(given, 2 * MIB)) && is_filled(given, 2 * MIB, 1));
    free(given);
    char *block = malloc(5 * MIB), *small = malloc(300000);
    CHECK(block && small);
    fill(block, 5 * MIB, 2);
    char *at = map(8 * MIB);
    CHECK(is_zero(at, 8 * MIB) && is_filled(block, 5 * MIB, 2));
    CHECK(munmap(at, 8 * MIB) == 0);
    free(block);
    free(small);
    if (is("limit"))
        CHECK(!malloc((size_t)2 << 30) && errno == ENOMEM);
    done = 1;
    _exit(0);
}

static long resident(void)
{
    long all, here;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &here) == 2);
    fclose(file);
    return here * 4096 / (long)MIB;
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    way = argv[1];
    /* Without a second argument the engine has not started yet when the child asks. */
    if (argc > 2)
        take_and_give(1, 8, 8);
    given = malloc(3 * MIB);
    fill(given, 3 * MIB, 1);
    int status;
    pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    CHECK(waitpid(pid, &status, 0) == pid);
    printf("%s: status %x, %s\n", way, status, done ? "done" : "cut off");
    take_and_give(2, 20, 8);
    for (int i = 0; i < 200; i++) {
        char *volatile block = malloc(3 * MIB);
        CHECK(block);
        memset(block, i, 3 * MIB);
        free(block);
    }
    /* What is freed does not add up, but for the budget. */
    printf("%s\n", resident() < 400 ? "little" : "much");
}
