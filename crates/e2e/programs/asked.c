/* realloc of a block of which the program has changed what it asked for, from the page on in which that begins: what the
   kernel says of its places then. Arguments: a call, how much of the block, and its sizes in KiB, one after the other. */
#include "check.h"
#include <malloc.h>
#include <sys/syscall.h>

#define KIB ((size_t)1 << 10)
#define RUN (PROT_READ | PROT_WRITE | PROT_EXEC)

/* Rights and flags of the area at `at`. */
static void show(const char *place, char *at)
{
    static const char *const flags[] = {" lo", " dc", " dd", " wf", " mg"};
    char line[512], rights[8] = "";
    int is_there = 0;
    FILE *areas = fopen("/proc/self/smaps", "r");
    CHECK(areas != NULL);
    while (fgets(line, sizeof line, areas)) {
        uintptr_t start, end;
        char word[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, word) == 3) {
            is_there = start <= (uintptr_t)at && (uintptr_t)at < end;
            if (is_there)
                strcpy(rights, word);
        } else if (is_there && strncmp(line, "VmFlags", 7) == 0) {
            printf("%s: %s", place, rights);
            for (int i = 0; i < 5; i++)
                printf("%s=%d", flags[i], strstr(line + 8, flags[i]) != NULL);
            puts("");
        }
    }
    fclose(areas);
}

static char *at;
static size_t bytes;

static long by_process_madvise(int by_number, int advice)
{
    struct iovec {
        void *base;
        size_t bytes;
    } piece = {at, bytes};
    int fd = syscall(SYS_pidfd_open, getpid(), 0);
    ssize_t (*named)(int, const struct iovec *, size_t, int, unsigned) = (void *)process_madvise;
    long done = by_number ? syscall(SYS_process_madvise, fd, &piece, 1, advice, 0) : named(fd, &piece, 1, advice, 0);
    close(fd);
    return done < 0 ? -1 : 0;
}

#define CALLS                                                                                          \
    X(mprotect, mprotect(at, bytes, RUN))                                                              \
    X(sys_mprotect, syscall(SYS_mprotect, at, bytes, RUN))                                             \
    X(pkey_mprotect, pkey_mprotect(at, bytes, RUN, -1))                                                \
    X(sys_pkey_mprotect, syscall(SYS_pkey_mprotect, at, bytes, RUN, -1))                               \
    X(mlock, mlock(at, bytes))                                                                         \
    X(mlock2, mlock2(at, bytes, MLOCK_ONFAULT))                                                        \
    X(sys_mlock, syscall(SYS_mlock, at, bytes))                                                        \
    X(sys_mlock2, syscall(SYS_mlock2, at, bytes, MLOCK_ONFAULT))                                       \
    X(dontfork, madvise(at, bytes, MADV_DONTFORK))                                                     \
    X(wipe, madvise(at, bytes, MADV_WIPEONFORK))                                                       \
    X(dontdump, madvise(at, bytes, MADV_DONTDUMP))                                                     \
    X(merge, madvise(at, bytes, MADV_MERGEABLE))                                                       \
    X(sys_wipe, syscall(SYS_madvise, at, bytes, MADV_WIPEONFORK))                                      \
    X(sys_dontdump, syscall(SYS_madvise, at, bytes, MADV_DONTDUMP))                                    \
    X(process_dontfork, by_process_madvise(0, MADV_DONTFORK))                                          \
    X(process_wipe, by_process_madvise(0, MADV_WIPEONFORK))                                            \
    X(sys_process_dontfork, by_process_madvise(1, MADV_DONTFORK))                                      \
    X(sys_process_dontdump, by_process_madvise(1, MADV_DONTDUMP))

static long call(const char *name)
{
#define X(word, what)              \
    if (strcmp(name, #word) == 0) \
        return what;
    CALLS
#undef X
    CHECK(strcmp(name, "nothing") == 0);
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc >= 5);
    /* As long as the program frees no large block, the C library's are mappings. */
    mallopt(M_MMAP_THRESHOLD, 128 * KIB);
    /* With "late" the engine starts when the block grows. */
    int is_late = strcmp(argv[2], "late") == 0, is_part = strcmp(argv[2], "part") == 0;
    char *served = NULL;
    if (!is_late)
        CHECK((served = malloc(9 * MIB)) != NULL && memset(served, 1, 9 * MIB));
    size_t n = strtoul(argv[3], NULL, 10) * KIB;
    char *block = malloc(n);
    CHECK(block != NULL);
    memset(block, 7, n);
    at = (char *)((uintptr_t)block & ~4095ul);
    bytes = ((block + n - at) + 4095) & ~4095ul;
    if (is_part)
        bytes -= 8 * KIB;
    printf("call: %ld\n", call(argv[1]));
    for (int i = 4; i < argc; i++) {
        size_t to = strtoul(argv[i], NULL, 10) * KIB;
        CHECK((block = realloc(block, to)) != NULL);
        size_t least = n < to ? n : to;
        for (size_t j = 0; j < least; j++)
            CHECK(block[j] == 7);
        memset(block, 7, to);
        n = to;
        printf("to %zu KiB\n", to / KIB);
        show("begin", block + 4096);
        show("middle", block + n / 2);
        show("end", block + n - 4096);
    }
    free(block);
    free(served);
    return puts("as in a plain run") < 0;
}
