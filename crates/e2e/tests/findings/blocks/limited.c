/* Another process limits what a program may have, "as" or "data", while it runs. */
#include "../../../programs/check.h"
#include <sys/resource.h>

#define CHUNK (64 * MIB)

static int chunks(int by_mmap)
{
    int n = 0;
    char *chunk[20];
    for (; n < 20; n++) {
        chunk[n] = by_mmap ? mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : malloc(CHUNK);
        if (chunk[n] == (by_mmap ? MAP_FAILED : NULL))
            break;
        memset(chunk[n], n, CHUNK / 64);
    }
    CHECK(n == 20 || errno == ENOMEM);
    for (int i = 0; i < n; i++) {
        CHECK(chunk[i][0] == i && chunk[i][CHUNK / 64 - 1] == i);
        if (by_mmap)
            CHECK(munmap(chunk[i], CHUNK) == 0);
        else
            free(chunk[i]);
    }
    return n;
}

int main(int argc, char **argv)
{
    int ready[2], go[2];
    char byte = 0;
    CHECK(argc == 2 && pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        take_and_give(1, 3, 64);
        CHECK(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
        int first = chunks(1);
        printf("%d %d\n", first, chunks(0));
        fflush(stdout);
        _exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    struct rlimit limit = { 800 * MIB, 800 * MIB };
    CHECK(prlimit(child, strcmp(argv[1], "as") ? RLIMIT_DATA : RLIMIT_AS, &limit, NULL) == 0);
    CHECK(write(go[1], &byte, 1) == 1);
    printf("%d\n", ended(child));
}
