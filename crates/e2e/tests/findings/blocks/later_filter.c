/* A program limits its memory, by which the library ends its service, and later forbids itself most system calls, on pain of
 * death. Blocks and mappings of before and after come and go. */
#include "../../../programs/check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(exit_group), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(brk), ALLOW(madvise),
        ALLOW(mprotect), ALLOW(futex), ALLOW(clone), ALLOW(clone3), ALLOW(wait4), ALLOW(set_robust_list), ALLOW(gettid),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(void)
{
    take_and_give(3, 4, 8);
    char *block[6], *mapping = map(9 * MIB);
    for (int i = 0; i < 6; i++) {
        size_t bytes = (i + 1) * MIB / 2;
        block[i] = malloc(bytes);
        fill(block[i], bytes, i);
    }
    fill(mapping, 9 * MIB, 7);
    struct rlimit limit = { 4096 * MIB, RLIM_INFINITY };
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    free(block[5]);
    block[4] = realloc(block[4], 5 * MIB);
    confine();
    CHECK(block[4] && is_filled(block[4], 5 * MIB / 2, 4));
    block[3] = realloc(block[3], 7 * MIB);
    CHECK(block[3] && is_filled(block[3], 2 * MIB, 3));
    for (int i = 0; i < 5; i++)
        free(block[i]);
    CHECK(is_filled(mapping, 9 * MIB, 7) && mprotect(mapping, MIB, PROT_READ) == 0);
    CHECK(madvise(mapping + MIB, MIB, MADV_DONTNEED) == 0 && is_zero(mapping + MIB, MIB));
    CHECK(munmap(mapping, 9 * MIB) == 0);
    take_and_give(5, 6, 8);
    const char *text = "alive\n";
    CHECK(write(1, text, 6) == 6);
    _exit(0);
}
