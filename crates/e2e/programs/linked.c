/* Makes calls for which a library that it is linked with has functions of its own (stands_in.c). */
#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "check.h"

extern int seen[5], early[5];

int main(void)
{
    /* A symbol that was not found for somebody else is not told here. */
    CHECK(dlerror() == NULL);
    printf("before main: %d %d %d %d %d\n", early[0], early[1], early[2], early[3], early[4]);
    printf("%d %d %d\n", ioctl(12345, 1, NULL), prctl(9999, 0, 0, 0, 0), setsockopt(-1, 1, 2, NULL, 0));
    printf("%zd\n", send(-1, "", 1, 0));
    int before = seen[3];
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    printf("%d %d %d %d %d\n", seen[0], seen[1], seen[2], seen[3] - before, seen[4]);
    map_again(8 * MIB, 1);
    puts("done");
}
