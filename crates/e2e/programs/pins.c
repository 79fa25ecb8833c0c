/* Ways in which the kernel, or the program itself, holds on to pages: each with memory of mmap and of malloc, and each
 * followed by others who use the addresses. The first argument says which. */
#include "check.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define BYTES (8 * MIB)
#define ROUNDS 12

/* Memory of one kind or the other: mappings, large blocks, blocks inside a slot. */
static char *get(int kind, size_t *bytes)
{
    *bytes = kind == 2 ? 400000 : BYTES;
    char *at = kind ? malloc(*bytes) : map(*bytes);
    CHECK(at);
    return at;
}

static void give(int kind, char *at, size_t bytes)
{
    if (kind)
        free(at);
    else
        CHECK(munmap(at, bytes) == 0);
}

/* The whole pages of a block. */
static char *pages(char *at, size_t *bytes)
{
    char *start = (char *)(((uintptr_t)at + 4095) & ~(uintptr_t)4095);
    *bytes = (*bytes - (start - at)) & ~(size_t)4095;
    return start;
}

/* Others get memory, which must be theirs alone and, of mmap, zero; also in a child. */
static void others(int seed)
{
    char *at[12];
    size_t bytes[12];
    for (int i = 0; i < 12; i++) {
        at[i] = get(i % 3, &bytes[i]);
        CHECK(i % 3 || is_zero(at[i], bytes[i]));
        fill(at[i], bytes[i], seed + i);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    for (int i = 0; i < 12; i++)
        CHECK(is_filled(at[i], bytes[i], seed + i));
    if (child == 0)
        _exit(0);
    CHECK(ended(child) == 0);
    for (int i = 0; i < 12; i++)
        give(i % 3, at[i], bytes[i]);
}

static void inheritance(int kind, int advice)
{
    size_t bytes, whole;
    char *at = get(kind, &bytes), *start = pages(at, (whole = bytes, &whole));
    memset(at, 7, bytes);
    CHECK(madvise(start, whole, advice) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        int there = write(ends[1], start, 1) == 1;
        _exit(there ? start[0] + 1 : 0);
    }
    printf("child: %d\n", ended(child));
    CHECK(at[0] == 7 && start[whole - 1] == 7);
    /* A heap may give these pages to somebody else. */
    if (kind)
        CHECK(madvise(start, whole, advice == MADV_DONTFORK ? MADV_DOFORK : MADV_KEEPONFORK) == 0);
    give(kind, at, bytes);
}

static void pipe_of_pages(int kind)
{
    size_t bytes, whole;
    char *at = get(kind, &bytes), *start = pages(at, (whole = bytes, &whole)), back[8192];
    memset(at, 0x61, bytes);
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct iovec piece = { start, sizeof back };
    CHECK(vmsplice(ends[1], &piece, 1, 0) == sizeof back);
    give(kind, at, bytes);
    /* A heap may give the same pages to somebody else while the pipe holds them; a mapping is gone for good. */
    if (kind == 0)
        others(kind);
    CHECK(read(ends[0], back, sizeof back) == sizeof back);
    if (kind == 0)
        CHECK(back[0] == 0x61 && back[sizeof back - 1] == 0x61);
    close(ends[0]);
    close(ends[1]);
}

static void other_process(int kind)
{
    size_t bytes;
    char *at = get(kind, &bytes);
    fill(at, bytes, 5);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    char *copy = malloc(bytes);
    struct iovec here = { copy, bytes }, there = { at, bytes };
    CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) == (ssize_t)bytes && is_filled(copy, bytes, 5));
    fill(copy, bytes, 6);
    CHECK(process_vm_writev(child, &here, 1, &there, 1, 0) == (ssize_t)bytes && is_filled(at, bytes, 5));
    memset(copy, 0, bytes);
    CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) == (ssize_t)bytes && is_filled(copy, bytes, 6));
    kill(child, SIGKILL);
    ended(child);
    free(copy);
    give(kind, at, bytes);
}

