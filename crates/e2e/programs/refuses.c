/* Memory that is not used, of which the kernel is asked something that it refuses, or that it does later: refuses HOW.
 * The largest resident memory, in KiB, goes to stderr. */
#include "check.h"
#include <sys/resource.h>

enum { BYTES = 16 << 20, ROUNDS = 20 };

/* Blocks between which large ones come and go; of each a byte is used in the end. */
static void blocks(void)
{
    static char *small[40 * 20];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 20; i++)
            CHECK((small[round * 20 + i] = malloc(1100 << 10)) != NULL);
        void *volatile large = malloc(300 * MIB);
        CHECK(large != NULL);
        free(large);
    }
    for (int i = 0; i < 40 * 20; i++)
        small[i][300000] = 1;
}

/* A block that grows after a fork; frames of it have two owners then. */
static void grows(void)
{
    size_t bytes = 200 * MIB;
    char *block = malloc(bytes);
    CHECK(block);
    memset(block, 3, bytes);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK((block = realloc(block, bytes + 20 * MIB)) != NULL);
    for (size_t at = 0; at < bytes; at += 4096)
        CHECK(block[at] == 3);
    free(block);
}

/* A mapping that is not used, behind one that was. */
static void *unused(void)
{
    char *used = map(BYTES);
    memset(used, 1, BYTES);
    usleep(3000);
    CHECK(munmap(used, BYTES) == 0);
    usleep(3000);
    return map(BYTES);
}

static void offered(void)
{
    for (int round = 0; round < ROUNDS; round++)
        CHECK(madvise(unused(), BYTES, MADV_FREE) == 0);
}

static void refused(void)
{
    for (int round = 0; round < ROUNDS; round++)
        CHECK(munmap(unused(), (size_t)1 << 47) < 0 && errno == EINVAL);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    run_way(words[1], (struct way[]){
        {"blocks", blocks}, {"grows", grows}, {"offered", offered}, {"refused", refused}, {0},
    });
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    fprintf(stderr, "%ld\n", usage.ru_maxrss);
    return 0;
}
