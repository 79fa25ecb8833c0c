/* A thread is cancelled while it waits in a call that the library stands before: "vmsplice", or "send" and its like. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int ends[2];
static const char *how;
static char bytes[MIB];

static void *work(void *argument)
{
    struct iovec piece = { bytes, sizeof bytes };
    struct mmsghdr messages = { .msg_hdr = { .msg_iov = &piece, .msg_iovlen = 1 } };
    for (;;) {
        if (strcmp(how, "vmsplice") == 0)
            vmsplice(ends[1], &piece, 1, 0);
        else if (strcmp(how, "send") == 0)
            send(ends[1], bytes, sizeof bytes, 0);
        else if (strcmp(how, "sendto") == 0)
            sendto(ends[1], bytes, sizeof bytes, 0, NULL, 0);
        else if (strcmp(how, "sendmsg") == 0)
            sendmsg(ends[1], &messages.msg_hdr, 0);
        else
            sendmmsg(ends[1], &messages, 1, 0);
    }
    return argument;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    how = argv[1];
    CHECK((how[0] == 'v' ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
    map_again(8 * MIB, 1);
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    usleep(100000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    map_again(8 * MIB, 2);
    puts("done");
}
