/* An unmapping is one step, or none: whole of / refused / grown.
 * of: a file's mapping lies in the range, and another thread maps memory meanwhile. refused: a page is sealed by an
 * instruction, and another thread uses the rest. grown: a mapping grows beside a thread that drops its content. */
#include "check.h"
#include "instruction.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

enum { BYTES = 64 << 20, OTHERS = 100 };

static char *volatile shared;
static volatile int phase;

/* Maps memory of its own while the phase is odd, and looks at all of it when it is even again. */
static void *maps(void *unused)
{
    char *own[OTHERS];
    (void)unused;
    for (int turn = 1; phase >= 0; turn += 2) {
        int n = 0;
        while (phase >= 0 && phase < turn)
            sched_yield();
        while (phase == turn && n < OTHERS) {
            own[n] = map(MIB);
            fill(own[n++], MIB, turn);
        }
        while (phase == turn)
            sched_yield();
        for (int i = 0; i < n; i++) {
            CHECK(msync(own[i], MIB, MS_ASYNC) == 0 && is_filled(own[i], MIB, turn));
            CHECK(munmap(own[i], MIB) == 0);
        }
    }
    return NULL;
}

static void *reads(void *unused)
{
    (void)unused;
    while (phase == 0) {
        char *now = shared;
        for (size_t at = 0; now && at < MIB; at += 4096)
            CHECK(now[at] == 7);
    }
    return NULL;
}

static void *grows(void *unused)
{
    (void)unused;
    while (phase == 0)
        sched_yield();
    for (volatile int i = 0; i < phase; i++)
        ;
    void *at = mremap(shared, 4 * MIB, 8 * MIB, 0);
    /* Something else may have been mapped behind it. */
    CHECK(at == shared || (at == MAP_FAILED && errno == ENOMEM));
    return at == shared ? at : NULL;
}

static void of(void)
{
    pthread_t thread;
    int file = open("/dev/zero", O_RDWR);
    CHECK(file >= 0 && pthread_create(&thread, NULL, maps, NULL) == 0);
    for (int turn = 1; turn < 16; turn += 2) {
        char *at = map(BYTES), *page = at + (turn % 4 == 1 ? 0 : BYTES - 4 * MIB);
        memset(at, 7, BYTES);
        if (turn > 1)
            CHECK(mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == page);
        phase = turn;
        CHECK(munmap(at, BYTES) == 0);
        usleep(500);
        phase = turn + 1;
    }
    phase = -1;
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        char *at = map(BYTES);
        memset(at, 7, BYTES);
        CHECK(mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == at && munmap(at, BYTES) == 0);
        CHECK(msync(at, BYTES, MS_ASYNC) < 0 && errno == ENOMEM);
    }
}

static void refused(void)
{
    pthread_t thread;
    char *at = map(BYTES);
    memset(at, 7, BYTES);
    CHECK(munmap(at, BYTES) == 0);
    CHECK(pthread_create(&thread, NULL, reads, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        at = map(BYTES);
        memset(at, 7, BYTES);
        if (instruction(SYS_mseal, (long)at + BYTES / 2, 4096) < 0)
            break; /* an older kernel */
        shared = at;
        usleep(1000);
        CHECK(munmap(at, BYTES) < 0 && errno == EPERM);
        usleep(1000);
        shared = NULL;
    }
    phase = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static int is_registered(void)
{
    char line[256];
    int found = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    while (fgets(line, sizeof line, smaps))
        found |= strncmp(line, "VmFlags:", 8) == 0 && (strstr(line, " uw") || strstr(line, " um"));
    fclose(smaps);
    return found;
}

static void grown(void)
{
    for (int round = 1; round <= 200; round++) {
        pthread_t thread;
        void *there;
        phase = 0;
        CHECK(pthread_create(&thread, NULL, grows, NULL) == 0);
        char *room = mmap(NULL, 24 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(room != MAP_FAILED && munmap(room, 24 * MIB) == 0);
        room = (char *)(((uintptr_t)room + 2 * MIB - 1) & -(2 * MIB));
        char *at = mmap(room, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at == room);
        shared = at;
        for (int i = 0; i < 2; i++) {
            memset(at, 7, 4 * MIB);
            CHECK(madvise(at, 4 * MIB, MADV_DONTNEED) == 0);
        }
        memset(at, 7, 4 * MIB);
        phase = 1 + round * 997 % 100000;
        CHECK(madvise(at, 4 * MIB, MADV_DONTNEED) == 0);
        CHECK(pthread_join(thread, &there) == 0);
        /* Some memory of the engine's own may be registered at this moment. */
        for (int i = 0; i < 100 && is_registered(); i++)
            usleep(1000);
        CHECK(!is_registered());
        CHECK(munmap(at, there ? 8 * MIB : 4 * MIB) == 0);
    }
}

int main(int count, char **words)
{
    CHECK(count == 2);
    run_way(words[1], (struct way[]){{"of", of}, {"refused", refused}, {"grown", grown}, {0}});
    puts("as in a plain run");
    return 0;
}
