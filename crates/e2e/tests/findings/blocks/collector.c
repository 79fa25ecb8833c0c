/* A collector stops another thread by a signal whose handler waits, wherever that thread is, and then asks for memory. The
 * thresholds are fixed, so that the C library takes no lock that both threads share. */
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define MIB (1 << 20)

static sem_t stopped;
static volatile int resume, over;

static void stop(int s)
{
    (void)s;
    int mine = resume;
    sem_post(&stopped);
    while (resume == mine)
        usleep(10);
}

static void *mutator(void *a)
{
    for (unsigned i = 0; !over; i++) {
        char *p = malloc((i % 4 * 2 + 1) * MIB / 2);
        p[0] = 1;
        if (i % 3 == 0)
            p = realloc(p, 6 * MIB);
        free(p);
    }
    return a;
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    signal(SIGUSR1, stop);
    sem_init(&stopped, 0, 0);
    pthread_t t;
    pthread_create(&t, NULL, mutator, NULL);
    usleep(10000);
    for (int i = 0; i < 5000; i++) {
        pthread_kill(t, SIGUSR1);
        sem_wait(&stopped);
        for (int k = 0; k < 3; k++) {
            char *p = malloc((2 * k + 1) * MIB);
            p[0] = 1;
            free(p);
        }
        resume++;
    }
    over = 1;
    pthread_join(t, NULL);
    puts("done");
}
