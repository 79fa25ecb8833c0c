/* The kernel still uses pages of a mapping that ends, or whose content the program drops: what it reads from them is old,
 * and what it writes to them reaches nobody. The argument says by which call, a second one that the content is dropped. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define BYTES (8 * MIB)
enum { ROUNDS = 16, HELD = 8192 };

static int drops;

static void end(char *at)
{
    if (!drops) {
        CHECK(munmap(at, BYTES) == 0);
        return;
    }
    CHECK(madvise(at, BYTES, MADV_DONTNEED) == 0 && is_zero(at, BYTES));
    fill(at, BYTES, 3);
}

/* Drops all of it again and again, so that dropping is expected. */
static char *prepared(void)
{
    char *at = map(BYTES);
    for (int i = 0; i < 4 * drops; i++) {
        fill(at, BYTES, 1);
        CHECK(madvise(at, BYTES, MADV_DONTNEED) == 0 && is_zero(at, BYTES));
    }
    return at;
}

static void by_pipe(void)
{
    static char back[HELD];
    for (int round = 0; round < ROUNDS; round++) {
        char *at = prepared();
        memset(at, 0x61, BYTES);
        usleep(1000);
        int ends[2];
        CHECK(pipe(ends) == 0);
        struct iovec piece = { at + BYTES / 2, HELD };
        if (round % 2)
            CHECK(vmsplice(ends[1], &piece, 1, 0) == HELD);
        else
            CHECK(syscall(SYS_vmsplice, ends[1], &piece, 1, SPLICE_F_GIFT) == HELD);
        end(at);
        map_again(BYTES, 2);
        CHECK(read(ends[0], back, HELD) == HELD && back[0] == 0x61 && memcmp(back, back + 1, HELD - 1) == 0);
        if (drops)
            CHECK(is_filled(at, BYTES, 3) && munmap(at, BYTES) == 0);
        close(ends[0]);
        close(ends[1]);
    }
    /* Pieces that cannot be read, and such as no memory is that large. */
    int ends[2];
    struct iovec wide = { (void *)(2 * MIB), SIZE_MAX / 4 };
    CHECK(pipe(ends) == 0 && vmsplice(ends[1], (void *)8, 1, 0) == -1 && errno == EFAULT);
    CHECK(vmsplice(ends[1], &wide, 1, 0) == -1 && errno == EFAULT);
    CHECK(ioctl(ends[0], 0xC020AA00, (void *)8) == -1 && errno == ENOTTY);
}

/* A read past the cache is under way when its buffer goes. */
static void by_ring(void)
{
    struct io_uring_params params = { 0 };
    int ring = syscall(SYS_io_uring_setup, 4, &params), fd = open("in-flight", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    char *source = map(BYTES);
    memset(source, 0x5a, BYTES);
    CHECK(write(fd, source, BYTES) == BYTES && fsync(fd) == 0 && munmap(source, BYTES) == 0);
    close(fd);
    fd = open("in-flight", O_RDONLY | O_DIRECT);
    CHECK(unlink("in-flight") == 0);
    if (ring < 0 || fd < 0)
        return;
    char *rings = mmap(NULL, params.sq_off.array + 64, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4 * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(rings != MAP_FAILED && entry != (void *)MAP_FAILED);
    unsigned tail = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char *at = prepared();
        memset(at, 1, BYTES);
        *entry = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = fd, .addr = (uintptr_t)at, .len = BYTES };
        ((unsigned *)(rings + params.sq_off.array))[tail & 3] = 0;
        __atomic_store_n((unsigned *)(rings + params.sq_off.tail), ++tail, __ATOMIC_RELEASE);
        CHECK(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1);
        if (drops)
            CHECK(madvise(at, BYTES, MADV_DONTNEED) == 0);
        else
            CHECK(munmap(at, BYTES) == 0);
        char *next = map(BYTES);
        for (int look = 0; look < 5; look++) {
            CHECK(is_zero(next, BYTES));
            usleep(500);
        }
        CHECK(munmap(next, BYTES) == 0);
        syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        __atomic_store_n((unsigned *)(rings + params.cq_off.head), tail, __ATOMIC_RELEASE);
        if (drops)
            CHECK(munmap(at, BYTES) == 0);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    drops = argc > 2;
    map_again(BYTES, 1);
    strcmp(argv[1], "pipe") == 0 ? by_pipe() : by_ring();
    map_again(BYTES, 9);
    puts("done");
}
