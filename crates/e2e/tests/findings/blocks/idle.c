/* Memory that was given back before a fork goes back to the kernel in the end, though the program asks for nothing more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "resident.h"

int main(void)
{
    size_t n = 256ul << 20;
    char *p = malloc(n);
    memset(p, 1, n);
    free(p);
    pid_t c = fork();
    if (c == 0) {
        while (rss() > 50)
            usleep(50000);
        _exit(0);
    }
    int st;
    waitpid(c, &st, 0);
    while (rss() > 50)
        usleep(50000);
    printf("given back, %d\n", st);
}
