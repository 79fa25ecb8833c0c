/* A sparse file that many map, where memory of the program's own was before: it gets the pages that are written to, and no
 * others. */
#include "check.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define BYTES (256 * MIB)
#define SHARED (PROT_READ | PROT_WRITE), MAP_SHARED

static char *fresh;

/* A page of each MiB, slowly: whoever follows a program has time to look at what it has passed. */
static int write_to(char *at, size_t bytes)
{
    int n = 0;
    for (size_t i = 0; i < bytes; i += MIB, n++) {
        at[i] = 1;
        if (i < 32 * MIB)
            usleep(200);
    }
    usleep(20000);
    return n;
}

/* Over the mapping in pieces, or all of it. */
static void over(int file, size_t piece)
{
    for (size_t i = 0; i < BYTES; i += piece)
        CHECK(mmap(fresh + i, piece, SHARED | MAP_FIXED, file, i) == fresh + i);
}

/* The mapping goes in pieces, and others come to lie there. */
static void instead(int file)
{
    fresh[0] = 1;
    usleep(1000);
    for (size_t i = 0; i < BYTES; i += MIB)
        CHECK(munmap(fresh + i, MIB) == 0);
    for (size_t i = 0; i < BYTES; i += MIB)
        CHECK(mmap(fresh + i, MIB, SHARED | MAP_FIXED_NOREPLACE, file, i) == fresh + i);
}

/* Mapped elsewhere, and moved there piece by piece. */
static void moved(int file)
{
    char *at = mmap(NULL, BYTES, SHARED, file, 0);
    CHECK(at != MAP_FAILED);
    for (size_t i = 0; i < BYTES; i += MIB)
        CHECK(mremap(at + i, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, fresh + i) == fresh + i);
}

/* A segment attached over it, whose pages only the kernel's account of all segments tells. */
static void attached(void)
{
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    CHECK(id >= 0);
    char *at = shmat(id, fresh, SHM_REMAP);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0 && at == fresh);
    int n = write_to(at, BYTES / 2);
    unsigned char *there = malloc(BYTES / 4096);
    /* Not by the C library, so that nobody hears of the question. */
    CHECK(there != NULL);
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_mincore), "D"(at), "S"(BYTES), "d"(there) : "rcx", "r11", "memory");
    CHECK(answer == 0);
    int pages = 0;
    for (size_t i = 0; i < BYTES / 4096; i++)
        pages += there[i] & 1;
    printf("%d pages more than were written to\n", pages - n);
    free(there);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    map_again(8 * MIB, 1);
    fresh = map(BYTES);
    if (strcmp(argv[1], "attached") == 0) {
        attached();
        return 0;
    }
    int file = syscall(SYS_memfd_create, "sparse", 0);
    CHECK(file >= 0 && ftruncate(file, BYTES) == 0);
    if (strcmp(argv[1], "pieces") == 0)
        over(file, MIB);
    else if (strcmp(argv[1], "whole") == 0)
        over(file, BYTES);
    else if (strcmp(argv[1], "instead") == 0)
        instead(file);
    else
        moved(file);
    int n = write_to(fresh, BYTES / 2);
    struct stat stat;
    CHECK(fstat(file, &stat) == 0);
    printf("%d pages more than were written to\n", (int)(stat.st_blocks / 8) - n);
}
