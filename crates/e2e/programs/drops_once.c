// A thread writes to memory again as soon as it reads it as zero, while another thread still drops memory beside it.
// What was written then is there when the call has returned: a page is dropped once.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1ul << 20)
enum { ROUNDS = 60 };

static const size_t places[] = {4096, 9 * MIB + 4096 * 7, 17 * MIB};
static volatile char *memory;
static volatile char *at;
static atomic_int begun, written;

static void *writes(void *unused)
{
    for (int round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&begun) != round)
            ;
        while (*at != 0)
            ;
        *at = 2;
        atomic_store(&written, round);
    }
    return unused;
}

int main(void)
{
    size_t bytes = 24 * MIB;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 20; i++) {
        memset((char *)memory, 1, bytes);
        madvise((char *)memory, bytes, MADV_DONTNEED);
    }
    pthread_t writer;
    pthread_create(&writer, NULL, writes, NULL);
    int lost = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        memset((char *)memory, 1, bytes);
        at = memory + places[round % 3];
        atomic_store(&begun, round);
        madvise((char *)memory, bytes, MADV_DONTNEED);
        while (atomic_load(&written) != round)
            ;
        lost += *at != 2;
    }
    pthread_join(writer, NULL);
    printf("%d lost\n", lost);
    // Frames are to move out of what is unmapped, too.
    for (int i = 0; i < 4; i++) {
        char *more = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(more, 1, 16 * MIB);
        munmap(more, 16 * MIB);
    }
    return 0;
}
