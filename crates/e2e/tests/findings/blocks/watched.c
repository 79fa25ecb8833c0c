/* Calls that another preloaded library watches. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

extern int times_seen(void) __attribute__((weak));

int main(void)
{
    char name[16] = "";
    int set = prctl(PR_SET_NAME, "watched", 0L, 0L, 0L), got = prctl(PR_GET_NAME, name, 0L, 0L, 0L);
    errno = 0;
    int locked = mlockall(1 << 20);
    printf("%d %d %s %d %s, seen %d\n", set, got, name, locked, strerror(errno), times_seen ? times_seen() : -1);
}
