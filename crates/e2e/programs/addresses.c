/* Addresses that the program has unmapped are free, to whatever call, and what is mapped there next is what was asked
 * for. The argument says which calls. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define BYTES (8 * MIB)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

/* An address that was mapped, used and unmapped. */
static char *unmapped(void)
{
    map_again(BYTES, 1);
    char *at = map(BYTES);
    fill(at, BYTES, 2);
    CHECK(munmap(at, BYTES) == 0);
    return at;
}

static void takes(char *at, void *got, size_t bytes)
{
    CHECK(got == at && munmap(got, bytes) == 0);
}

static void hints(void)
{
    static const int flags[] = { PRIVATE, PRIVATE | MAP_FIXED_NOREPLACE, MAP_SHARED | MAP_ANONYMOUS, PRIVATE | MAP_NORESERVE };
    int fd = memfd_create("file", 0);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    for (int i = 0; i < 4; i++) {
        char *at = unmapped();
        takes(at, mmap(at, BYTES, RW, flags[i], -1, 0), BYTES);
        at = unmapped();
        takes(at, mmap(at, BYTES, PROT_NONE, flags[i], -1, 0), BYTES);
        at = unmapped();
        takes(at, mmap(at, 4096, RW, flags[i], -1, 0), 4096);
        at = unmapped();
        takes(at, mmap(at, BYTES, RW, MAP_SHARED | flags[i] % MAP_ANONYMOUS, fd, 0), BYTES);
    }
    char *at = map(BYTES), *low = (char *)0x10000000;
    CHECK(munmap(at + BYTES / 2, BYTES / 2) == 0 && mremap(at, BYTES / 2, BYTES, 0) == at);
    CHECK(is_zero(at, BYTES) && munmap(at, BYTES) == 0);
    takes(low, mmap(low, BYTES, RW, PRIVATE, -1, 0), BYTES);
    CHECK(mmap(NULL, BYTES, RW, PRIVATE, -1, 1) == MAP_FAILED && errno == EINVAL);
    CHECK((at = mmap(NULL, BYTES, RW, PRIVATE, -1, -4096)) != MAP_FAILED && munmap(at, BYTES) == 0);
    close(fd);
}

/* The very first large mapping leaves nothing behind, nor does a second one. */
static void empties(void)
{
    for (int i = 0; i < 2; i++) {
        unsigned char there;
        char *at = map(BYTES);
        fill(at, BYTES, 2);
        CHECK(munmap(at, BYTES) == 0);
        usleep(20000);
        for (char *page = at; page < at + BYTES; page += 4096)
            CHECK(mincore(page, 4096, &there) == -1 && errno == ENOMEM);
    }
}

