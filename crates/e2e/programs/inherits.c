/* Sends a mapping from its own pages and unmaps it before it is read, by a socket or a ring that it has from the program
 * that started it. The argument says by which call. */
#include "check.h"
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define BYTES (16 * MIB)
#define PART MIB
enum { SENDER = 100, READER, RING };

/* What a program needs to know of a ring, as decimal numbers. */
static char tail[16], array[16];

static void prepare(void)
{
    int one = 1, small = 4096, large = 64 * MIB;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(door, (struct sockaddr *)&at, n) == 0);
    /* The reader takes little, so that most waits where it was sent from. */
    CHECK(setsockopt(door, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0 && listen(door, 1) == 0);
    CHECK(getsockname(door, (struct sockaddr *)&at, &n) == 0);
    if (setsockopt(sender, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large))
        CHECK(setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &large, sizeof large) == 0);
    CHECK(setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0);
    CHECK(connect(sender, (struct sockaddr *)&at, n) == 0);
    int reader = accept(door, NULL, NULL);
    CHECK(reader >= 0 && dup2(sender, SENDER) == SENDER && dup2(reader, READER) == READER);
    struct io_uring_params params = { 0 };
    int ring = syscall(SYS_io_uring_setup, 1, &params);
    if (ring >= 0)
        CHECK(dup2(ring, RING) == RING);
    snprintf(tail, sizeof tail, "%u", params.sq_off.tail);
    snprintf(array, sizeof array, "%u", params.sq_off.array);
}

/* Whether all of it was sent. */
static int by_ring(char *at, size_t bytes, size_t tail_at, size_t array_at)
{
    char *ring = mmap(NULL, array_at + 64, PROT_READ | PROT_WRITE, MAP_SHARED, RING, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, RING, IORING_OFF_SQES);
    if (ring == MAP_FAILED || entry == (void *)MAP_FAILED)
        return 0;
    *(unsigned *)(ring + array_at) = 0;
    *entry = (struct io_uring_sqe){ .opcode = IORING_OP_SEND_ZC, .fd = SENDER, .addr = (uintptr_t)at, .len = bytes };
    __atomic_fetch_add((unsigned *)(ring + tail_at), 1, __ATOMIC_RELEASE);
    return syscall(SYS_io_uring_enter, RING, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1;
}

static ssize_t by_call(const char *how, char *at, size_t bytes)
{
    int flags = MSG_ZEROCOPY | MSG_DONTWAIT;
    struct iovec piece = { at, bytes };
    struct mmsghdr messages = { .msg_hdr = { .msg_iov = &piece, .msg_iovlen = 1 } };
    if (strcmp(how, "send") == 0)
        return send(SENDER, at, bytes, flags);
    if (strcmp(how, "sendto") == 0)
        return sendto(SENDER, at, bytes, flags, NULL, 0);
    if (strcmp(how, "sendmsg") == 0)
        return sendmsg(SENDER, &messages.msg_hdr, flags);
    if (strcmp(how, "syscall") == 0)
        return syscall(SYS_sendto, SENDER, at, bytes, flags, NULL, 0);
    CHECK(strcmp(how, "sendmmsg") == 0);
    return sendmmsg(SENDER, &messages, 1, flags) == 1 ? (ssize_t)messages.msg_len : -1;
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    if (argc == 2) {
        prepare();
        execl("/proc/self/exe", argv[0], argv[1], tail, array, NULL);
        CHECK(0);
    }
    map_again(4 * BYTES, 1);
    char *at = map(BYTES);
    memset(at, 0x5a, BYTES);
    if (strcmp(argv[1], "ring") == 0)
        by_ring(at, BYTES, atoi(argv[2]), atoi(argv[3]));
    else
        for (size_t sent = 0; sent < BYTES; sent += PART)
            if (by_call(argv[1], at + sent, PART) != PART)
                break;
    CHECK(munmap(at, BYTES) == 0 && shutdown(SENDER, SHUT_WR) == 0);
    map_again(BYTES, 2);
    static char part[65536];
    size_t all = 0;
    for (ssize_t n; (n = read(READER, part, sizeof part)) > 0; all += n)
        for (ssize_t i = 0; i < n; i++)
            CHECK(part[i] == 0x5a);
    printf("%d\n", all > 0);
}
