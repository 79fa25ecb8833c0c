/* Reads a large file by mmap, in one of several ways, and prints how many pages hold what they should. The file is its
   own, and not in memory when it is mapped. It rests between pieces, so that a background thread has time to look. */
#include "check.h"

#include <fcntl.h>
#include <setjmp.h>

enum { PAGES_OF_PIECE = 64, PIECES = 256, PAGES = PIECES * PAGES_OF_PIECE };
static const size_t piece = PAGES_OF_PIECE * 4096, bytes = PAGES * (size_t)4096;

static sigjmp_buf left;
static char *volatile left_at;

static void leave(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    left_at = info->si_addr;
    siglongjmp(left, info->si_code);
}

/* A word for each page, which says where it is. */
static uint64_t word(size_t page)
{
    return (page + 1) * 0x9e3779b97f4a7c15u;
}

/* At the start of a file. */
static void write_words(int fd, size_t from)
{
    uint64_t *buffer = calloc(1, piece);
    for (size_t i = 0; i < PIECES; i++) {
        for (size_t page = 0; page < PAGES_OF_PIECE; page++)
            buffer[page * 512] = word(from + i * PAGES_OF_PIECE + page);
        CHECK(pwrite(fd, buffer, piece, (off_t)(i * piece)) == (ssize_t)piece);
    }
    free(buffer);
}

static int make_file(size_t from)
{
    char name[] = "reads.XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    write_words(fd, from);
    CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    return fd;
}

static char *map_file(int fd, int prot, int flags)
{
    char *at = mmap(NULL, bytes, prot, flags, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static size_t is_right(const char *at, size_t page, size_t from)
{
    return *(const volatile uint64_t *)(at + page * 4096) == word(from + page);
}

/* Reads a piece; how many of its pages are right. */
static size_t read_piece(const char *at, size_t i, size_t from)
{
    size_t right = 0;
    for (size_t page = i * PAGES_OF_PIECE; page < (i + 1) * PAGES_OF_PIECE; page++)
        right += is_right(at, page, from);
    if (i % 4 == 0)
        usleep(1000);
    return right;
}

static size_t read_pieces(const char *at, size_t first, size_t end, size_t from)
{
    size_t right = 0;
    for (size_t i = first; i < end; i++)
        right += read_piece(at, i, from);
    return right;
}

static size_t backward(int fd)
{
    size_t right = 0;
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    for (size_t i = PIECES; i > 0; i--)
        right += read_piece(at, i - 1, 0);
    return right;
}

/* Private changes stay, and the file has none. */
static size_t writes(int fd)
{
    size_t right = 0;
    char *at = map_file(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    for (size_t i = 0; i < PIECES; i++) {
        right += read_piece(at, i, 0);
        at[i * piece + 100] = 7;
    }
    for (size_t i = 0; i < PIECES; i++) {
        char byte;
        CHECK(pread(fd, &byte, 1, (off_t)(i * piece + 100)) == 1 && byte == 0 && at[i * piece + 100] == 7);
    }
    return right;
}

static size_t at_random(int fd)
{
    size_t right = 0;
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    uint64_t x = 1;
    for (size_t i = 0; i < 4000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        right += is_right(at, (x >> 33) % PAGES, 0);
        if (i % 16 == 0)
            usleep(1000);
    }
    return right;
}

static size_t advised(int fd)
{
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    CHECK(madvise(at, bytes, MADV_SEQUENTIAL) == 0);
    return read_pieces(at, 0, PIECES, 0);
}

/* The file ends in the middle, while the rest of it is asked for: the page that cannot be read. */
static size_t shortened(int fd)
{
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    struct sigaction action = { .sa_sigaction = leave, .sa_flags = SA_SIGINFO };
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    size_t end = (PIECES / 2 + 1) * PAGES_OF_PIECE + 5;
    int code = sigsetjmp(left, 1);
    if (code == 0) {
        for (size_t i = 0; i < PIECES; i++) {
            /* A part of the last page stays. */
            if (i == PIECES / 2)
                CHECK(ftruncate(fd, (off_t)(end * 4096 - 1000)) == 0);
            read_piece(at, i, 0);
        }
    }
    CHECK(code == BUS_ADRERR && left_at == at + end * 4096);
    return (size_t)(left_at - at) / 4096;
}

/* The file is emptied and written anew while it is asked for. */
static size_t rewritten(int fd)
{
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    size_t right = read_pieces(at, 0, PIECES / 2, 0);
    CHECK(ftruncate(fd, 0) == 0);
    usleep(10000);
    write_words(fd, 1000000);
    return right + read_pieces(at, 0, PIECES, 1000000);
}

/* Another file, and memory without a file, at the same address. */
static size_t replaced(int fd)
{
    int other = make_file(1000000);
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    size_t right = read_pieces(at, 0, PIECES / 2, 0);
    CHECK(mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, other, 0) == at);
    right += read_pieces(at, 0, PIECES / 2, 1000000);
    CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    usleep(100000);
    for (size_t page = 0; page < PAGES; page++)
        CHECK(at[page * 4096] == 0);
    return right;
}

static size_t forks(int fd)
{
    char *at = map_file(fd, PROT_READ, MAP_PRIVATE);
    size_t right = read_pieces(at, 0, PIECES / 2, 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(read_pieces(at, 0, PIECES, 0) == PAGES ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    right += read_pieces(at, PIECES / 2, PIECES, 0);
    CHECK(munmap(at, bytes) == 0);
    return right;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "sequence";
    const struct { const char *name; size_t (*reads)(int); } ways[] = {
        { "backward", backward },   { "writes", writes },     { "random", at_random }, { "advised", advised },
        { "shortened", shortened }, { "rewritten", rewritten }, { "replaced", replaced }, { "forks", forks },
    };
    int fd = make_file(0);
    size_t right = 0;
    if (strcmp(how, "sequence") == 0)
        right = read_pieces(map_file(fd, PROT_READ, MAP_PRIVATE), 0, PIECES, 0);
    if (strcmp(how, "shared") == 0)
        right = read_pieces(map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED), 0, PIECES, 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(how, ways[i].name) == 0)
            right = ways[i].reads(fd);
    printf("%zu\n", right);
    return right == 0;
}
