/* Calls behind a filter that forbids what they do not make in a plain run: "limit", "read", "pipe", "advice", "watch", "smaller",
 * "fork". */
#include "check.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define FORBID(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void filter(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(openat), FORBID(process_vm_readv), FORBID(gettid), FORBID(getpid), FORBID(msync), FORBID(futex),
        FORBID(tgkill), FORBID(kcmp), FORBID(mincore), FORBID(rt_sigprocmask), FORBID(mmap), FORBID(madvise),
        FORBID(newfstatat), FORBID(read),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

int main(int n, char **args)
{
    char how = n > 1 ? args[1][0] : 'l';
    int ends[2], self = syscall(SYS_pidfd_open, getpid(), 0), is_read = n > 1 && !strcmp(args[1], "read");
    char *block = malloc(4 * MIB), *at = map(MIB);
    CHECK(block && pipe(ends) == 0 && self >= 0);
    fill(block, 4 * MIB, 3);
    at[0] = 1;
    struct rlimit limit = { 1ul << 46, RLIM_INFINITY };
    struct iovec piece = { at, 4096 };
    struct uffdio_register none = { { 0, 0 }, 0, 0 };
    filter();
    if (is_read)
        CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && prlimit(0, RLIMIT_AS, NULL, &limit) == 0);
    else if (how == 'l')
        CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    else if (how == 'p')
        CHECK(vmsplice(ends[1], &piece, 1, 0) == 4096);
    else if (how == 'a')
        CHECK(syscall(SYS_process_madvise, self, &piece, 1, MADV_COLD, 0) == 4096);
    else if (how == 'w')
        CHECK(ioctl(ends[0], UFFDIO_REGISTER, &none) == -1 && errno == ENOTTY);
    else if (how == 's')
        CHECK((block = realloc(block, 3 * MIB)) && is_filled(block, 3 * MIB, 3));
    else {
        int status;
        pid_t child = fork();
        if (child == 0) {
            free(block);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    write(1, "passed\n", 7);
    _exit(0);
}
