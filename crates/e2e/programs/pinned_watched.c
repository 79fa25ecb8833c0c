/* A page that a ring has pinned is all zero when its range is watched for missing pages. What the ring reads into it
 * later is there for the program. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static struct io_uring_params params;

static void read_fixed(int ring, int file, char *to)
{
    char *at = mmap(NULL, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                    IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, params.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                                      IORING_OFF_SQES);
    CHECK(at != MAP_FAILED && entry != MAP_FAILED);
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_READ_FIXED, .fd = file, .addr = (uintptr_t)to, .len = 4096};
    *(unsigned *)(at + params.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(at + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
}

int main(void)
{
    map_again(16 * MIB, 3);
    char *at = map(16 * MIB);
    at = (char *)(((uintptr_t)at + 2 * MIB - 1) & ~(2 * MIB - 1)) + 2 * MIB;
    memset(at, 0, 4096);
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
    if (ring < 0 || watcher < 0)
        return puts("no ring or no userfaultfd") < 0;
    struct iovec buffer = {at, 4096};
    CHECK(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)at, 4 * MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(watcher, UFFDIO_API, &api) == 0 && ioctl(watcher, UFFDIO_REGISTER, &range) == 0);
    int file = memfd_create("bytes", 0);
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    CHECK(file >= 0 && write(file, bytes, sizeof bytes) == sizeof bytes);
    read_fixed(ring, file, at);
    CHECK(ioctl(watcher, UFFDIO_UNREGISTER, &range.range) == 0);
    CHECK(memcmp(at, bytes, sizeof bytes) == 0);
    return puts("read") < 0;
}
