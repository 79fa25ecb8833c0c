/* A handler leaves mremap by a jump: the mapping is at one place or at the other, as a whole. */
#include "check.h"
#include <setjmp.h>
#include <sys/time.h>

#define BYTES (96 * MIB)

static sigjmp_buf out;
static volatile int armed;

static void leave(int signal)
{
    (void)signal;
    if (armed) {
        armed = 0;
        siglongjmp(out, 1);
    }
}

static int mapped(char *at)
{
    int slots = 0;
    for (size_t i = 0; i < BYTES; i += 2 * MIB)
        slots += madvise(at + i, 4096, MADV_COLD) == 0;
    return slots;
}

int main(void)
{
    struct sigaction action = {.sa_handler = leave};
    sigaction(SIGALRM, &action, NULL);
    char *room = mmap(NULL, 4 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *to = (char *)(((uintptr_t)room + 2 * MIB) & ~(2 * MIB - 1));
    for (volatile int i = 0; i < 300; i++) {
        char *volatile from = map(BYTES);
        for (size_t at = 0; at < BYTES; at += MIB)
            from[at] = 1;
        CHECK(munmap(to, BYTES + 16 * MIB) == 0);
        struct itimerval soon = {{0, 0}, {0, 150 + i * 7 % 450}}, never = {{0, 0}, {0, 0}};
        if (!sigsetjmp(out, 1)) {
            armed = 1;
            setitimer(ITIMER_REAL, &soon, NULL);
            CHECK(mremap(from, BYTES, BYTES + 16 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
            armed = 0;
        }
        setitimer(ITIMER_REAL, &never, NULL);
        int here = mapped(from), there = mapped(to);
        CHECK(here + there == BYTES / (2 * MIB) && (here == 0 || there == 0));
        munmap(from, BYTES);
        CHECK(mmap(to, BYTES + 16 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == to);
    }
    puts("done");
}
