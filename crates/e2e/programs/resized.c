/* realloc of blocks that are more than bytes: a file in the midst, guards, pages that are watched and missing, limits. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#define FEW (16 * MIB)
#define MANY (64 * MIB)

static char *page_in(char *block, size_t offset)
{
    return (char *)(((uintptr_t)block + offset) & ~4095ul);
}

static int watcher(void)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
    return fd;
}

static void file(void)
{
    char *block = malloc(FEW);
    fill(block, FEW, 1);
    int fd = memfd_create("part", 0);
    CHECK(ftruncate(fd, 4 * MIB) == 0);
    char *bytes = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    fill(bytes, 4 * MIB, 2);
    char *part = page_in(block, 6 * MIB);
    CHECK(mmap(part, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == part);
    size_t offset = part - block;
    watcher();
    CHECK((block = realloc(block, MANY)) != NULL);
    CHECK(is_filled(block + offset, 4 * MIB, 2) && is_filled(block, MIB, 1));
}

static void guarded(void)
{
    char *block = malloc(FEW), *behind = malloc(FEW);
    fill(block, FEW, 1);
    if (madvise(page_in(block, 8 * MIB), 4096, MADV_GUARD_INSTALL) != 0)
        return;
    CHECK((block = realloc(block, MANY)) != NULL && is_filled(block, 4 * MIB, 1));
    free(behind);
    free(block);
}

/* Pages are missing, and nobody serves them: what is there moves along, without a fault. */
static void missing(void)
{
    char *block = malloc(MANY);
    int fd = watcher();
    /* All of it, so that it stays one area. */
    char *first = page_in(block, 0), *end = page_in(block, malloc_usable_size(block) + 4095);
    struct uffdio_register range = {
        .range = {(uintptr_t)first, end - first}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    block[0] = 3;
    CHECK(madvise(first + 4096, MANY - MIB, MADV_DONTNEED) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0);
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    alarm(60);
    CHECK((block = realloc(block, 2 * MANY)) != NULL && block[0] == 3);
}

/* What a block gives back when it shrinks is there for the next, also within a limit. */
static void limited(void)
{
    char *block = malloc(10 * MANY);
    fill(block, MIB, 4);
    struct rlimit limit = {1100 * MIB, 1100 * MIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK((block = realloc(block, 200000)) != NULL && is_filled(block, 100000, 4));
    CHECK(malloc(10 * MANY) != NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"file", file}, {"guarded", guarded}, {"missing", missing}, {"limited", limited}};
    CHECK(argc == 2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            all[i].run();
    return puts("as in a plain run") < 0;
}
