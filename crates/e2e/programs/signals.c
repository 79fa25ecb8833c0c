/* A timer's handler asks for memory while the program does. The C library's malloc must not be called from a
 * handler that may have interrupted it, so one side calls malloc and the other mmap only. */
#include "check.h"
#include <sys/time.h>

static volatile sig_atomic_t handled, over;
static int handler_mallocs;

static void use_mmap(size_t bytes)
{
    char *at = map(bytes);
    CHECK(is_zero(at, bytes));
    memset(at, 0x5a, bytes);
    CHECK(munmap(at, bytes) == 0);
}

static void use_malloc(size_t bytes)
{
    char *a = malloc(bytes), *b = calloc(1, bytes);
    CHECK(a && b && is_zero(b, bytes));
    memset(a, 0x5a, bytes);
    memset(b, 0xa5, bytes);
    a = realloc(a, bytes * 2);
    CHECK(a && a[bytes - 1] == 0x5a);
    free(a);
    free(b);
}

static void handler(int signal)
{
    int saved = errno;
    handled++;
    handler_mallocs ? use_malloc(600000) : use_mmap(2 * MIB);
    /* The next one, after the program has had some time. */
    struct itimerval once = { { 0, 0 }, { 0, 100 + handled * 37 % 900 } };
    CHECK(over || setitimer(ITIMER_REAL, &once, NULL) == 0);
    errno = saved;
}

int main(int argc, char **argv)
{
    handler_mallocs = argc > 1 && strcmp(argv[1], "malloc") == 0;
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(raise(SIGALRM) == 0);
    for (int i = 0; i < 400 || handled < 300; i++)
        handler_mallocs ? use_mmap((2 + i % 5) * MIB) : use_malloc((1 + i % 5) * MIB);
    over = 1;
    puts("done");
}
