/* One thread forks, two read long lines by getline, one calls fflush(NULL): the C library takes its list of files after the
 * hooks of fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static char path[] = "/tmp/faultless-stdio-XXXXXX";

static void *forks(void *a)
{
    while (!stop) {
        pid_t p = fork();
        if (!p)
            _exit(17);
        waitpid(p, 0, 0);
    }
    return a;
}

static void *reads(void *a)
{
    FILE *f = fopen(path, "r");
    while (!stop) {
        char *l = 0;
        size_t n = 0;
        rewind(f);
        if (getline(&l, &n, f) < 0)
            abort();
        free(l);
    }
    fclose(f);
    return a;
}

static void *flushes(void *a)
{
    while (!stop)
        fflush(NULL);
    return a;
}

int main(void)
{
    FILE *f = fdopen(mkstemp(path), "w");
    for (int i = 0; i < 600000; i++)
        fputc('x', f);
    fputc('\n', f);
    fclose(f);
    pthread_t t[4];
    pthread_create(t, 0, forks, 0);
    pthread_create(t + 1, 0, reads, 0);
    pthread_create(t + 2, 0, reads, 0);
    pthread_create(t + 3, 0, flushes, 0);
    usleep(1500000);
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    unlink(path);
    puts("ended");
}
