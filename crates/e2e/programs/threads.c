/* Many threads at once, each with a large block of its own, freed by its neighbour. */
#include "check.h"
#include <pthread.h>

#define THREADS 2000
#define BYTES 300000

static char *blocks[THREADS];
static pthread_barrier_t all;

static void *work(void *arg)
{
    size_t i = (size_t)arg;
    blocks[i] = i % 2 ? malloc(BYTES) : calloc(1, BYTES);
    CHECK(blocks[i] && (i % 2 || is_zero(blocks[i], BYTES)));
    blocks[i][0] = (char)i;
    blocks[i][BYTES - 1] = (char)(i >> 8);
    pthread_barrier_wait(&all);
    size_t next = (i + 1) % THREADS;
    CHECK(blocks[next][0] == (char)next && blocks[next][BYTES - 1] == (char)(next >> 8));
    free(blocks[next]);
    return NULL;
}

int main(void)
{
    static pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], &small, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("done");
}
