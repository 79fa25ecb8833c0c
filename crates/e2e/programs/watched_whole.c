/* A program fills large ranges by one call of its own userfaultfd, which takes one area of the kernel's, and moves ranges
 * that two of them watch. It rests before for so many microseconds as its argument says. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define SOME (24 * MIB)
/* Neither a whole number of huge pages, nor where one begins. */
#define ALL (48 * MIB + 12 * 4096)

static int watcher(void)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
    return fd;
}

static void watch(int fd, char *at, size_t bytes)
{
    struct uffdio_register range = {.range = {(uintptr_t)at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(fd, UFFDIO_REGISTER, &range) == 0);
}

static void copy(const char *what, int fd, char *to, char *from, size_t bytes)
{
    struct uffdio_copy copy = {.dst = (uintptr_t)to, .src = (uintptr_t)from, .len = bytes};
    int status = ioctl(fd, UFFDIO_COPY, &copy);
    printf("%s: %d %s, %d MiB\n", what, status, status ? strerror(errno) : "", (int)(copy.copy / (long)MIB));
    CHECK(status || is_filled(to, bytes, 5));
}

int main(int argc, char **argv)
{
    /* From the first userfaultfd on, nothing is advised any more. */
    char *fresh[5], *at, *from = map(ALL), *block = aligned_alloc(4096, ALL), *grows = malloc(ALL);
    CHECK(grows);
    fill(grows, MIB, 6);
    for (int i = 0; i < 5; i++)
        fresh[i] = map(ALL);
    fill(from, ALL, 5);
    usleep(argc > 1 ? atoi(argv[1]) : 0);

    int one = watcher();
    at = fresh[0];
    watch(one, at, ALL);
    copy("a whole mapping", one, at, from, ALL);

    at = fresh[1];
    watch(one, at, SOME);
    watch(one, at + SOME, ALL - SOME);
    copy("two halves", one, at, from, ALL);

    at = fresh[2];
    watch(one, at + SOME, ALL - SOME);
    watch(one, at, SOME);
    copy("the second half first", one, at, from, ALL);

    /* What a block has before its first use nobody may ask. */
    CHECK(block && madvise(block, ALL, MADV_DONTNEED) == 0);
    watch(one, block, ALL);
    copy("a block", one, block, from, ALL);

    /* Nobody serves faults here: who reads what is missing waits for ever. */
    alarm(60);
    char *first = (char *)((uintptr_t)grows & -4096), *end = (char *)((uintptr_t)(grows + ALL + 4095) & -4096);
    watch(one, first, end - first);
    grows = realloc(grows, 2 * ALL);
    CHECK(grows && is_filled(grows, MIB, 6));

    block = aligned_alloc(4096, ALL);
    CHECK(block);
    watch(one, block, ALL);
    copy("a block from later", one, block, from, ALL);

    int two = watcher();
    at = fresh[3];
    watch(one, at, SOME);
    watch(two, at + SOME, ALL - SOME);
    copy("half of it", one, at, from, SOME);
    copy("more than is watched", one, at, from, ALL);
    char *moved = mremap(at, ALL, 2 * ALL, MREMAP_MAYMOVE);
    printf("over two: %s\n", moved == MAP_FAILED ? strerror(errno) : "moved");

    at = fresh[4];
    watch(one, at, SOME);
    moved = mremap(at, ALL, 2 * ALL, MREMAP_MAYMOVE);
    printf("over one and none: %s\n", moved == MAP_FAILED ? strerror(errno) : "moved");
}
