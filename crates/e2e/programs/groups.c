/* Does one thing that the library counts, or that a knob changes: the argument says which. With `stop` before it, it
 * stops first, with the library at work, for somebody to turn a knob, and once more at the end. */
#include "check.h"
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

static volatile char sink;

/* The compiler may not leave out what is written to memory that is then freed. */
#define SEEN() __asm__ volatile("" ::: "memory")

static void rest(int ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
    while (nanosleep(&time, &time) != 0)
        ;
}

/* Memory with something in every page, given back. */
static void use(size_t bytes)
{
    char *at = map(bytes);
    fill(at, bytes, bytes);
    CHECK(munmap(at, bytes) == 0);
}

static void use_block(size_t bytes)
{
    char *volatile at = malloc(bytes);
    CHECK(at);
    fill(at, bytes, bytes);
    SEEN();
    free(at);
}

static void blocks(void)
{
    use_block(8 * MIB);
    use_block(4 * MIB);
    char *small = malloc(300000), *large = malloc(8 * MIB);
    CHECK(small && large);
    small = realloc(small, 300001);
    fill(large, 8 * MIB, 7);
    large = realloc(large, 96 * MIB);
    CHECK(small && large && is_filled(large, 8 * MIB, 7));
    free(small);
    free(large);
}

static void mappings(void)
{
    use(32 * MIB);
    use(32 * MIB);
}

static void scrubbed(void)
{
    use(32 * MIB);
    rest(300);
    use(32 * MIB);
}

/* Zeroed memory for a block that needs none, and some for one that does. */
static void zeroes(void)
{
    use(32 * MIB);
    rest(300);
    use_block(32 * MIB);
    char *zeroed = calloc(8 * MIB, 1);
    CHECK(zeroed);
    for (size_t i = 0; i < 8 * MIB; i++)
        CHECK(zeroed[i] == 0);
    free(zeroed);
}

/* Slowly from one end to the other, for the background thread to run ahead; then one small extent after the other. */
static void ahead(void)
{
    char *at = map(512 * MIB);
    for (size_t i = 0; i < 512 * MIB; i += 2 * MIB) {
        fill(at + i, 2 * MIB, i);
        rest(1);
    }
    CHECK(munmap(at, 512 * MIB) == 0);
    enum { KEPT = 40 };
    static char *kept[KEPT];
    rest(1500);
    for (int i = 0; i < KEPT; i++) {
        kept[i] = map(2 * MIB);
        memset(kept[i], 1, 2 * MIB);
        rest(2);
    }
    /* Half way, and what is ahead of that is not used. */
    at = map(128 * MIB);
    for (size_t i = 0; i < 64 * MIB; i += 2 * MIB) {
        fill(at + i, 2 * MIB, i);
        rest(1);
    }
    rest(100);
    CHECK(munmap(at, 128 * MIB) == 0);
    /* The same in a block. */
    char *volatile block = malloc(256 * MIB);
    CHECK(block);
    for (size_t i = 0; i < 256 * MIB; i += 2 * MIB) {
        fill(block + i, 2 * MIB, i);
        rest(1);
    }
    free(block);
}

/* Again and again something large grows while something else is given up: what is zeroed meanwhile moves ahead of the
   program, which stops half way. */
static void supplied(void)
{
    for (int round = 0; round < 3; round++) {
        char *other = map(128 * MIB), *at = map(256 * MIB);
        fill(other, 128 * MIB, 1);
        for (size_t i = 0; i < 128 * MIB; i += 2 * MIB) {
            if (i == 16 * MIB) {
                CHECK(munmap(other, 128 * MIB) == 0);
                rest(200);
            }
            CHECK(is_zero(at + i, 2 * MIB));
            fill(at + i, 2 * MIB, i);
            rest(1);
        }
        rest(50);
        CHECK(munmap(at, 256 * MIB) == 0);
    }
}

/* Memory that the host has taken back gets no advice: what a child used a moment ago is there. */
static void warm(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        fill(map(128 * MIB), 128 * MIB, 1);
        _exit(0);
    }
    CHECK(ended(pid) == 0);
}

