/* A handler that interrupts mmap and munmap does not come back: it jumps out. Threads map as before. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/time.h>

#define BYTES (4 * MIB)
enum { JUMPS = 4, CHILDREN = 60 };

static sigjmp_buf start;
static volatile sig_atomic_t armed, jumps;

static void jump(int signal)
{
    if (armed) {
        armed = 0;
        jumps++;
        siglongjmp(start, signal);
    }
}

static void *other(void *arg)
{
    map_again(BYTES, 2);
    return arg;
}

static void child(unsigned seed)
{
    map_again(BYTES, 1);
    signal(SIGALRM, jump);
    long us = 50 + seed * 37 % 200;
    struct itimerval often = { { 0, us }, { 0, us } }, never = { 0 };
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (jumps < JUMPS)
        if (sigsetjmp(start, 1) == 0)
            for (armed = 1;;) {
                char *at = map(BYTES);
                at[1] = at[BYTES - 1] = 1;
                munmap(at, BYTES);
            }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pid_t last = fork();
    CHECK(last >= 0);
    map_again(BYTES, 3);
    if (last == 0)
        _exit(0);
    CHECK(ended(last) == 0);
}

int main(void)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t one = fork();
        CHECK(one >= 0);
        if (one == 0) {
            child(i);
            _exit(0);
        }
        CHECK(ended(one) == 0);
    }
    map_again(BYTES, 4);
    puts("done");
}
