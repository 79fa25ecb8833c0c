/* A library to preload behind another one: counts the calls of each function below that reach it, and
 * prints the numbers in the end. Some it makes by the next function of that name, some by `syscall`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EACH(X) \
    X(mmap) X(mmap64) X(munmap) X(mremap) X(mprotect) X(madvise) X(posix_madvise) X(mlock) X(munlock) X(mincore) \
    X(ioctl) X(setsockopt) X(setrlimit) X(send) X(sendmsg)
#define COUNT(name) COUNT_##name,
#define NAME(name) #name,
enum { EACH(COUNT) KINDS };
static const char *const names[] = { EACH(NAME) };
static int counts[KINDS];

/* In turns by the next function and by the system call `nr`. */
#define CALL(type, name, nr, ...)                                                \
    do {                                                                         \
        static __typeof__(&name) next;                                           \
        if (!next)                                                               \
            next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                   \
        return ++counts[COUNT_##name] % 2 ? next(__VA_ARGS__) : (type)syscall(nr, __VA_ARGS__); \
    } while (0)

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off) { CALL(void *, mmap, SYS_mmap, at, n, prot, flags, fd, off); }
void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off) { CALL(void *, mmap64, SYS_mmap, at, n, prot, flags, fd, off); }
int munmap(void *at, size_t n) { CALL(int, munmap, SYS_munmap, at, n); }
int mprotect(void *at, size_t n, int prot) { CALL(int, mprotect, SYS_mprotect, at, n, prot); }
int madvise(void *at, size_t n, int advice) { CALL(int, madvise, SYS_madvise, at, n, advice); }
int mlock(const void *at, size_t n) { CALL(int, mlock, SYS_mlock, at, n); }
int munlock(const void *at, size_t n) { CALL(int, munlock, SYS_munlock, at, n); }
int mincore(void *at, size_t n, unsigned char *vec) { CALL(int, mincore, SYS_mincore, at, n, vec); }
int setsockopt(int s, int level, int name, const void *value, socklen_t n) { CALL(int, setsockopt, SYS_setsockopt, s, level, name, value, n); }
int setrlimit(__rlimit_resource_t kind, const struct rlimit *limit) { CALL(int, setrlimit, SYS_setrlimit, kind, limit); }
ssize_t sendmsg(int s, const struct msghdr *message, int flags) { CALL(ssize_t, sendmsg, SYS_sendmsg, s, message, flags); }

ssize_t send(int s, const void *data, size_t n, int flags)
{
    counts[COUNT_send]++;
    return sendto(s, data, n, flags, NULL, 0);
}

int posix_madvise(void *at, size_t n, int advice)
{
    counts[COUNT_posix_madvise]++;
    return syscall(SYS_madvise, at, n, advice) ? errno : 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    counts[COUNT_ioctl]++;
    return syscall(SYS_ioctl, fd, request, argument);
}

void *mremap(void *old, size_t from, size_t to, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *new = va_arg(rest, void *);
    va_end(rest);
    counts[COUNT_mremap]++;
    return (void *)syscall(SYS_mremap, old, from, to, flags, new);
}

__attribute__((destructor)) static void tell(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        dprintf(1, "%s: %d\n", names[kind], counts[kind]);
}
