/* The program watches mappings of its own by a userfaultfd: it hears of every first touch, and of what it drops and
 * unmaps as such, and never of a move. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define BYTES (96 * MIB)

static int fd, stop, faults;
static char *base;

/* The kernel tells of each area alone, and huge-page advice may have made several of one. */
static void heard(const char *what, long start, long end)
{
    static const char *last = "begin";
    static long from, to;
    if (strcmp(what, last) == 0 && start == to) {
        to = end;
        return;
    }
    printf("%s %ld %ld\n", last, from, to);
    last = what, from = start, to = end;
}

static void *listen_to(void *arg)
{
    static char page[4096];
    memset(page, 0x58, sizeof page);
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        struct pollfd wait = { fd, POLLIN, 0 };
        struct uffd_msg message;
        if (poll(&wait, 1, 1) != 1 || read(fd, &message, sizeof message) != sizeof message)
            continue;
        if (message.event == UFFD_EVENT_PAGEFAULT) {
            struct uffdio_copy copy = { .dst = message.arg.pagefault.address & ~4095ull, .src = (uintptr_t)page, .len = 4096 };
            CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0);
            faults++;
        } else {
            CHECK(message.event == UFFD_EVENT_REMOVE || message.event == UFFD_EVENT_UNMAP);
            heard(message.event == UFFD_EVENT_REMOVE ? "dropped" : "unmapped", message.arg.remove.start - (uintptr_t)base,
                  message.arg.remove.end - (uintptr_t)base);
        }
    }
    heard("end", 0, 0);
    return arg;
}

static void watch(char *at, size_t bytes)
{
    struct uffdio_register range = { .range = { (uintptr_t)at, bytes }, .mode = UFFDIO_REGISTER_MODE_MISSING };
    CHECK(ioctl(fd, UFFDIO_REGISTER, &range) == 0);
}

int main(void)
{
    map_again(8 * MIB, 1);
    char *fresh = map(8 * MIB), *more;
    base = map(BYTES);
    for (int i = 0; i < 6; i++) {
        fill(base, BYTES, i);
        CHECK(madvise(base, BYTES, MADV_DONTNEED) == 0 && is_zero(base, BYTES));
    }
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = { .api = UFFD_API,
                              .features = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP };
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) {
        puts("no userfaultfd here");
        return 0;
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, listen_to, NULL) == 0);
    watch(fresh, 8 * MIB);
    watch(more = map(8 * MIB), 8 * MIB);
    for (size_t i = 0; i < 8 * MIB; i += 4096)
        CHECK(((volatile char *)fresh)[i] == 0x58 && ((volatile char *)more)[i] == 0x58);
    fill(base, BYTES, 7);
    watch(base, BYTES);
    for (int i = 0; i < 3; i++) {
        CHECK(madvise(base, BYTES, MADV_DONTNEED) == 0);
        CHECK(madvise(base, BYTES, MADV_POPULATE_WRITE) == 0 && base[BYTES / 2] == 0x58);
    }
    CHECK(munmap(base, BYTES) == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
    printf("%d faults\n", faults);
}
