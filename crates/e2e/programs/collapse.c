/* MADV_COLLAPSE where the engine asked for small pages: a mapping, or a block, from before a userfaultfd. What the program
 * refused itself stays refused. */
#include "check.h"
#include <sys/syscall.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define BYTES (64 * MIB)

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int is_block = strcmp(argv[1], "block") == 0;
    char *at = is_block ? malloc(BYTES) : map(BYTES);
    CHECK(at);
    fill(at, BYTES, 1);
    if (strcmp(argv[1], "refused") == 0)
        CHECK(madvise(at, BYTES, MADV_NOHUGEPAGE) == 0);
    int watcher = syscall(SYS_userfaultfd, 1), refused = 0;
    char *end = at + BYTES;
    for (char *slot = (char *)(((uintptr_t)at + 2 * MIB - 1) & ~(2 * MIB - 1)); slot + 2 * MIB <= end; slot += 2 * MIB)
        refused += madvise(slot, 2 * MIB, MADV_COLLAPSE) != 0 && errno == EINVAL;
    printf("%s, %s\n", watcher < 0 ? "no userfaultfd" : "watched", refused ? "refused" : "collapsed");
    CHECK(is_filled(at, BYTES, 1));
    return 0;
}
