/* How much stack pthread_create takes for the first thread of a program, compared with a later one. Built with -z now. */
#include "check.h"
#include <pthread.h>
#include <ucontext.h>

enum { STACK = 64 << 10, MORE = 512 };
static char stack[STACK] __attribute__((aligned(64)));
static ucontext_t here, there;
static pthread_attr_t attributes;

static void *nothing(void *unused) { return unused; }

static void create(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, nothing, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static size_t depth(void)
{
    size_t untouched = 0;
    memset(stack, 0x5a, STACK);
    CHECK(getcontext(&there) == 0);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = STACK;
    there.uc_link = &here;
    makecontext(&there, create, 0);
    CHECK(swapcontext(&here, &there) == 0);
    while (stack[untouched] == 0x5a)
        untouched++;
    return STACK - untouched;
}

int main(void)
{
    CHECK(pthread_attr_init(&attributes) == 0);
    size_t first = depth(), second = depth();
    if (first > second + MORE)
        dprintf(2, "%zu bytes, then %zu\n", first, second);
    CHECK(first <= second + MORE);
    map_again(8 * MIB, 1);
    puts("done");
}
