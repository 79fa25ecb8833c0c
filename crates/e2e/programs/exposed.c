/* Memory from before a program's first userfaultfd. What was never touched is a fault first, also after a fork, in the
 * child or the parent. Pages are moved from memory that nobody registered. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef UFFDIO_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
struct uffdio_move {
    uint64_t dst, src, len, mode;
    int64_t move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif
#define BYTES (64 * MIB)
#define PAGES (BYTES / 4096)

static int watcher(uint64_t features)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    CHECK(fd >= 0);
    if (ioctl(fd, UFFDIO_API, &api) != 0)
        exit(puts("the kernel does not move pages") < 0);
    return fd;
}

static void watch(int fd, char *at)
{
    struct uffdio_register range = {.range = {(uintptr_t)at, BYTES}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(fd, UFFDIO_REGISTER, &range) == 0);
}

/* Serves faults until nobody needs it any more. */
static void *serve(void *number)
{
    int fd = (int)(intptr_t)number;
    struct uffd_msg message;
    while (read(fd, &message, sizeof message) == sizeof message) {
        char page[4096];
        memset(page, 7, sizeof page);
        struct uffdio_copy copy = {
            .dst = message.arg.pagefault.address & ~4095ul, .src = (uintptr_t)page, .len = sizeof page};
        CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0);
    }
    return NULL;
}

/* The pages that were no fault. */
static int read_all(const volatile char *at)
{
    int without = 0;
    for (size_t i = 0; i < PAGES; i++)
        without += at[i * 4096] != 7;
    return without;
}

static int served(char *at)
{
    pthread_t thread;
    int fd = watcher(0);
    watch(fd, at);
    CHECK(pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0);
    return read_all(at);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    map_again(BYTES, 3);
    char *at = map(BYTES);
    usleep(50000);
    if (strcmp(argv[1], "moved") == 0) {
        /* What was used is moved, though nobody registers it. */
        for (size_t i = 0; i < BYTES / 2; i += 64 * 4096)
            at[i] = 5;
        usleep(50000);
        int fd = watcher(UFFD_FEATURE_MOVE);
        char *to = map(BYTES);
        watch(fd, to);
        /* Holes are allowed. */
        struct uffdio_move move = {.dst = (uintptr_t)to, .src = (uintptr_t)at, .len = BYTES, .mode = 2};
        CHECK(ioctl(fd, UFFDIO_MOVE, &move) == 0 && move.move == (int64_t)BYTES && to[0] == 5);
        return puts("moved") < 0;
    }
    int ends[2], status, is_child_watching = strcmp(argv[1], "parent") != 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if ((child == 0) == is_child_watching) {
        printf("without a fault: %d\n", served(at));
        if (child == 0)
            exit(0);
        CHECK(write(ends[1], "", 1) == 1);
    } else if (child == 0) {
        char byte;
        CHECK(read(ends[0], &byte, 1) == 1);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
