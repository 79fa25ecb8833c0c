// A growth that the kernel refuses disturbs no thread: the memory is where it was, all of the time.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1UL << 20)
#define BYTES (128 * MIB)
#define EVERY (64 * 4096UL)

static volatile char *memory;
static volatile int ended;

static void *reads(void *wrong)
{
    while (!ended)
        for (unsigned long i = 0; i < BYTES; i += EVERY)
            if (memory[i] != 7)
                *(int *)wrong = 1;
    return NULL;
}

int main(void)
{
    int wrong = 0, moved = 0, error = 0;
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (unsigned long i = 0; i < BYTES; i += EVERY)
        memory[i] = 7;
    pthread_t reader;
    if (pthread_create(&reader, NULL, reads, &wrong))
        return 1;
    for (int i = 0; i < 50; i++)
        if (mremap((void *)memory, BYTES, 1UL << 46, MREMAP_MAYMOVE) != MAP_FAILED)
            moved++;
        else
            error = errno;
    ended = 1;
    pthread_join(reader, NULL);
    printf("%d moved, %s, %s\n", moved, strerror(error), wrong ? "wrong bytes" : "all there");
    return 0;
}
