/* Signals that the processor raises are held back by the program, and sent to it by others. They wait until the program
 * takes them, whatever calls about memory it makes meanwhile and whatever threads there are. */
#include "check.h"
#include <time.h>

static const int raised[] = { SIGTRAP, SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };
enum { COUNT = sizeof raised / sizeof *raised };

static void calls(void)
{
    for (int i = 0; i < 20; i++) {
        char *area = map(8 * MIB);
        fill(area, 8 * MIB, 1);
        char *larger = mremap(area, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE);
        CHECK(larger != MAP_FAILED);
        CHECK(madvise(larger, 4 * MIB, MADV_DONTNEED) == 0 && larger[0] == 0);
        CHECK(munmap(larger, 16 * MIB) == 0);
        char *block = calloc(1, 3 * MIB);
        CHECK(block && block[2 * MIB] == 0);
        block = realloc(block, 5 * MIB);
        CHECK(block);
        free(block);
    }
    /* For the threads that are not the program's. */
    CHECK(nanosleep(&(struct timespec){ 0, 30000000 }, NULL) == 0);
}

int main(void)
{
    sigset_t all;
    CHECK(sigemptyset(&all) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(sigaddset(&all, raised[i]) == 0);
    calls();
    CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    for (int to_all = 0; to_all < 2; to_all++) {
        for (int i = 0; i < COUNT; i++)
            CHECK((to_all ? kill(getpid(), raised[i]) : raise(raised[i])) == 0);
        calls();
        for (int i = 0; i < COUNT; i++) {
            sigset_t one, now;
            int got;
            CHECK(sigemptyset(&one) == 0 && sigaddset(&one, raised[i]) == 0);
            CHECK(sigpending(&now) == 0 && sigismember(&now, raised[i]));
            CHECK(sigwait(&one, &got) == 0 && got == raised[i]);
        }
    }
    puts("waited");
}
