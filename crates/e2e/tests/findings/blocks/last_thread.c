/* The only thread ends by exit(2) proper, not exit_group: the process is over then, with that status. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    pid_t c = fork();
    if (c == 0) {
        size_t n = 64ul << 20;
        char *p = malloc(n);
        memset(p, 1, n);
        free(p);
        syscall(SYS_exit, 5);
    }
    int st;
    waitpid(c, &st, 0);
    printf("exited %d, status %d\n", WIFEXITED(st), WEXITSTATUS(st));
}
