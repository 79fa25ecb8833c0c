/* A library guards its lock across fork by pthread_atfork, registered before the first large request. Another thread takes that
 * lock and asks for memory while it has it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static volatile int over;

static void lock(void) { pthread_mutex_lock(&m); }
static void unlock(void) { pthread_mutex_unlock(&m); }

static void *other(void *a)
{
    while (!over) {
        lock();
        char *p = malloc(1 << 20), *q = malloc(5 << 20);
        p[0] = q[0] = 1;
        free(p);
        free(q);
        unlock();
        usleep(20);
    }
    return a;
}

int main(void)
{
    pthread_t t;
    pthread_atfork(lock, unlock, unlock);
    free(malloc(1 << 20));
    pthread_create(&t, NULL, other, NULL);
    for (int i = 0; i < 300; i++) {
        pid_t c = fork();
        if (c == 0)
            _exit(0);
        waitpid(c, NULL, 0);
    }
    over = 1;
    pthread_join(t, NULL);
    puts("done");
}
