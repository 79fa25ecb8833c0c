/* Touches new memory in several functions, and lets a child copy some of it: for a report with something of each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE (64 << 20)
#define SMALL (1 << 20)

__attribute__((noinline)) static void fill_pages(volatile char *memory, long bytes)
{
    /* A function that calls no other one has a frame only if something asks for it. */
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    for (long i = 0; i < bytes; i += 4096)
        memory[i] = 1;
}

__attribute__((noinline)) static char *fill_large(void)
{
    char *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(2);
    madvise(memory, LARGE, MADV_NOHUGEPAGE);
    fill_pages(memory, LARGE);
    return memory;
}

__attribute__((noinline)) static void *fill_small(void *unused)
{
    for (int i = 0; i < 16; i++) {
        char *memory = mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            exit(2);
        fill_pages(memory, SMALL);
        munmap(memory, SMALL);
    }
    return unused;
}

__attribute__((noinline)) static int copy_in_a_child(char *memory)
{
    pid_t child = fork();
    if (child == 0) {
        fill_pages(memory, LARGE / 4);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status;
}

int main(void)
{
    char *memory = fill_large();
    pthread_t thread;
    pthread_create(&thread, NULL, fill_small, NULL);
    pthread_join(thread, NULL);
    int status = copy_in_a_child(memory);
    printf("done: %d\n", status);
    return status;
}
