/* A handler that interrupts malloc and free makes calls about memory: "fixed" (mremap), "limit", "unmap". In the handler and
 * afterwards the thread takes the signals that it takes in a plain run. */
#include "check.h"
#include <sys/resource.h>
#include <sys/time.h>

enum { SIGNALS = 300, BLOCK = 1000000 };

static volatile int taken, held;
static char how, *here, *there;

static int is_held(int signal)
{
    sigset_t now;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
    return sigismember(&now, signal);
}

static void fixed(void)
{
    CHECK(mremap(here, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
    char *moved = there;
    there = mmap(here, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(there == here);
    here = moved;
}

static void limit(void)
{
    struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
}

static void unmap(void)
{
    CHECK(munmap(here, 8 * MIB) == 0);
    here = map(8 * MIB);
    here[0] = 1;
}

static void handler(int signal)
{
    (void)signal;
    (how == 'f' ? fixed : how == 'l' ? limit : unmap)();
    held |= is_held(SIGTERM);
    struct itimerval never = { 0 };
    // On a slow machine there would be no time between two of them.
    if (++taken == SIGNALS)
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

int main(int n, char **args)
{
    how = n > 1 ? args[1][0] : 'f';
    here = map(8 * MIB);
    fill(here, 8 * MIB, 1);
    there = map(4096);
    struct sigaction action = { .sa_handler = handler };
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = { { 0, 97 }, { 0, 97 } };
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (taken < SIGNALS) {
        for (int i = 0; i < 50; i++) {
            volatile char *block = malloc(BLOCK);
            CHECK(block);
            block[0] = 1;
            free((void *)block);
        }
        CHECK(!is_held(SIGALRM));
    }
    CHECK(!held);
    puts("taken");
}
