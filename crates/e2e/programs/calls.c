/* Makes calls of many kinds, which a library behind others may count: each as often as it stands here. */
#include "check.h"
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define BYTES (8 * MIB)

int main(void)
{
    static unsigned char there[BYTES / 4096 * 2];
    for (int i = 0; i < 12; i++) {
        char *at = map(BYTES), *other = mmap64(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(is_zero(at, BYTES) && is_zero(other, BYTES));
        fill(at, BYTES, i);
        CHECK(mprotect(at, BYTES / 2, PROT_READ) == 0 && mprotect(at, BYTES / 2, PROT_READ | PROT_WRITE) == 0);
        CHECK(mlock(at, 4096) == 0 && munlock(at, 4096) == 0 && is_filled(at, BYTES, i));
        at = mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED && is_filled(at, BYTES, i) && is_zero(at + BYTES, BYTES));
        if (i == 11)
            CHECK(mincore(at, 2 * BYTES, there) == 0 && (there[0] & 1));
        CHECK(madvise(at, 2 * BYTES, MADV_DONTNEED) == 0 && is_zero(at, 2 * BYTES));
        CHECK(posix_madvise(at, BYTES, POSIX_MADV_WILLNEED) == 0 && posix_madvise(at + 1, BYTES, POSIX_MADV_NORMAL) == EINVAL);
        CHECK(madvise(at + 1, BYTES, MADV_DONTNEED) == -1 && errno == EINVAL);
        CHECK(munmap(at, 2 * BYTES) == 0 && munmap(other, BYTES) == 0 && munmap(at + 1, BYTES) == -1 && errno == EINVAL);
        CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    }
    int ends[2], n = 0, one = 1;
    char byte = 'x';
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one) == 0);
    CHECK(send(ends[0], &byte, 1, 0) == 1 && send(-1, &byte, 1, 0) == -1 && errno == EBADF);
    struct iovec piece = { &byte, 1 };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
    CHECK(sendmsg(ends[0], &message, MSG_DONTWAIT) == 1);
    CHECK(ioctl(ends[1], FIONREAD, &n) == 0 && n == 2);
    struct rlimit limit = { 0, 0 };
    CHECK(setrlimit(RLIMIT_CORE, &limit) == 0);
    puts("called");
}
