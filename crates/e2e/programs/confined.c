/* A program with one thread enters a namespace of its own and changes its identity while the library has work to do
 * and the processors are busy. Prints what each call answers. */
#include "check.h"
#include <sched.h>
#include <sys/prctl.h>

#define BUSY 2

int main(void)
{
    pid_t busy[BUSY];
    for (int i = 0; i < BUSY; i++)
        if ((busy[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                ;
        }
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int i = 0; i < 1 + round % 5; i++) {
                char *at = map(48 * MIB);
                memset(at, 1, 48 * MIB);
                CHECK(munmap(at, 48 * MIB) == 0);
                if (round % 2)
                    usleep(6000);
            }
            int failed = round % 3 == 2 ? seteuid(geteuid()) || setgid(getgid()) : unshare(CLONE_NEWUSER);
            if (failed)
                _exit(errno);
            char *at = map(16 * MIB);
            CHECK(is_zero(at, 16 * MIB));
            if (round % 3 == 2) {
                /* The next identity has its thread too, which must go again. */
                memset(at, 1, 16 * MIB);
                CHECK(munmap(at, 16 * MIB) == 0);
                usleep(6000);
                if (unshare(CLONE_NEWUSER))
                    _exit(errno);
            }
            _exit(0);
        }
        printf("%d\n", ended(child));
    }
    for (int i = 0; i < BUSY; i++) {
        kill(busy[i], SIGKILL);
        ended(busy[i]);
    }
}
