/* Calls of many kinds in the resolver of an indirect function: the C library may not be there yet for the preloaded library.
 * With OWN the function is the program's own. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int wrong;
static int use(void) { return wrong; }

static int (*resolve(void))(void)
{
    int window;
    struct rlimit limit;
    char *large = malloc(20 << 20);
    if (large) large[0] = 1, free(large); else wrong |= 1;
    for (int i = 0; i < 100; i++) {
        char *block = malloc(1 << 20);
        if (block) block[5] = 1, free(block); else wrong |= 2;
    }
    if (prctl(9999, 0, 0, 0, 0) == 0) wrong |= 4;
    if (getrlimit(RLIMIT_DATA, &limit) || setrlimit(RLIMIT_DATA, &limit)) wrong |= 8;
    if (madvise((void *)1, 4096, 0) == 0) wrong |= 16;
    if (!mallopt(M_MMAP_THRESHOLD, 1 << 20)) wrong |= 32;
    if (setuid(getuid()) || setegid(getegid())) wrong |= 64;
    if (ioctl(-1, 0x5413, &window) == 0) wrong |= 128;
    if (syscall(SYS_close, -1) == 0) wrong |= 256;
    if (send(-1, "", 1, 0) == 0) wrong |= 512;
    if (mmap((void *)1, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) wrong |= 1024;
    return use;
}

static int found(void) __attribute__((ifunc("resolve")));
#ifndef OWN
int call(void) { return found(); }
#else
#include "check.h"
int main(void)
{
    printf("%d\n", found());
    take_and_give(1, 4, 8);
}
#endif
