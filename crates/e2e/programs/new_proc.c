/* Process 1 of a PID namespace mounts a /proc of that, and then confines itself, or becomes the root of a namespace of
 * users. With "root" it changes its root directory first, to one with another /proc, or with none. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static char *kept;

/* What the program does behind its filter makes no call but those about its memory. */
static void use_memory(int i)
{
    size_t bytes = (34 + i % 7) * MIB;
    char *volatile block = malloc(bytes), *at = map(bytes);
    CHECK(block != NULL);
    fill(block, bytes, i);
    at[MIB] = 2;
    block = realloc(block, bytes + 4 * MIB);
    CHECK(block != NULL && is_filled(block, bytes, i));
    free(block);
    at = mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED && at[MIB] == 2 && munmap(at, 2 * bytes) == 0);
}

#define KILL(number)                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),  \
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(SYS_ioctl), KILL(SYS_process_vm_readv), KILL(SYS_mincore), KILL(SYS_readlinkat),
        KILL(SYS_rt_sigprocmask), KILL(SYS_getpid), KILL(SYS_gettid), KILL(SYS_madvise), KILL(SYS_futex),
        KILL(SYS_openat), KILL(SYS_fstat), KILL(SYS_prlimit64), KILL(SYS_kcmp),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (int i = 0; i < 3; i++)
        use_memory(i);
    CHECK(is_filled(kept, 40 * MIB, 7));
    free(kept);
    struct timespec rest = { 0, 100000000 };
    nanosleep(&rest, NULL);
    _exit(0);
}

/* The kernel changes only a process with one thread. */
static void user(void)
{
    CHECK(unshare(CLONE_NEWUSER) == 0 || errno == EPERM || errno == ENOSPC);
    for (int i = 0; i < 3; i++)
        use_memory(i);
    _exit(0);
}

static void change_root(int with_proc)
{
    char dir[] = "root-XXXXXX";
    CHECK(mkdtemp(dir) != NULL && mount("tmpfs", dir, "tmpfs", 0, NULL) == 0);
    CHECK(chdir(dir) == 0 && mkdir("proc", 0755) == 0);
    CHECK(!with_proc || mount("proc", "proc", "proc", 0, NULL) == 0);
    CHECK(chroot(".") == 0);
}

int main(int argc, char **argv)
{
    signal(SIGALRM, hangs);
    CHECK(argc == 3 || argc == 4);
    if (argc == 4) {
        kept = malloc(40 * MIB);
        char *volatile idle = malloc(60 * MIB);
        CHECK(getpid() == 1 && kept != NULL && idle != NULL);
        fill(kept, 40 * MIB, 7);
        fill(idle, 60 * MIB, 8);
        CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        if (strcmp(argv[1], "mounted") == 0)
            CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
        else
            change_root(strcmp(argv[1], "root") == 0);
        free(idle);
        run_way(argv[2], (struct way[]){ { "filter", filter }, { "user", user }, { NULL, NULL } });
    }
    long pid = syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
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