/* Memory committed inside a reservation. */
static void reservation(void)
{
    warm();
    size_t bytes = 64 * MIB;
    char *at = mmap(NULL, 8 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    for (int i = 0; i < 4; i++) {
        CHECK(mmap(at + i * bytes, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == at + i * bytes);
        fill(at + i * bytes, bytes, i);
        rest(20);
    }
}

static void large(void)
{
    char *at = map(256 * MIB);
    fill(at, 256 * MIB, 1);
    CHECK(munmap(at, 256 * MIB) == 0);
    rest(1200);
}

/* More memory at once than the budget, given back: what exceeds the budget does not stay for long. */
static void much(void)
{
    enum { PARTS = 6 };
    char *at[PARTS];
    for (int i = 0; i < PARTS; i++) {
        at[i] = map(32 * MIB);
        fill(at[i], 32 * MIB, i);
        rest(50);
    }
    for (int i = 0; i < PARTS; i++)
        CHECK(munmap(at[i], 32 * MIB) == 0);
    rest(1500);
}

/* Uses memory and drops its content, again and again, and what lies beside it never. */
static void dropped(void)
{
    char *at = map(8 * MIB), *inner = at + MIB, *behind = at + 7 * MIB + 4096;
    fill(at, MIB, 1);
    fill(behind, MIB - 4096, 2);
    for (int i = 0; i < 8; i++) {
        CHECK(is_zero(inner, behind - inner));
        fill(inner, behind - inner, 3);
        CHECK(madvise(inner, behind - inner, MADV_DONTNEED) == 0);
        CHECK(is_filled(at, MIB, 1) && is_filled(behind, MIB - 4096, 2));
    }
    CHECK(munmap(at, 8 * MIB) == 0);
}

/* A block of which a page in each 2 MiB is read-only when it is freed. */
static void change_block(size_t bytes)
{
    char *volatile at = malloc(bytes);
    CHECK(at);
    fill(at, bytes, 1);
    /* The C library keeps its own notes before the blocks that it serves. */
    if ((uintptr_t)at % 4096 != 0)
        return;
    for (size_t i = 0; i < bytes; i += 2 * MIB)
        CHECK(mprotect(at + i, 4096, PROT_READ) == 0);
    free(at);
}

static void attributes(void)
{
    change_block(8 * MIB);
}

static void forked(void)
{
    char *volatile at = malloc(8 * MIB);
    CHECK(at);
    fill(at, 8 * MIB, 1);
    pid_t child = fork();
    if (child == 0)
        _exit(is_filled(at, 8 * MIB, 1) ? 0 : 1);
    CHECK(child > 0 && ended(child) == 0);
    free(at);
}

/* From a call on that might confine it, the library serves nothing new. */
static void confined(void)
{
    use(8 * MIB);
    rest(100);
    char *at = map(8 * MIB);
    fill(at, 8 * MIB, 1);
    use(32 * MIB);
    CHECK(unshare(0) == 0);
    CHECK(munmap(at, 8 * MIB) == 0);
}

static void left(void)
{
    use(8 * MIB);
    size_t bytes = 3 * MIB;
    CHECK(mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHECK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    use(bytes);
}

/* Each block wastes nearly two megabytes. */
static void waste(void)
{
    for (int i = 0; i < 64; i++)
        CHECK(malloc(2 * MIB + 1));
}

/* No area is left for memory that has to be opened or moved. */
static void areas(void)
{
    char *volatile block = malloc(8 * MIB), *volatile behind = malloc(8 * MIB), *volatile room = malloc(256 * MIB);
    CHECK(block && behind && room);
    fill(block, 8 * MIB, 1);
    free(room);
    char *at = map(512 * MIB);
    for (size_t i = 0; i < 512 * MIB && mprotect(at + i, 4096, PROT_READ) == 0; i += 8192)
        ;
    for (int i = 1; i < 20; i++) {
        void *other = mmap(NULL, 2 * i * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(other != MAP_FAILED || errno == ENOMEM);
    }
    char *larger = realloc(block, 64 * MIB);
    CHECK(is_filled(larger ? larger : block, 8 * MIB, 1));
    /* More than was ever open. */
    void *volatile more = malloc(256 * MIB);
    CHECK(more || errno == ENOMEM);
}

/* More programs than processors: the background thread, at idle priority, has to wait in the middle of its work. */
static void busy(void)
{
    long children = 2 * sysconf(_SC_NPROCESSORS_ONLN);
    pid_t group = 0;
    for (long i = 0; i < children; i++) {
        pid_t child = fork();
        if (child == 0)
            for (;;) {
                /* On and off, so that the background thread gets to work, and loses its processor in the middle. */
                clock_t end = clock() + CLOCKS_PER_SEC / 200;
                while (clock() < end)
                    sink++;
                rest(2 + (int)i);
            }
        CHECK(child > 0 && setpgid(child, group) == 0);
        group = group ? group : child;
    }
    for (int i = 0; i < 100; i++) {
        use(64 * MIB);
        rest(10);
    }
    CHECK(kill(-group, SIGKILL) == 0);
}

/* Reads memory that it has unmapped. */
static void stale(void)
{
    char *volatile at = map(32 * MIB);
    fill(at, 32 * MIB, 1);
    CHECK(munmap(at, 32 * MIB) == 0);
    sink = at[16 * MIB];
}

/* Says whether a block begins with what the one before it held. */
static void content(void)
{
    char *volatile at = malloc(8 * MIB);
    memset(at, 1, 8 * MIB);
    SEEN();
    free(at);
    char *volatile again = malloc(4 * MIB);
    puts(again[MIB] == 1 ? "old" : "new");
}

static void child(void)
{
    use(8 * MIB);
    char *args[] = { "groups", "mappings", NULL };
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", args);
        _exit(9);
    }
    CHECK(child > 0 && ended(child) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    { "blocks", blocks },         { "dropped", dropped },
        { "mappings", mappings },       { "scrubbed", scrubbed }, { "ahead", ahead }, { "zeroes", zeroes },
    { "large", large }, { "much", much },       { "reservation", reservation }, { "forked", forked },     { "attributes", attributes },
    { "confined", confined }, { "left", left },               { "waste", waste },       { "areas", areas },
    { "busy", busy },         { "stale", stale },             { "child", child },       { "content", content },
    { "supplied", supplied },
};

/* Where a host takes idle memory back, the first touch of a huge page takes milliseconds, and the library asks for none. What
   was touched a moment ago is warm. The kernel alone serves this mapping, because of its rights at first. */
static void warm_machine(void)
{
    const size_t bytes = 192 * MIB;
    char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
    madvise(at, bytes, MADV_HUGEPAGE);
    memset(at, 1, bytes);
    CHECK(munmap(at, bytes) == 0);
}

int main(int argc, char **argv)
{
    warm_machine();
    int stops = argc > 2 && strcmp(argv[1], "stop") == 0;
    CHECK(argc > 1);
    if (stops) {
        use(4 * MIB);
        /* Memory that was used before, in use while the knob is turned. */
        void *held = map(4 * MIB);
        CHECK(raise(SIGSTOP) == 0 && munmap(held, 4 * MIB) == 0);
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strcmp(argv[argc - 1], groups[i].name) == 0) {
            groups[i].run();
            if (stops)
                CHECK(raise(SIGSTOP) == 0);
            return 0;
        }
    return 2;
}
