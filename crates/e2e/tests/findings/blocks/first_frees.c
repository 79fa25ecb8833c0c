/* Two threads free blocks of changed rights, first of all in their process, at the same moment. Later blocks can be written to. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include <pthread.h>
#include <sys/syscall.h>

#define N (8 * MIB)

static pthread_barrier_t barrier;
static int rights, ready;

static void *two(void *unused)
{
    char *block = malloc(N);
    memset(block, 1, N);
    uintptr_t inside = ((uintptr_t)block + 8191) & ~(uintptr_t)4095;
    long r;
    asm volatile("syscall"
                 : "=a"(r)
                 : "a"(SYS_mprotect), "D"(inside), "S"(N - 16384), "d"((long)rights)
                 : "rcx", "r11", "memory");
    CHECK(r == 0);
    pthread_barrier_wait(&barrier);
    __sync_fetch_and_add(&ready, 1);
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 2)
        ;
    free(block);
    for (int i = 0; i < 4; i++) {
        char *later = malloc(N);
        memset(later, 2, N);
        free(later);
    }
    return unused;
}

int main(void)
{
    int failed = 0;
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) {
            rights = i % 2 ? PROT_READ : PROT_NONE;
            pthread_t thread;
            pthread_barrier_init(&barrier, NULL, 2);
            pthread_create(&thread, NULL, two, NULL);
            two(NULL);
            pthread_join(thread, NULL);
            _exit(0);
        }
        failed += ended(child) != 0;
    }
    printf("failed %d\n", failed);
}
