/* Allows itself the few system calls that it makes, by way of argument 1, while memory of all kinds is in use; any
 * other one would end it. Then it frees, unmaps and allocates, with argument 2 in a child as well. With "exec" it
 * forbids calls that a plain program does without, and starts itself again. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define N 12
#define KILL(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine(int by_syscall)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(brk),
        ALLOW(clone), ALLOW(set_robust_list), ALLOW(gettid), ALLOW(wait4),
        ALLOW(write), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_syscall)
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    else
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void forbid_and_start(char *self)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(madvise), KILL(mincore), KILL(clone), KILL(sched_setscheduler), KILL(sched_setaffinity), KILL(fallocate),
        KILL(process_vm_readv), KILL(close_range), KILL(prctl),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    execl(self, self, "started", NULL);
}

static char *blocks[N], *maps[N];
#define BLOCK(i) ((i + 1) * MIB / 2)
#define MAP(i) ((i + 2) * MIB)

static void take(void)
{
    for (int i = 0; i < N; i++) {
        CHECK((blocks[i] = malloc(BLOCK(i))));
        maps[i] = map(MAP(i));
        fill(blocks[i], BLOCK(i), i);
        fill(maps[i], MAP(i), i);
    }
}

static void give(void)
{
    for (int i = 0; i < N; i++) {
        free(blocks[i]);
        CHECK(munmap(maps[i], MAP(i)) == 0);
    }
}

static void use(void)
{
    for (int i = 0; i < N; i++) {
        CHECK(is_filled(blocks[i], BLOCK(i), i) && is_filled(maps[i], MAP(i), i));
        if (i % 3 == 0)
            CHECK((blocks[i] = realloc(blocks[i], (i + 3) * MIB)) && is_filled(blocks[i], BLOCK(i), i));
        if (i % 2)
            CHECK(munmap(maps[i] + MIB, MIB / 2) == 0 && is_filled(maps[i], MIB, i));
        char *block = calloc(3, MIB), *mapping = map(5 * MIB);
        CHECK(block && is_zero(block, 3 * MIB) && is_zero(mapping, 5 * MIB));
        free(block);
        CHECK(munmap(mapping, 5 * MIB) == 0);
    }
    give();
}

int main(int argc, char **argv)
{
    /* The C library's allocator sets itself up. */
    CHECK(argc > 1 && (blocks[0] = malloc(100)));
    free(blocks[0]);
    take();
    give();
    if (strcmp(argv[1], "exec") == 0)
        forbid_and_start(argv[0]);
    take();
    if (strcmp(argv[1], "started") != 0)
        confine(strcmp(argv[1], "syscall") == 0);
    if (argc > 2) {
        pid_t pid = strcmp(argv[2], "bare") == 0 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            use();
            _exit(5);
        }
        CHECK(ended(pid) == 5);
    }
    use();
    CHECK(write(1, "done\n", 5) == 5);
}
