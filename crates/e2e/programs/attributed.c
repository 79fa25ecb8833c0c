/* realloc of blocks whose pages the program has closed, locked, guarded, filled by its own handler or hidden from children:
   of all sizes, larger and smaller, also behind a filter that allows everything. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/prctl.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#define KIB ((size_t)1 << 10)
/* A part in the midst of every block. */
#define PLACE (100 * KIB)
#define PART (64 * KIB)
/* No moment is that long. */
#define LIMIT_MS 20000

static size_t from, to;

/* The first whole page from there on. */
static char *page_in(char *block, size_t offset)
{
    return (char *)(((uintptr_t)block + offset + 4095) & ~4095ul);
}

static char *block_of(size_t bytes)
{
    char *block = malloc(bytes);
    CHECK(block != NULL);
    fill(block, bytes, 1);
    return block;
}

/* All of a block, so that the kernel has one area there. */
static void advise_all(char *block, int advice)
{
    char *first = (char *)((uintptr_t)block & ~4095ul), *end = page_in(block, malloc_usable_size(block));
    CHECK(madvise(first, end - first, advice) == 0);
}

/* Rights by which the processor reads what the kernel does not copy, or nobody reads. */
static void rights(int prot)
{
    char *block = block_of(from), *part = page_in(block, PLACE);
    size_t offset = (uintptr_t)part - (uintptr_t)block;
    CHECK(mprotect(part, PART, prot) == 0 && (block = realloc(block, to)) != NULL);
    if (to < from)
        CHECK(mprotect(page_in(block, PLACE), PART, PROT_READ) == 0);
    CHECK(is_filled(block, offset / 512 * 512, 1));
    for (size_t i = (offset + 511) / 512; i < (offset + PART) / 512; i++)
        CHECK(*(uint64_t *)(block + i * 512) == 0x9e3779b97f4a7c15u + i);
}

static void written(void)
{
    rights(PROT_WRITE);
}

static void run(void)
{
    rights(PROT_EXEC);
}

static void closed(void)
{
    rights(PROT_NONE);
}

static char *lazy;
static int opened;

static void open_lazily(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~4095ul);
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0)
        _exit(8);
    memset(page, 'l', 4096);
    opened++;
}

/* A part that a handler brings when it is read: the copy brings it. */
static void brought(void)
{
    struct sigaction action = {.sa_sigaction = open_lazily, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    char *block = block_of(from);
    lazy = page_in(block, PLACE);
    size_t offset = (uintptr_t)lazy - (uintptr_t)block;
    CHECK(mprotect(lazy, PART, PROT_NONE) == 0 && (block = realloc(block, to)) != NULL);
    CHECK(opened == PART / 4096 && block[offset] == 'l' && memcmp(block + offset, block + offset + 1, PART - 1) == 0);
}

static void hidden(void)
{
    char *block = block_of(from);
    advise_all(block, MADV_WIPEONFORK);
    CHECK((block = realloc(block, to)) != NULL && is_filled(block, from < to ? from : to, 1));
    pid_t child = fork();
    if (child == 0)
        _exit(is_zero(page_in(block, 0), (from < to ? from : to) / 2) ? 0 : 7);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Pages stay locked, those that are added as well, and none counts any more when its block is free. */
static void kept(void)
{
    /* Otherwise the second one is in the heap of the C library. */
    mallopt(M_MMAP_THRESHOLD, 128 * KIB);
    for (int round = 0; round < 5; round++) {
        char *block = block_of(from);
        char *first = (char *)((uintptr_t)block & ~4095ul), *end = page_in(block, malloc_usable_size(block));
        CHECK(mlock(first, end - first) == 0 && (block = realloc(block, to)) != NULL);
        size_t least = to < from ? to : to - 4096;
        CHECK(locked_bytes() >= least && is_filled(block, to < from ? to : from, 1));
        free(block);
        /* It comes back a moment later where another thread has the lock. */
        for (int ms = 0; locked_bytes() != 0; ms++)
            CHECK(ms < LIMIT_MS && usleep(1000) == 0);
    }
}

/* A guard stays where it is in the block. */
static void guarded(void)
{
    char *block = block_of(from), *guard = page_in(block, PLACE);
    size_t offset = (uintptr_t)guard - (uintptr_t)block;
    if (madvise(guard, 4096, MADV_GUARD_INSTALL) != 0)
        return;
    CHECK((block = realloc(block, to)) != NULL && is_filled(block, offset / 512 * 512, 1));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)page_in(block, offset));
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* What is written through a shared mapping in a block is in the file, also when the block has become smaller. */
static void shared(void)
{
    char *block = block_of(from), *part = page_in(block, PLACE);
    size_t offset = (uintptr_t)part - (uintptr_t)block;
    int fd = memfd_create("part", 0);
    CHECK(ftruncate(fd, PART) == 0);
    CHECK(mmap(part, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == part);
    CHECK((block = realloc(block, to)) != NULL);
    block[offset] = 9;
    char byte = 0;
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == (to < from ? 9 : 0));
}

static void confine(void)
{
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {1, all};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*check)(void);
    } all[] = {{"written", written}, {"run", run}, {"closed", closed}, {"brought", brought}, {"hidden", hidden},
               {"kept", kept}, {"guarded", guarded}, {"shared", shared}};
    CHECK(argc >= 4);
    from = strtoul(argv[2], NULL, 10) * KIB;
    to = strtoul(argv[3], NULL, 10) * KIB;
    char *served = block_of(9 * MIB);
    if (argc > 4)
        confine();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            all[i].check();
    free(served);
    return puts("as in a plain run") < 0;
}
