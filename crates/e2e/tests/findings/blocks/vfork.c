/* A child of vfork makes the first large request of its parent's memory, which the parent goes on with: what it frees goes back to the
 * kernel in time. In a program from its start, and in a forked child. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "resident.h"

static void use(size_t n)
{
    char *p = malloc(n);
    memset(p, 1, n);
    free(p);
}

static void go_on(const char *who)
{
    pid_t c = vfork();
    if (c == 0) {
        use(4 << 20);
        _exit(0);
    }
    waitpid(c, NULL, 0);
    use(64 << 20);
    while (rss() > 40)
        usleep(50000);
    printf("%s: given back\n", who);
    fflush(stdout);
}

int main(void)
{
    go_on("program");
    pid_t c = fork();
    if (c == 0) {
        go_on("child");
        _exit(0);
    }
    int st;
    waitpid(c, &st, 0);
    printf("%d\n", st);
}
