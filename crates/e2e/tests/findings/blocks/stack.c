/* How much stack calls take, the first one too: each runs on a painted stack of its own, and may take so much. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define STACK (256 << 10)
/* 2 KiB, and what the C library needs itself. */
#define MOST (2048 + 512)

static char stack[STACK] __attribute__((aligned(64)));
static ucontext_t here, there;
static void (*fn)(void);
static void run(void) { fn(); }

static size_t used(void (*f)(void))
{
    memset(stack, 0xcd, STACK);
    fn = f;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = STACK;
    there.uc_link = &here;
    makecontext(&there, run, 0);
    swapcontext(&here, &there);
    size_t i = 0;
    while (i < STACK && (unsigned char)stack[i] == 0xcd)
        i++;
    return STACK - i;
}

static void check(const char *name, void (*f)(void))
{
    size_t bytes = used(f);
    printf("%s: %s\n", name, bytes <= MOST ? "little" : "too much");
    if (bytes > MOST)
        fprintf(stderr, "%s: %zu bytes\n", name, bytes);
}

static char *p, *q[64];
static void first(void) { p = malloc(1 << 20); }
static void release(void) { free(p); }
static void many(void)
{
    for (int i = 0; i < 64; i++)
        q[i] = malloc(i % 2 ? 8 << 20 : 1 << 20);
}
static void none(void)
{
    for (int i = 0; i < 64; i++)
        free(q[i]);
}
static void resize(void)
{
    p = calloc(3, 1 << 20);
    p = realloc(p, 40 << 20);
    p = realloc(p, 1 << 20);
}

static void *small(void *a)
{
    volatile char *p = malloc(1 << 20);
    p[0] = 1;
    free((void *)p);
    return a;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        pthread_attr_t at;
        pthread_t t;
        pthread_attr_init(&at);
        pthread_attr_setstacksize(&at, 16384);
        pthread_create(&t, &at, small, NULL);
        pthread_join(t, NULL);
        puts("done");
        return 0;
    }
    check("first malloc", first);
    check("free", release);
    check("mallocs", many);
    for (int i = 0; i < 64; i++)
        memset(q[i], 1, i % 2 ? 8 << 20 : 1 << 20);
    check("frees", none);
    check("realloc", resize);
}
