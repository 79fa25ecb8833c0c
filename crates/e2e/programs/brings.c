/* Maps a large file that is brought, in one of several ways, and prints whether it holds what it should. The file is not
   in the kernel's cache when it is mapped. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/file.h>

enum { PAGES = 18 * 1024, SIZE = PAGES * 4096, ROUNDS = 9, STEPS = 24, THREADS = 3 };

static sigjmp_buf left;
static int file;

static void leave(int number)
{
    (void)number;
    siglongjmp(left, 1);
}

/* A word for each page, at its start and at its end. */
static uint64_t word(size_t page)
{
    return (page + 1) * 0x9e3779b97f4a7c15u;
}

static void forget_cache(void)
{
    CHECK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

static void make_file(void)
{
    file = open("weights.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    uint64_t *buffer = calloc(1, 1024 * 4096);
    for (size_t at = 0; at < PAGES; at += 1024) {
        for (size_t page = 0; page < 1024; page++)
            buffer[page * 512] = buffer[page * 512 + 511] = word(at + page);
        CHECK(write(file, buffer, 1024 * 4096) == 1024 * 4096);
    }
    free(buffer);
    CHECK(fsync(file) == 0);
    forget_cache();
}

static char *map_file(size_t from, size_t pages, int flags)
{
    char *at = mmap(NULL, pages * 4096, PROT_READ, flags, file, from * 4096);
    CHECK(at != MAP_FAILED);
    return at;
}

static int is_right(const char *at, uint64_t expected)
{
    const volatile uint64_t *words = (const volatile uint64_t *)at;
    return words[0] == expected && words[511] == expected && words[100] == 0;
}

static void check_all(const char *at, size_t from, size_t pages)
{
    for (size_t page = 0; page < pages; page++)
        CHECK(is_right(at + page * 4096, word(from + page)));
}

/* Several looks, with time for a background thread. */
static void check_slowly(const char *at)
{
    for (int i = 0; i < 20; i++) {
        for (size_t page = i; page < PAGES; page += 512)
            CHECK(is_right(at + page * 4096, word(page)));
        usleep(10000);
    }
    check_all(at, 0, PAGES);
}

static int ends_in_a_signal(const char *at)
{
    struct sigaction action = { .sa_handler = leave }, before;
    CHECK(sigaction(SIGBUS, &action, &before) == 0);
    int has_left = sigsetjmp(left, 1);
    if (has_left == 0)
        (void)*(const volatile char *)at;
    CHECK(sigaction(SIGBUS, &before, NULL) == 0);
    return has_left;
}

/* What a mapping should hold: nothing, zeroes, the file's bytes, or a word of the program's. */
enum { GONE, ZERO, OF_FILE, OWN };

struct oracle {
    char *at;
    size_t from, pages;
    unsigned char kind[PAGES];
};

static void check_pages(const struct oracle *o, size_t first, size_t n)
{
    for (size_t page = first; page < first + n && page < o->pages; page++) {
        uint64_t expected = o->kind[page] == OF_FILE ? word(o->from + page) : o->kind[page] == OWN ? ~word(page) : 0;
        if (o->kind[page] != GONE)
            CHECK(is_right(o->at + page * 4096, expected));
    }
}

static int is_plain(const struct oracle *o, size_t first, size_t n)
{
    for (size_t page = first; page < first + n; page++)
        if (o->kind[page] != OF_FILE)
            return 0;
    return 1;
}

static void child_checks(const struct oracle *o, size_t first, size_t n)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_pages(o, first, n);
        if (is_plain(o, first, n))
            CHECK(madvise(o->at + first * 4096, n * 4096, MADV_DONTNEED) == 0);
        check_pages(o, first, n);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void step(struct oracle *o, unsigned *seed, int flags)
{
    static const int advices[] = { MADV_DONTNEED, MADV_WILLNEED, MADV_RANDOM, MADV_COLD, MADV_SEQUENTIAL,
                                   MADV_PAGEOUT, MADV_NORMAL, MADV_DONTFORK, MADV_DOFORK, MADV_DONTDUMP };
    size_t n = 1 + rand_r(seed) % (rand_r(seed) % 2 ? 5000 : 5);
    size_t first = rand_r(seed) % (o->pages - n);
    char *at = o->at + first * 4096;
    switch (rand_r(seed) % 10) {
    case 0:
        if (is_plain(o, first, n)) {
            int advice = advices[rand_r(seed) % (sizeof advices / sizeof *advices)];
            CHECK(madvise(at, n * 4096, advice) == 0);
            if (advice == MADV_DONTFORK)
                CHECK(madvise(at, n * 4096, MADV_DOFORK) == 0);
        }
        break;
    case 1:
        if (flags == MAP_PRIVATE && is_plain(o, first, n)) {
            CHECK(mprotect(at, n * 4096, PROT_READ | PROT_WRITE) == 0);
            for (size_t page = first; page < first + n; page += 1 + rand_r(seed) % 50) {
                uint64_t *words = (uint64_t *)(o->at + page * 4096);
                words[0] = words[511] = ~word(page);
                o->kind[page] = OWN;
            }
            if (rand_r(seed) % 2)
                CHECK(mprotect(at, n * 4096, PROT_READ) == 0);
        }
        break;
    case 2:
        CHECK(munmap(at, n * 4096) == 0);
        CHECK(mmap(at, n * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at);
        memset(o->kind + first, GONE, n);
        break;
    case 3:
        CHECK(mmap(at, n * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        memset(o->kind + first, ZERO, n);
        break;
    case 4:
        CHECK(mmap(at, n * 4096, PROT_READ, flags | MAP_FIXED, file, (o->from + first) * 4096) == at);
        memset(o->kind + first, OF_FILE, n);
        break;
    case 5:
        if (is_plain(o, first, n) && mlock(at, n * 4096) == 0)
            CHECK(munlock(at, n * 4096) == 0);
        break;
    case 6:
        if (is_plain(o, 0, o->pages)) {
            char *place = mmap(NULL, o->pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *to = mremap(o->at, o->pages * 4096, o->pages * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, place);
            CHECK(to != MAP_FAILED);
            o->at = to;
        }
        break;
    case 7:
        if (is_plain(o, first, n))
            CHECK(msync(at, n * 4096, MS_SYNC) == 0);
        break;
    case 8:
        child_checks(o, first, n > 500 ? 500 : n);
        break;
    default:
        usleep(rand_r(seed) % 5000);
    }
    first = rand_r(seed) % o->pages;
    check_pages(o, first, 1 + rand_r(seed) % 2000);
}

static void *walk(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    struct oracle *o = malloc(sizeof *o);
    for (int round = 0; round < ROUNDS / THREADS; round++) {
        int flags = rand_r(&seed) % 2 ? MAP_PRIVATE : MAP_SHARED;
        o->from = rand_r(&seed) % 3 ? rand_r(&seed) % 1000 : 0;
        o->pages = PAGES - o->from - rand_r(&seed) % 1000;
        forget_cache();
        o->at = map_file(o->from, o->pages, flags);
        memset(o->kind, OF_FILE, o->pages);
        for (int i = 0; i < STEPS; i++)
            step(o, &seed, flags);
        check_pages(o, 0, o->pages);
        CHECK(munmap(o->at, o->pages * 4096) == 0);
    }
    free(o);
    return NULL;
}

/* What others write to the file is there at once, wherever it is brought by then. */
static void changed(void)
{
    char *at = map_file(0, PAGES, MAP_SHARED), *own = map_file(0, PAGES, MAP_PRIVATE);
    char *other = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(other != MAP_FAILED);
    unsigned seed = 1;
    for (int i = 0; i < 400; i++) {
        size_t page = rand_r(&seed) % PAGES;
        uint64_t value = rand_r(&seed);
        if (i % 2)
            CHECK(pwrite(file, &value, sizeof value, page * 4096 + 800) == sizeof value);
        else
            memcpy(other + page * 4096 + 800, &value, sizeof value);
        CHECK(memcmp(at + page * 4096 + 800, &value, sizeof value) == 0);
        CHECK(memcmp(own + page * 4096 + 800, &value, sizeof value) == 0);
        value = 0;
        CHECK(pwrite(file, &value, sizeof value, page * 4096 + 800) == sizeof value);
        usleep(200);
    }
    check_all(at, 0, PAGES);
    check_all(own, 0, PAGES);
}

static void shortened(void)
{
    char *at = map_file(0, PAGES, MAP_SHARED);
    usleep(2000);
    CHECK(ftruncate(file, SIZE / 4 + 4096) == 0);
    CHECK(ends_in_a_signal(at + SIZE / 2) && ends_in_a_signal(at + SIZE / 4 + 8192));
    check_all(at, 0, PAGES / 4);
    CHECK(ftruncate(file, SIZE) == 0);
    CHECK(is_right(at + SIZE / 2, 0));
}

/* The descriptor may go, and another file may have its name. */
static void renamed(void)
{
    char *at = map_file(0, PAGES, MAP_SHARED);
    int second = open("other", O_RDWR | O_CREAT, 0600);
    CHECK(rename("other", "weights.bin") == 0 && close(file) == 0);
    check_slowly(at);
    CHECK(munmap(at, SIZE) == 0 && close(second) == 0);
}

/* A lock of the open file ends with its last mapping, by which call this may go. */
static void locked(void)
{
    for (int i = 0; i < 6; i++) {
        int own = open("weights.bin", O_RDONLY);
        CHECK(own >= 0 && flock(own, LOCK_EX) == 0);
        char *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, own, 0);
        CHECK(at != MAP_FAILED && close(own) == 0);
        check_all(at, 0, 10);
        usleep(i * 1000);
        CHECK(flock(file, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
        CHECK(i % 2 ? munmap(at, SIZE) == 0 : mmap(at, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        /* A request for a part of it may be under way. */
        CHECK(flock(file, LOCK_EX) == 0 && flock(file, LOCK_UN) == 0);
        forget_cache();
    }
}

/* Private changes stay private, and in this process. */
static void written(void)
{
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(at != MAP_FAILED);
    for (size_t page = 7; page < PAGES; page += 100)
        memset(at + page * 4096, 9, 4096);
    usleep(50000);
    uint64_t nines = 0x0909090909090909u;
    for (size_t page = 0; page < PAGES; page++) {
        int is_own = page % 100 == 7;
        CHECK(is_own ? *(uint64_t *)(at + page * 4096) == nines : is_right(at + page * 4096, word(page)));
    }
    check_all(map_file(0, PAGES, MAP_SHARED), 0, PAGES);
}

static void at_random(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, walk, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void cached(void)
{
    static char buffer[1 << 20];
    for (size_t at = 0; at < SIZE; at += sizeof buffer)
        CHECK(pread(file, buffer, sizeof buffer, at) == sizeof buffer);
    check_slowly(map_file(0, PAGES, MAP_SHARED));
}

static void shared(void)
{
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED);
    check_slowly(at);
}

static void advised(void)
{
    char *at = map_file(0, PAGES, MAP_SHARED);
    CHECK(madvise(at, SIZE, MADV_RANDOM) == 0);
    check_slowly(at);
}

/* The program waits until all of it may be there, and finds what it had. */
static void slowly(void)
{
    char *at = map_file(0, PAGES, MAP_SHARED);
    check_slowly(at);
    CHECK(munmap(at, SIZE) == 0);
}

int main(int count, char **arguments)
{
    static const struct way ways[] = {
        { "slowly", slowly },   { "random", at_random }, { "changed", changed }, { "shortened", shortened },
        { "renamed", renamed }, { "locked", locked },    { "written", written }, { "cached", cached },
        { "shared", shared },   { "advised", advised },  { NULL, NULL },
    };
    CHECK(count == 2);
    make_file();
    run_way(arguments[1], ways);
    puts("right");
}