static void *waker(void *word)
{
    usleep(2000);
    __atomic_store_n((int *)word, 1, __ATOMIC_SEQ_CST);
    while (syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
        usleep(100);
    return NULL;
}

static void shared_futex(int kind)
{
    size_t bytes;
    char *at = get(kind, &bytes);
    int *word = (int *)(at + bytes / 2 / sizeof(int) * sizeof(int));
    *word = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The word is the child's own: nobody wakes it here. */
        struct timespec brief = { 0, 1000000 };
        CHECK(syscall(SYS_futex, word, FUTEX_WAIT, 0, &brief, NULL, 0) == -1 && errno == ETIMEDOUT);
        _exit(0);
    }
    pthread_t thread;
    CHECK(ended(child) == 0 && pthread_create(&thread, NULL, waker, word) == 0);
    CHECK(syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 || errno == EAGAIN);
    /* The waker goes on until it has woken somebody. */
    struct timespec brief = { 0, 300000000 };
    syscall(SYS_futex, word, FUTEX_WAIT, 1, &brief, NULL, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    give(kind, at, bytes);
}

static void past_the_cache(int kind)
{
    size_t bytes, whole;
    char *at = get(kind, &bytes), *start = pages(at, (whole = bytes, &whole)), name[] = "direct-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    close(fd);
    fd = open(name, O_RDWR | O_DIRECT);
    unlink(name);
    if (fd < 0) {
        puts("no O_DIRECT here");
    } else {
        fill(start, whole, 8);
        CHECK(pwrite(fd, start, whole, 0) == (ssize_t)whole);
        memset(start, 0, whole);
        CHECK(pread(fd, start, whole, 0) == (ssize_t)whole && is_filled(start, whole, 8));
        close(fd);
    }
    give(kind, at, bytes);
}

static void registered_buffers(int kind)
{
    struct io_uring_params params = { 0 };
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0) {
        printf("no io_uring here: %d\n", errno);
        return;
    }
    char *rings = mmap(NULL, params.sq_off.array + 64, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4 * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(rings != MAP_FAILED && entry != (void *)MAP_FAILED);
    size_t bytes, whole;
    char *at = get(kind, &bytes), *start = pages(at, (whole = bytes, &whole));
    memset(at, 1, bytes);
    struct iovec buffer = { start, 65536 };
    CHECK(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0);
    if (kind == 0) {
        /* Given back while it is registered: the ring writes to pages that are nobody's any more. */
        give(kind, at, bytes);
        char *next[6];
        for (int i = 0; i < 6; i++) {
            next[i] = map(BYTES);
            CHECK(is_zero(next[i], BYTES));
            memset(next[i], 2, BYTES);
        }
        FILE *file = tmpfile();
        CHECK(file && ftruncate(fileno(file), 65536) == 0);
        *entry = (struct io_uring_sqe){ .opcode = IORING_OP_READ_FIXED, .fd = fileno(file), .addr = (uintptr_t)start,
                                        .len = 65536 };
        ((unsigned *)(rings + params.sq_off.array))[0] = 0;
        __atomic_store_n((unsigned *)(rings + params.sq_off.tail), 1, __ATOMIC_RELEASE);
        CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
        for (int i = 0; i < 6; i++) {
            CHECK(memchr(next[i], 0, BYTES) == NULL);
            CHECK(munmap(next[i], BYTES) == 0);
        }
        fclose(file);
    } else {
        give(kind, at, bytes);
    }
    munmap(rings, params.sq_off.array + 64);
    munmap(entry, 4 * sizeof *entry);
    close(ring);
}

struct handler {
    int fd, stop, served;
};

static void *handle(void *arg)
{
    struct handler *handler = arg;
    static char page[4096];
    while (!__atomic_load_n(&handler->stop, __ATOMIC_SEQ_CST)) {
        struct pollfd wait = { handler->fd, POLLIN, 0 };
        struct uffd_msg message;
        if (poll(&wait, 1, 1) != 1 || read(handler->fd, &message, sizeof message) != sizeof message)
            continue;
        CHECK(message.event == UFFD_EVENT_PAGEFAULT);
        memset(page, 0x5b, sizeof page);
        struct uffdio_copy copy = { .dst = message.arg.pagefault.address & ~4095ull, .src = (uintptr_t)page, .len = 4096 };
        CHECK(ioctl(handler->fd, UFFDIO_COPY, &copy) == 0);
        __atomic_add_fetch(&handler->served, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void own_faults(int kind, int unregister)
{
    struct handler handler = { .fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK) };
    struct uffdio_api api = { .api = UFFD_API };
    if (handler.fd < 0 || ioctl(handler.fd, UFFDIO_API, &api) != 0) {
        printf("no userfaultfd here: %d\n", errno);
        return;
    }
    size_t bytes, whole;
    char *at = get(kind, &bytes), *start = pages(at, (whole = bytes, &whole));
    whole = whole > 32 * 4096 ? 32 * 4096 : whole;
    /* Also into memory that was there before. */
    CHECK(madvise(start, whole, MADV_DONTNEED) == 0);
    struct uffdio_register range = { .range = { (uintptr_t)start, whole }, .mode = UFFDIO_REGISTER_MODE_MISSING };
    CHECK(ioctl(handler.fd, UFFDIO_REGISTER, &range) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, handle, &handler) == 0);
    for (size_t i = 0; i < whole; i += 4096)
        CHECK(((volatile char *)start)[i] == 0x5b);
    if (unregister)
        CHECK(ioctl(handler.fd, UFFDIO_UNREGISTER, &range.range) == 0);
    int served = whole / 4096;
    while (__atomic_load_n(&handler.served, __ATOMIC_SEQ_CST) < served)
        usleep(100);
    give(kind, at, bytes);
    if (kind == 0 || unregister)
        others(kind);
    __atomic_store_n(&handler.stop, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(handler.served == served);
    close(handler.fd);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    const char *what = argv[1];
    for (int round = 0; round < ROUNDS; round++) {
        int kind = round % 3, first = round < ROUNDS / 2;
        if (strcmp(what, "inheritance") == 0)
            inheritance(kind, first ? MADV_WIPEONFORK : MADV_DONTFORK);
        else if (strcmp(what, "pipe") == 0)
            pipe_of_pages(kind);
        else if (strcmp(what, "process") == 0)
            other_process(kind);
        else if (strcmp(what, "futex") == 0)
            shared_futex(kind);
        else if (strcmp(what, "direct") == 0)
            past_the_cache(kind);
        else if (strcmp(what, "io_uring") == 0)
            registered_buffers(kind);
        else
            own_faults(kind, first);
        others(round);
    }
    puts("done");
}
