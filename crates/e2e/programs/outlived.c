/* The first thread has ended, and stands for the process no more. Another one makes the calls of argument 1. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* The pages of a pipe outlive their mapping, and what is mapped next. */
static int pipes(void)
{
    int ends[2], wrong = 0;
    static char read_back[64 << 10];
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, MIB) >= 0);
    for (int round = 0; round < 30; round++) {
        char *at = map(8 * MIB);
        memset(at, 1 + round, 8 * MIB);
        struct iovec piece = { at + 2 * MIB, sizeof read_back };
        ssize_t given = vmsplice(ends[1], &piece, 1, 0), got = 0;
        CHECK(given > 0 && munmap(at, 8 * MIB) == 0);
        at = map(8 * MIB);
        memset(at, 'z', 8 * MIB);
        usleep(1000);
        while (got < given) {
            ssize_t n = read(ends[0], read_back + got, given - got);
            CHECK(n > 0);
            got += n;
        }
        for (ssize_t i = 0; i < given; i++)
            wrong += read_back[i] != 1 + round;
        CHECK(munmap(at, 8 * MIB) == 0);
    }
    return wrong;
}

/* Mappings of any size grow and shrink. */
static int sizes(void)
{
    int wrong = 0;
    for (size_t bytes = 64 * MIB; bytes <= 1024 * MIB; bytes *= 2) {
        char *at = map(bytes);
        for (size_t i = 0; i < bytes; i += 2 * MIB)
            at[i] = 1;
        at = mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED);
        for (size_t i = 0; i < bytes; i += 2 * MIB)
            wrong += at[i] != 1;
        at = mremap(at, 2 * bytes, bytes / 2 + MIB, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED && munmap(at, bytes / 2 + MIB) == 0);
    }
    return wrong;
}

/* Of a mapping that is watched, the pages that no thread has written to are missing. */
static int watched(void)
{
    map_again(16 * MIB, 1);
    usleep(50000);
    char *at = map(16 * MIB);
    at[0] = 1;
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), present = 0;
    struct uffdio_api api = { .api = UFFD_API };
    struct uffdio_register range = { { (uintptr_t)at, 16 * MIB }, UFFDIO_REGISTER_MODE_MISSING, 0 };
    CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0);
    for (size_t i = 2 * MIB; i < 16 * MIB; i += MIB) {
        struct uffdio_zeropage page = { .range = { (uintptr_t)at + i, 4096 } };
        present += ioctl(fd, UFFDIO_ZEROPAGE, &page) < 0;
    }
    return present;
}

/* A limit of addresses leaves room for what fits. */
static int limited(void)
{
    free(malloc(32 * MIB));
    struct rlimit limit = { 1024 * MIB, 1024 * MIB };
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    int blocks = 0;
    while (blocks < 200 && malloc(16 * MIB))
        blocks++;
    return blocks < 40 || blocks > 64;
}

static int (*work)(void);

static void *outlive(void *unused)
{
    usleep(100000);
    printf("%d wrong\n", work());
    exit(0);
    return unused;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    work = !strcmp(argv[1], "pipes") ? pipes : !strcmp(argv[1], "sizes") ? sizes
        : !strcmp(argv[1], "watched")                                    ? watched
                                                                         : limited;
    map_again(16 * MIB, 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, outlive, NULL) == 0);
    pthread_exit(NULL);
}
