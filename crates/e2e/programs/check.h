/* What every program here needs: a check that names its line, and memory with a known content. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

#define CHECK(what)                                                                  \
    do {                                                                             \
        if (!(what)) {                                                               \
            dprintf(2, "%s:%d: %s fails, errno %d\n", __FILE__, __LINE__, #what, errno); \
            _exit(9);                                                                \
        }                                                                            \
    } while (0)

/* What a program does at a word of its arguments. */
struct way {
    const char *word;
    void (*run)(void);
};

/* Runs the way that is named; a way without a word ends the list. */
static inline void run_way(const char *word, const struct way *ways)
{
    while (ways->word && strcmp(word, ways->word) != 0)
        ways++;
    CHECK(ways->word);
    ways->run();
}

/* For SIGALRM in a process 1: the kernel ends none by a signal that it does not handle. */
static inline void hangs(int signal)
{
    (void)signal;
    _exit(7);
}

/* Writes a word to each 512 bytes that only `seed` gives. */
static inline void fill(void *block, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 512; i++)
        *(uint64_t *)((char *)block + i * 512) = seed * 0x9e3779b97f4a7c15u + i;
}

static inline int is_filled(const void *block, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 512; i++)
        if (*(const uint64_t *)((const char *)block + i * 512) != seed * 0x9e3779b97f4a7c15u + i)
            return 0;
    return 1;
}

static inline int is_zero(const void *block, size_t bytes)
{
    const char *b = block;
    return bytes == 0 || (b[0] == 0 && memcmp(b, b + 1, bytes - 1) == 0);
}

static inline void *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* One mapping after the other, with time between: what is mapped next gets memory that was used before. */
static inline void map_again(size_t bytes, uint64_t seed)
{
    for (int i = 0; i < 6; i++) {
        char *at = map(bytes);
        CHECK(is_zero(at, bytes));
        fill(at, bytes, seed + i);
        usleep(1000);
        CHECK(is_filled(at, bytes, seed + i) && munmap(at, bytes) == 0);
    }
}

/* Blocks and mappings of 1 to `sizes` MiB and a little more, taken, used and given back, `rounds` times. */
static inline void take_and_give(int seed, int rounds, int sizes)
{
    for (int i = 0; i < rounds; i++) {
        size_t bytes = (1 + (seed + i) % sizes) * MIB;
        char *a = calloc(1, bytes), *b = malloc(bytes), *c = map(bytes + 2 * MIB);
        CHECK(a && b && is_zero(a, bytes) && is_zero(c, bytes + 2 * MIB));
        fill(a, bytes, seed);
        fill(b, bytes, seed + 1);
        fill(c, bytes, seed + 2);
        CHECK(is_filled(a, bytes, seed) && is_filled(b, bytes, seed + 1));
        free(a);
        CHECK(munmap(c, bytes + 2 * MIB) == 0);
        CHECK(is_filled(b, bytes, seed + 1));
        free(b);
    }
}

/* What the kernel says of this process, in KiB: "VmLck", "VmRSS". */
static inline size_t kib_of_status(const char *key)
{
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %zu", &kib);
    fclose(status);
    return kib;
}

/* A block and a mapping, used and given back. Returns where the block was. */
static inline char *use_both(size_t mib)
{
    char *block = calloc(mib, MIB), *area = map(mib * 2 * MIB);
    CHECK(block && is_zero(block, mib * MIB) && is_zero(area, mib * 2 * MIB));
    fill(block, mib * MIB, mib);
    block = realloc(block, 3 * mib * MIB);
    CHECK(block && is_filled(block, mib * MIB, mib));
    char *volatile was = block;
    free(block);
    CHECK(munmap(area, mib * 2 * MIB) == 0);
    return was;
}

/* The exit status of a child, or 256 + the signal that killed it. */
static inline int ended(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* What the kernel counts as locked. */
static inline size_t locked_bytes(void)
{
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmLck: %zu", &kib);
    fclose(status);
    return kib << 10;
}
