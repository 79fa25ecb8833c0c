/* Threads that are cancelled at any moment of calls that take locks. What they left locked would hold up the rest. */
#define _GNU_SOURCE
#include "check.h"
#include "faultless.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>



static faultless_region *shared;
static const char *state;
static atomic_int begun;

static void *makes_regions(void *none)
{
    (void)none;
    for (;;) {
        faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD};
        faultless_region *region;
        atomic_store(&begun, 1);
        if (!faultless_region_new(4 * MIB, &options, &region)) {
            ((char *)faultless_region_data(region))[5] = 1;
            faultless_region_free(region);
        }
        pthread_testcancel();
    }
    return NULL;
}

static void *takes_snapshots(void *none)
{
    (void)none;
    for (;;) {
        faultless_snapshot *snapshot;
        atomic_store(&begun, 1);
        if (!faultless_snapshot_take(shared, 0, MIB, &snapshot)) {
            faultless_background *save;
            if (!faultless_snapshot_save(snapshot, state, 0, &save)) {
                faultless_background_wait(save);
                faultless_background_free(save);
            }
            faultless_snapshot_free(snapshot);
        }
        pthread_testcancel();
    }
    return NULL;
}

int main(int count, char **words)
{
    void *(*const all[])(void *) = {makes_regions, takes_snapshots};
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD};
    int round;

    CHECK(count == 2);
    state = words[1];
    CHECK(faultless_region_new(4 * MIB, &options, &shared) == 0);
    memset(faultless_region_data(shared), 1, MIB);
    for (round = 0; round < 40; round++) {
        pthread_t thread;
        atomic_store(&begun, 0);
        CHECK(pthread_create(&thread, NULL, all[round % 2], NULL) == 0);
        while (!atomic_load(&begun))
            sched_yield();
        usleep((useconds_t)(round * 211 % 3000));
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(faultless_unmap(shared, 0, MIB) == 0);
    faultless_region_free(shared);
    return 0;
}
