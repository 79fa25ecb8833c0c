/* The kernel uses memory of a block after it was freed, and not the next one's: "ring" (a ring that lies in a block),
 * "buffers" (registered with a registered ring), "update" (as the last of many), "aio". */
#include "check.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1u << 14)
#endif

enum { BLOCK = 40000000, ROUNDS = 4, MANY = 40 };

static void *block(int byte)
{
    void *at;
    CHECK(posix_memalign(&at, 4096, BLOCK) == 0);
    memset(at, byte, BLOCK);
    return at;
}

static int is_all(const char *at, size_t bytes, int byte)
{
    return at[0] == byte && memcmp(at, at + 1, bytes - 1) == 0;
}

static int refused(void)
{
    puts("no ring");
    return 0;
}

static int ring(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        static char into[64];
        int ends[2];
        char *memory = block(0);
        struct io_uring_params p = { .flags = IORING_SETUP_NO_MMAP };
        /* The addresses of both parts, where older headers have reserved words. */
        *(uint64_t *)((char *)&p.sq_off + 32) = (uintptr_t)memory;
        *(uint64_t *)((char *)&p.cq_off + 32) = (uintptr_t)memory + 8192;
        int fd = syscall(SYS_io_uring_setup, 8, &p);
        if (fd < 0)
            return refused();
        CHECK(pipe(ends) == 0);
        struct io_uring_sqe *entry = (void *)memory;
        for (int i = 0; i < 4; i++) {
            entry[i] = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = ends[0], .addr = (uintptr_t)into,
                                              .len = 8, .off = -1, .user_data = 0x51 };
            ((unsigned *)(memory + 8192 + p.sq_off.array))[i] = i;
        }
        __atomic_store_n((unsigned *)(memory + 8192 + p.sq_off.tail), 4, __ATOMIC_RELEASE);
        CHECK(syscall(SYS_io_uring_enter, fd, 4, 0, 0, NULL, 0) == 4);
        close(fd);
        free(memory);
        char *next = block(7);
        usleep(50000);
        CHECK(is_all(next, BLOCK, 7));
        free(next);
        close(ends[0]);
        close(ends[1]);
    }
    return 1;
}

static int registered(int update)
{
    struct io_uring_params p = { 0 };
    int ends[2], fd = syscall(SYS_io_uring_setup, 8, &p), use = fd;
    if (fd < 0)
        return refused();
    char *queue = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, p.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
    CHECK(queue != MAP_FAILED && entry != MAP_FAILED && pipe(ends) == 0);
    static char small[4096] __attribute__((aligned(4096)));
    struct iovec pieces[MANY];
    char *memory = block(1);
    for (int i = 0; i < MANY; i++)
        pieces[i] = (struct iovec){ i + 1 < MANY ? small : memory, i + 1 < MANY ? sizeof small : MIB };
    if (update) {
        struct io_uring_rsrc_register all = { .nr = 64, .flags = 1 };
        struct io_uring_rsrc_update2 some = { .data = (uintptr_t)pieces, .nr = MANY };
        CHECK(syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS2, &all, sizeof all) == 0);
        CHECK(syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS_UPDATE, &some, sizeof some) == MANY);
    } else {
        struct io_uring_rsrc_update one = { .offset = -1u, .data = fd };
        CHECK(syscall(SYS_io_uring_register, fd, IORING_REGISTER_RING_FDS, &one, 1) == 1);
        use = one.offset;
        CHECK(syscall(SYS_io_uring_register, use, 1u << 31 | IORING_REGISTER_BUFFERS, &pieces[MANY - 1], 1) == 0);
    }
    *entry = (struct io_uring_sqe){ .opcode = IORING_OP_READ_FIXED, .fd = ends[0], .addr = (uintptr_t)memory, .len = 4096,
                                    .buf_index = update ? MANY - 1 : 0, .off = -1 };
    ((unsigned *)(queue + p.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(queue + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0) == 1);
    free(memory);
    char *next = block(7), text[4096];
    memset(text, 'X', sizeof text);
    CHECK(write(ends[1], text, sizeof text) == sizeof text);
    usleep(100000);
    syscall(SYS_io_uring_enter, fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0);
    CHECK(is_all(next, BLOCK, 7));
    return 1;
}

static int aio(void)
{
    char name[] = "/tmp/used_later.XXXXXX";
    const size_t length = 24 * MIB;
    aio_context_t context = 0;
    int fd = mkostemp(name, O_DIRECT);
    if (fd < 0 || syscall(SYS_io_setup, 8, &context) || posix_fallocate(fd, 0, length))
        return refused();
    for (int round = 0; round < ROUNDS; round++) {
        char *memory = block(1);
        struct iocb one = { .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (uintptr_t)memory,
                            .aio_nbytes = length }, *all = &one;
        CHECK(syscall(SYS_io_submit, context, 1, &all) == 1);
        free(memory);
        char *next = block(7);
        struct io_event end;
        CHECK(syscall(SYS_io_getevents, context, 1, 1, &end, NULL) == 1 && end.res == (long)length);
        CHECK(pread(fd, next, length, 0) == (long)length && is_all(next, length, 1));
        free(next);
    }
    unlink(name);
    return 1;
}

int main(int n, char **args)
{
    const char *how = n > 1 ? args[1] : "ring";
    for (int i = 0; i < 3; i++)
        free(block(1));
    int done = !strcmp(how, "ring")    ? ring()
             : !strcmp(how, "buffers") ? registered(0)
             : !strcmp(how, "update")  ? registered(1)
                                       : aio();
    if (done)
        puts("apart");
}
