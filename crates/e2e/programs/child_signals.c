/* A child of vfork signals its parent, whose handler leaves by a jump, asks for memory, or returns. */
#include "check.h"
#include <setjmp.h>

static sigjmp_buf back;
static const char *how;

static void ask(size_t bytes)
{
    char *block = malloc(bytes);
    CHECK(block != NULL);
    fill(block, bytes, 1);
    CHECK(is_filled(block, bytes, 1));
    free(block);
}

static void handle(int signal)
{
    (void)signal;
    if (how[0] == 'a')
        ask(5 * MIB);
    if (how[0] == 'j')
        siglongjmp(back, 1);
}

static void spawn(void)
{
    pid_t child = vfork();
    if (child == 0) {
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    CHECK(child > 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    how = argv[1];
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    ask(8 * MIB);
    for (volatile int i = 0; i < 20; i++) {
        if (sigsetjmp(back, 1) == 0)
            spawn();
        while (waitpid(-1, NULL, 0) > 0)
            ;
        ask(6 * MIB);
    }
    return puts("as in a plain run") < 0;
}
