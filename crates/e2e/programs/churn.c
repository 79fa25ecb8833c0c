/* Memory that comes and goes at random, by a seed: churn SEED LIVE-MIB OPERATIONS [TASKS].
 * Blocks of 16K to 32M by malloc, calloc and realloc, and mappings; eight times as large with more than 1024 MIB. They are
 * touched throughout, here and there, or not at all, and given back in any order, by three threads, one after the other,
 * so that each run asks for the same. What is kept is verified. With TASKS, a file of a control group, it first joins
 * that. The largest resident memory, in KiB, goes to stderr. */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "check.h"

enum { THREADS = 3, THINGS = 256, PAGE = 4096 };

static struct thing { unsigned char *at; size_t bytes; size_t stride; size_t touched; int mapped; unsigned char tag; } things[THINGS];
static uint64_t state;
static size_t live, most, left;
static uint64_t sum;
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_over = PTHREAD_COND_INITIALIZER;
static int turn;

static uint64_t any(uint64_t n) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (state >> 11) % n;
}

static size_t size(void) {
    /* More than a gigabyte takes larger things. */
    unsigned larger = most > 1 << 30 ? 3 : 0;
    size_t order = 14 + larger + any(12);
    size_t bytes = ((size_t)1 << order) / 2 + any((size_t)1 << order);
    size_t largest = (size_t)(32 << 20) << larger;
    return bytes < 16384 ? 16384 : bytes > largest ? largest : bytes;
}

/* What of a thing counts as touched, at most. */
static size_t weight(struct thing *t, size_t bytes) {
    return t->stride == 0 ? 0 : bytes / (t->stride > PAGE ? t->stride / PAGE : 1);
}

static void touch(struct thing *t, size_t from) {
    if (t->stride == 0) return;
    for (size_t i = (from + t->stride - 1) / t->stride * t->stride; i < t->bytes; i += t->stride)
        t->at[i] = t->tag;
}

static void verify(struct thing *t) {
    if (t->stride == 0) return;
    for (size_t i = 0; i < t->bytes; i += t->stride) {
        CHECK(t->at[i] == t->tag);
        sum = sum * 31 + t->at[i];
    }
}

static void drop(struct thing *t) {
    verify(t);
    live -= t->touched;
    if (t->mapped) munmap(t->at, t->bytes); else free(t->at);
    memset(t, 0, sizeof *t);
}

static void make(struct thing *t) {
    static const size_t strides[] = {PAGE, PAGE, PAGE, PAGE, 512, 2 * PAGE, 16 * PAGE, 700 * 1024, 0};
    t->bytes = size();
    t->stride = strides[any(9)];
    t->tag = 1 + any(255);
    t->touched = weight(t, t->bytes);
    if (live + t->touched > most) { memset(t, 0, sizeof *t); return; }
    uint64_t how = any(3);
    t->mapped = how == 2;
    if (how == 2) {
        t->bytes = (t->bytes + PAGE - 1) / PAGE * PAGE;
        t->at = mmap(0, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(t->at != MAP_FAILED);
    } else {
        t->at = how == 1 ? calloc(1, t->bytes) : malloc(t->bytes);
        CHECK(t->at != 0);
    }
    live += t->touched;
    touch(t, 0);
}

static void resize(struct thing *t) {
    size_t bytes = size(), touched = weight(t, bytes);
    if (t->mapped || live - t->touched + touched > most) return;
    size_t old = t->bytes;
    t->at = realloc(t->at, bytes);
    CHECK(t->at != 0);
    live += touched - t->touched;
    t->touched = touched;
    t->bytes = bytes;
    if (bytes > old) touch(t, old);
}

static void operate(void) {
    struct thing *t = &things[any(THINGS)];
    uint64_t what = any(100);
    if (what < 1) {
        for (int i = 0; i < THINGS; i++) if (things[i].at && any(4)) drop(&things[i]);
    } else if (!t->at) make(t);
    else if (what < 30) resize(t);
    else drop(t);
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    pthread_mutex_lock(&turn_lock);
    for (;;) {
        while (turn != me) pthread_cond_wait(&turn_over, &turn_lock);
        for (int i = 0; i < 16 && left > 0; i++, left--) operate();
        turn = (me + 1) % THREADS;
        pthread_cond_broadcast(&turn_over);
        if (left == 0) break;
    }
    pthread_mutex_unlock(&turn_lock);
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 4 || argc == 5);
    if (argc == 5) {
        FILE *tasks = fopen(argv[4], "w");
        CHECK(tasks && fprintf(tasks, "%d", getpid()) > 0 && fclose(tasks) == 0);
    }
    state = strtoull(argv[1], 0, 10) * 0x9E3779B97F4A7C15u + 1;
    most = strtoull(argv[2], 0, 10) << 20;
    left = strtoull(argv[3], 0, 10);
    /* Each block is a mapping of its own, so that what is given back is gone: the hardest peak to keep to. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("%llu\n", (unsigned long long)sum);
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6)) fprintf(stderr, "%ld\n", strtol(line + 6, 0, 10));
    return 0;
}
