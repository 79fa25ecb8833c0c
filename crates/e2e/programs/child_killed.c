/* A child of vfork is killed in the midst of calls about memory, again and again. What its parent frees afterwards goes
 * back, as if there had been no child. */
#include "check.h"

#define BLOCKS 4
#define BLOCK (64 * MIB)

static void call_for_ever(int blocks)
{
    for (;;) {
        char *at = blocks ? malloc(MIB) : map(BLOCK);
        at[0] = 1;
        if (blocks) {
            free(at);
        } else {
            at = mremap(at, BLOCK, BLOCK + 32 * MIB, MREMAP_MAYMOVE);
            munmap(at, BLOCK + 32 * MIB);
        }
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    map_again(BLOCK, 3);
    for (int round = 0; round < 8; round++) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            CHECK((blocks[i] = malloc(BLOCK)));
            fill(blocks[i], BLOCK, i);
        }
        int ends[2];
        CHECK(pipe(ends) == 0);
        pid_t killer = fork(), child;
        if (killer == 0) {
            CHECK(read(ends[0], &child, sizeof child) == sizeof child);
            usleep(5000 + 1100 * round);
            _exit(kill(child, SIGKILL));
        }
        child = vfork();
        if (child == 0) {
            child = getpid();
            CHECK(write(ends[1], &child, sizeof child) == sizeof child);
            call_for_ever(strcmp(argv[1], "blocks") == 0);
        }
        CHECK(ended(child) == 256 + SIGKILL && ended(killer) == 0);
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(is_filled(blocks[i], BLOCK, i));
            free(blocks[i]);
        }
        /* What the engine keeps is less than one block more than the children's. */
        for (int i = 0; kib_of_status("VmRSS") > (BLOCK * 2 >> 10); i++) {
            CHECK(i < 2000);
            usleep(10000);
        }
    }
    return puts("given back") < 0;
}
