/* Leaves its surroundings behind: closes descriptors, becomes a daemon, and as root changes root and user; memory comes
 * and goes before and after each. */
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void churn(int seed)
{
    take_and_give(seed, 6, 5);
}

/* A child that churns and ends with `seed`. */
static void child(int seed)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        churn(seed);
        _exit(seed);
    }
    CHECK(ended(pid) == seed);
}

static int descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* The lowest numbers have to stay free for the program. */
static void closes(void)
{
    int out = fcntl(1, F_DUPFD_CLOEXEC, 900);
    CHECK(out >= 900 && syscall(SYS_close_range, 0, out - 1, 0) == 0);
    churn(2);
    CHECK(open("/dev/null", O_RDONLY) == 0);
    churn(3);
    CHECK(dup(out) == 1 && close(out) == 0);
    child(4);
    CHECK(descriptors() == 2);
}

static void becomes_a_daemon(void)
{
    int ends[2];
    char byte = 0;
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        churn(1);
        CHECK(daemon(0, 0) == 0);
        churn(2);
        child(3);
        CHECK(write(ends[1], "k", 1) == 1);
        _exit(0);
    }
    CHECK(ended(pid) == 0 && close(ends[1]) == 0);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'k');
}

static void changes_root_and_user(void)
{
    CHECK(chroot(".") == 0 && chdir("/") == 0);
    churn(1);
    child(2);
    CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    churn(3);
    child(4);
    CHECK(setuid(0) != 0 && geteuid() == 65534);
}

int main(void)
{
    churn(1);
    becomes_a_daemon();
    closes();
    if (geteuid() == 0)
        changes_root_and_user();
    puts("done");
}
