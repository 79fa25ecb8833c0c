/* On which nodes of a machine the memory of a program lies: a line for each case, with what lies elsewhere than the
 * kernel alone would put it. With an argument also how often memory is new when it
 * is asked for again: that of blocks is not, or nothing was tried here. Whether mappings get huge pages, which alone
 * move, is up to what these cost. Runs in a machine with two
 * nodes (`cargo xtask nodes`). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEFAULT = 0, BIND = 2, INTERLEAVE = 3, STRICT = 1 };
#define MIB (1ul << 20)
#define BYTES (8 * MIB)
#define PAGE 4096ul

static int failures;

/* Pages of a block on another node than `node`. Linux 6.1 does not say where a page lies while NUMA balancing waits for
 * its next access: then the page is read, and the question asked again. */
static long elsewhere(void *at, size_t bytes, int node) {
    size_t n = bytes / PAGE;
    void **pages = mmap(0, n * sizeof *pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int *status = mmap(0, n * sizeof *status, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < n; i++) pages[i] = (void *)(((size_t)at + PAGE - 1) / PAGE * PAGE + i * PAGE);
    if (((size_t)at & (PAGE - 1)) != 0) n--;
    long wrong = 0, silent;
    for (int tries = 0; tries < 10; tries++) {
        if (syscall(SYS_move_pages, 0, n, pages, 0, status, 0)) abort();
        wrong = silent = 0;
        for (size_t i = 0; i < n; i++) {
            wrong += status[i] != node;
            if (status[i] >= 0) continue;
            silent++;
            (void)*(volatile char *)pages[i];
        }
        if (!silent) break;
    }
    munmap(pages, bytes / PAGE * sizeof *pages);
    munmap(status, bytes / PAGE * sizeof *status);
    return wrong;
}

static void on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) abort();
}

static long faults(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_minflt;
}

static void tell(const char *name, long wrong) {
    printf("%s: %ld pages elsewhere\n", name, wrong);
    failures += wrong != 0;
}

static void *map(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *blocks(void *cpu) {
    int node = (int)(long)cpu;
    on(node);
    long wrong = 0;
    for (int i = 0; i < 12; i++) {
        char *block = i % 2 ? calloc(1, BYTES) : malloc(BYTES);
        memset(block, 1, BYTES);
        wrong += elsewhere(block, BYTES, node);
        block = realloc(block, 3 * BYTES);
        memset(block, 2, 3 * BYTES);
        wrong += elsewhere(block, 3 * BYTES, node);
        free(block);
    }
    return (void *)wrong;
}

static void *mappings(void *cpu) {
    int node = (int)(long)cpu;
    on(node);
    long wrong = 0;
    for (int i = 0; i < 12; i++) {
        char *at = map(BYTES);
        memset(at, 1, BYTES);
        wrong += elsewhere(at, BYTES, node);
        madvise(at, BYTES, MADV_DONTNEED);
        memset(at, 1, BYTES);
        wrong += elsewhere(at, BYTES, node);
        munmap(at, BYTES);
        usleep(i * 1000);
    }
    return (void *)wrong;
}

static void both(const char *name, void *(*of)(void *)) {
    pthread_t threads[2];
    long wrong = 0;
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, of, (void *)i);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (long)result;
    }
    tell(name, wrong);
}

/* What one node's thread gives back, a thread of the other asks for. */
static void passed_on(void) {
    long wrong = 0;
    for (int i = 0; i < 16; i++) {
        on(i % 2);
        char *at = map(BYTES), *block = malloc(BYTES);
        memset(at, 1, BYTES);
        memset(block, 1, BYTES);
        wrong += elsewhere(at, BYTES, i % 2) + elsewhere(block, BYTES, i % 2);
        on(!(i % 2));
        munmap(at, BYTES);
        free(block);
    }
    tell("given back by the other", wrong);
}

static void idle(void) {
    on(0);
    void *at[4];
    for (int i = 0; i < 4; i++) memset(at[i] = i % 2 ? map(BYTES) : malloc(BYTES), 1, BYTES);
    for (int i = 0; i < 4; i++) i % 2 ? (void)munmap(at[i], BYTES) : free(at[i]);
}

static void of_thread(void) {
    unsigned long second = 2;
    idle();
    if (syscall(SYS_set_mempolicy, BIND, &second, 64)) abort();
    char *at = map(BYTES), *block = malloc(BYTES), *zero = calloc(1, BYTES);
    memset(at, 1, BYTES);
    memset(block, 1, BYTES);
    memset(zero, 1, BYTES);
    tell("the thread's policy", elsewhere(at, BYTES, 1) + elsewhere(block, BYTES, 1) + elsewhere(zero, BYTES, 1));
    madvise(at, BYTES, MADV_DONTNEED);
    memset(at, 1, BYTES);
    tell("the thread's policy, again", elsewhere(at, BYTES, 1));
    syscall(SYS_set_mempolicy, DEFAULT, 0, 0);
    munmap(at, BYTES);
    free(block);
    free(zero);
}

static void of_memory(unsigned flags, const char *name) {
    unsigned long second = 2;
    long wrong = 0;
    for (int i = 0; i < 5; i++) {
        idle();
        char *at = map(BYTES), *block = malloc(BYTES);
        char *inside = (char *)(((size_t)block + PAGE - 1) & ~(PAGE - 1));
        if (syscall(SYS_mbind, at, BYTES, BIND, &second, 64, flags)) printf("%s: error %d\n", name, errno), failures++;
        if (syscall(SYS_mbind, inside, BYTES - PAGE, BIND, &second, 64, 0)) abort();
        memset(at, 1, BYTES);
        memset(block, 1, BYTES);
        wrong += elsewhere(at, BYTES, 1) + elsewhere(inside, BYTES - PAGE, 1);
        madvise(at, BYTES, MADV_DONTNEED);
        memset(at, 1, BYTES);
        wrong += elsewhere(at, BYTES, 1);
        munmap(at, BYTES);
        free(block);
    }
    tell(name, wrong);
}

/* A program goes slowly through a large mapping, and gives the background thread time. */
static void grows(void) {
    idle();
    on(1);
    char *at = map(64 * MIB);
    for (size_t i = 0; i < 64 * MIB; i += PAGE) {
        at[i] = 1;
        if (i % (4 * MIB) == 0) usleep(2000);
    }
    tell("a mapping that grows", elsewhere(at, 64 * MIB, 1));
    munmap(at, 64 * MIB);
    on(0);
}

static void use(int maps) {
    char *at = maps ? map(BYTES) : malloc(BYTES);
    memset(at, 1, BYTES);
    maps ? (void)munmap(at, BYTES) : free(at);
}

static void recycled(int maps) {
    for (int node = 0; node < 2; node++) {
        on(node);
        for (int i = 0; i < 2; i++) use(maps);
        long before = faults();
        for (int i = 0; i < 10; i++) use(maps);
        long each = (faults() - before) / 10;
        printf("%s on node %d: %ld faults a round\n", maps ? "mappings" : "blocks", node, each);
        failures += !maps && each > 1;
    }
}

int main(int count, char **args) {
    int recycles = count > 1;
    (void)args;
    both("blocks", blocks);
    both("mappings", mappings);
    passed_on();
    of_thread();
    of_memory(0, "a policy of memory");
    of_memory(STRICT, "the same, strict");
    grows();
    for (int maps = 0; maps < 2 && recycles; maps++) recycled(maps);
    puts(failures ? "FAILED" : "all is where it belongs");
    return failures != 0;
}
