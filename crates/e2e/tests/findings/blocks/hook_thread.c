/* A hook of fork starts a thread and waits for it; the thread asks for a large block. Which side: the argument. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *worker(void *a)
{
    char *p = malloc(1 << 20);
    p[0] = 1;
    free(p);
    return a;
}

static void again(void)
{
    pthread_t t;
    pthread_create(&t, NULL, worker, NULL);
    pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
    const char *side = argc > 1 ? argv[1] : "";
    pthread_atfork(strcmp(side, "prepare") ? NULL : again, strcmp(side, "parent") ? NULL : again,
                   strcmp(side, "child") ? NULL : again);
    free(malloc(1 << 20));
    pid_t c = fork();
    if (c == 0)
        _exit(0);
    int st;
    waitpid(c, &st, 0);
    printf("child ended: %d\n", WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st));
}