/* Nor does anything come to holes that there were before it. */
static void holes(void)
{
    static const size_t bytes[] = { 4096, 16384, 172032, 692224, MIB, 5 * MIB };
    enum { HOLES = sizeof bytes / sizeof *bytes };
    char *all = mmap(NULL, HOLES * BYTES, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
    CHECK(all != MAP_FAILED);
    for (int i = 0; i < HOLES; i++)
        CHECK(munmap(all + i * BYTES + MIB, bytes[i]) == 0);
    map_again(2 * BYTES, 3);
    usleep(20000);
    for (int i = 0; i < HOLES; i++)
        for (char *page = all + i * BYTES + MIB; page < all + i * BYTES + MIB + bytes[i]; page += 4096) {
            unsigned char there;
            CHECK(mincore(page, 4096, &there) == -1 && errno == ENOMEM);
        }
}

/* What is asked about unmapped memory fails as the manual says. */
static void answers(void)
{
    char *at = unmapped(), byte = 1;
    unsigned char there[8];
    struct iovec here = { &byte, 1 }, far = { at, 1 }, all = { at, BYTES };
    int mem = open("/proc/self/mem", O_RDWR), self = syscall(SYS_pidfd_open, getpid(), 0), status = 99;
    CHECK(mem >= 0 && self >= 0);
    CHECK(process_vm_readv(getpid(), &here, 1, &far, 1, 0) == -1 && errno == EFAULT);
    CHECK(pread(mem, &byte, 1, (off_t)at) == -1 && errno == EIO);
    CHECK(pwrite(mem, &byte, 1, (off_t)at) == -1 && errno == EIO);
    CHECK(syscall(SYS_process_madvise, self, &all, 1, MADV_COLD, 0) == -1 && errno == ENOMEM);
    CHECK(syscall(SYS_move_pages, 0, 1, &far.iov_base, NULL, &status, 0) == 0 && status == -EFAULT);
    CHECK(mincore(at, sizeof there * 4096, there) == -1 && errno == ENOMEM);
    CHECK(madvise(at, BYTES, MADV_DONTNEED) == -1 && errno == ENOMEM);
    CHECK(mprotect(at, BYTES, RW) == -1 && errno == ENOMEM);
    CHECK(mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    close(mem);
    close(self);
}

/* Shared memory at such an address, and over a mapping that is unmapped afterwards. */
static void segments(void)
{
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    char *other = shmat(id, NULL, 0);
    CHECK(other != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    fill(other, BYTES, 7);
    char *at = unmapped();
    CHECK(shmat(id, at, 0) == at && is_filled(at, BYTES, 7) && shmdt(at) == 0);
    for (int round = 0; round < 4; round++) {
        at = map(BYTES);
        fill(at, BYTES, 1);
        CHECK(shmat(id, at, SHM_REMAP) == at && is_filled(at, BYTES, 7));
        if (round % 2)
            CHECK(madvise(at, BYTES, MADV_DONTNEED) == 0 && is_filled(at, BYTES, 7));
        CHECK(munmap(at, BYTES) == 0);
        map_again(BYTES, 3);
        CHECK(is_filled(other, BYTES, 7));
    }
    shmdt(other);
}

static int over;

static void *neighbour(void *arg)
{
    volatile int *at[8];
    for (int n = 1; !__atomic_load_n(&over, __ATOMIC_SEQ_CST); n++) {
        for (int i = 0; i < 8; i++) {
            at[i] = map(2 * MIB);
            CHECK(at[i][0] == 0);
            at[i][0] = n;
        }
        usleep(50);
        for (int i = 0; i < 8; i++)
            CHECK(at[i][0] == n && munmap((void *)at[i], 2 * MIB) == 0);
    }
    return arg;
}

/* A thread asks for one place alone, another for any: the kernel gives each page to one of them. */
static void race(void)
{
    enum { SLOTS = 32 };
    char *place = (char *)map((SLOTS + 1) * 2 * MIB) + 2 * MIB;
    CHECK(munmap(place, SLOTS * 2 * MIB) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, neighbour, NULL) == 0);
    for (int round = 0; round < 3000; round++) {
        char *at = mmap(place, SLOTS * 2 * MIB, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(at == place || (at == MAP_FAILED && errno == EEXIST));
        if (at == MAP_FAILED) {
            usleep(10);
            continue;
        }
        for (int i = 0; i < SLOTS; i++)
            *(volatile int *)(at + i * 2 * MIB) = -1;
        CHECK(munmap(at, SLOTS * 2 * MIB) == 0);
    }
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Ranges larger than the address space, and large ones in it: answered at once. */
static void large(void)
{
    size_t huge = (size_t)1 << 45;
    unsigned char there[1];
    CHECK(munmap((void *)(2 * MIB), (size_t)1 << 62) == -1 && errno == EINVAL);
    CHECK(madvise((void *)(2 * MIB), (size_t)1 << 62, MADV_FREE) == -1 && errno == EINVAL);
    CHECK(mincore((void *)(2 * MIB), (size_t)1 << 62, there) == -1 && errno == ENOMEM);
    for (int i = 0; i < 100; i++) {
        char *at = mmap(NULL, huge, i % 2 ? RW : PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
        CHECK(at != MAP_FAILED);
        if (i % 2)
            at[i] = 1;
        CHECK(madvise(at, huge, MADV_DONTNEED) == 0 && (i % 2 == 0 || at[i] == 0) && munmap(at, huge) == 0);
    }
    map_again(BYTES, 4);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    run_way(argv[1], (struct way[]){
        {"hints", hints}, {"empties", empties}, {"holes", holes}, {"answers", answers}, {"segments", segments}, {"race", race},
        {"large", large}, {0},
    });
    map_again(BYTES, 5);
    puts("done");
}
