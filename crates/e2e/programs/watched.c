/* The program registers memory with a userfaultfd. It hears of what it does itself and of nothing else, and whatever
 * it hears of it would have heard of alone. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define HUGE (2 * MIB)

static int fd, stop, missing, writes;
static char page[4096];

/* Faults of the kernel are seen too, where this is allowed. */
static void open_one(void)
{
    struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) {
        puts("no userfaultfd here");
        exit(0);
    }
}

static void watch(char *at, size_t bytes, int mode)
{
    struct uffdio_register range = { .range = { (uintptr_t)at, bytes }, .mode = mode };
    CHECK(ioctl(fd, UFFDIO_REGISTER, &range) == 0);
}

static void give(char *at)
{
    struct uffdio_copy copy = { .dst = (uintptr_t)at & ~4095ul, .src = (uintptr_t)page, .len = 4096 };
    CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
}

/* Serves what there is to hear within `ms`. */
static void serve(int ms)
{
    struct pollfd wait = { fd, POLLIN, 0 };
    struct uffd_msg message;
    if (poll(&wait, 1, ms) != 1 || read(fd, &message, sizeof message) != sizeof message)
        return;
    CHECK(message.event == UFFD_EVENT_PAGEFAULT);
    uintptr_t at = message.arg.pagefault.address & ~4095ul;
    if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
        struct uffdio_writeprotect open = { .range = { at, 4096 } };
        CHECK(ioctl(fd, UFFDIO_WRITEPROTECT, &open) == 0);
        writes++;
    } else {
        give((char *)at);
        missing++;
    }
}

static void *listen_to(void *none)
{
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST))
        serve(1);
    return none;
}

static pthread_t begin(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, listen_to, NULL) == 0);
    return thread;
}

static void end(pthread_t thread)
{
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Nothing of it is there yet: each first touch is told of. */
static void untouched(size_t bytes)
{
    char *at = map(bytes);
    open_one();
    watch(at, bytes, UFFDIO_REGISTER_MODE_MISSING);
    pthread_t thread = begin();
    for (size_t i = 0; i < bytes; i += HUGE)
        CHECK(*(volatile char *)(at + i) == 0x58);
    end(thread);
    printf("%d faults in %zu slots\n", missing, bytes / HUGE);
}

/* The same range twice, by a single thread, which nobody could help if it waited. */
static void again(void)
{
    char *at = map(64 * MIB);
    open_one();
    watch(at, 64 * MIB, UFFDIO_REGISTER_MODE_MISSING);
    watch(at, 64 * MIB, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
    watch(at + 5 * MIB, 3 * MIB, UFFDIO_REGISTER_MODE_MISSING);
    serve(20);
    printf("%d faults\n", missing);
}

/* Watched memory is filled a page here and there, and other memory is used meanwhile: nobody touches what is missing. */
static void filled(int is_committed)
{
    size_t bytes = 256 * MIB;
    char *at;
    if (is_committed) {
        at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    } else {
        at = map(bytes);
    }
    open_one();
    watch(at, bytes, UFFDIO_REGISTER_MODE_MISSING);
    for (size_t i = 0; i < bytes; i += HUGE) {
        give(at + i);
        if (i < 40 * MIB)
            usleep(300);
    }
    for (int i = 0; i < 20; i++) {
        char *block = malloc((1 + i % 7) * 16 * MIB), *other = map(64 * MIB);
        CHECK(block != NULL);
        fill(other, 64 * MIB, i);
        block[0] = 1;
        CHECK(munmap(other, 64 * MIB) == 0);
        free(block);
    }
    serve(50);
    printf("%d faults\n", missing);
}

/* All of it is there, one way or another, and protected against writing: each first write is told of. */
static void written(char how)
{
    size_t bytes = 32 * MIB;
    char *at = map(bytes);
    if (how == 'w')
        CHECK(madvise(at, bytes, MADV_POPULATE_WRITE) == 0);
    else if (how == 'r')
        CHECK(madvise(at, bytes, MADV_POPULATE_READ) == 0);
    else if (how == 'z')
        memset(at, 0, bytes);
    else
        fill(at, bytes, 1);
    open_one();
    watch(at, bytes, UFFDIO_REGISTER_MODE_WP);
    struct uffdio_writeprotect protect = { { (uintptr_t)at, bytes }, UFFDIO_WRITEPROTECT_MODE_WP };
    CHECK(ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0);
    pthread_t thread = begin();
    for (size_t i = 0; i < bytes; i += 64 * 4096)
        *(volatile char *)(at + i) = 7;
    end(thread);
    printf("%d writes of %zu, %d missing\n", writes, bytes / 64 / 4096, missing);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    memset(page, 0x58, sizeof page);
    map_again(8 * MIB, 1);
    map_again(32 * MIB, 1);
    if (strcmp(argv[1], "untouched") == 0)
        untouched(atoi(argv[2]) * MIB);
    else if (strcmp(argv[1], "again") == 0)
        again();
    else if (strcmp(argv[1], "filled") == 0)
        filled(0);
    else if (strcmp(argv[1], "committed") == 0)
        filled(1);
    else
        written(argv[2][0]);
}
