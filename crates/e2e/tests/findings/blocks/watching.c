/* A library that sees calls of the program, preloaded. */
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static int seen;
int times_seen(void) { return seen; }

int prctl(int operation, ...)
{
    va_list list;
    va_start(list, operation);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long);
    va_end(list);
    seen++;
    return syscall(SYS_prctl, operation, a, b, c, d);
}

int mlockall(int flags)
{
    seen++;
    return syscall(SYS_mlockall, flags);
}
