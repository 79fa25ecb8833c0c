/* A library that has functions of the C library's, too: the program that is linked with it calls these. Its constructor
 * makes the first calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>

int seen[5], early[5];

int ioctl(int fd, unsigned long request, ...)
{
    (void)request;
    seen[0]++;
    if (fd == 12345)
        return 42;
    errno = EBADF;
    return -1;
}

int prctl(int operation, ...)
{
    (void)operation;
    seen[1]++;
    return 7;
}

int setsockopt(int socket, int level, int name, const void *value, socklen_t bytes)
{
    (void)socket, (void)level, (void)name, (void)value, (void)bytes;
    seen[2]++;
    return 9;
}

ssize_t send(int socket, const void *data, size_t bytes, int flags)
{
    (void)socket, (void)data, (void)bytes, (void)flags;
    seen[4]++;
    return 11;
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    void *(*next)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    seen[3]++;
    return next(at, bytes, prot, flags, fd, offset);
}

__attribute__((constructor)) static void begin(void)
{
    ioctl(12345, 1, NULL);
    prctl(9999, 0, 0, 0, 0);
    setsockopt(-1, 1, 2, NULL, 0);
    send(-1, "", 1, 0);
    memcpy(early, seen, sizeof seen);
    memset(seen, 0, sizeof seen);
}
