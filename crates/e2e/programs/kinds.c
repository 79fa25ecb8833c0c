/* Makes calls for which a library that it is linked with has functions of its own (kinds_lib.c). */
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include "check.h"

int main(void)
{
    printf("%d %d\n", ioctl(12345, 1, NULL), prctl(9999, 0, 0, 0, 0));
    char *block = malloc(8 * MIB);
    CHECK(block);
    fill(block, 8 * MIB, 1);
    free(block);
    puts("done");
    fflush(stdout);
    _exit(0);
}
