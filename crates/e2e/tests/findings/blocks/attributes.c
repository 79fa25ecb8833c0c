/* Attributes of a freed block's pages must not show in its neighbour, which realloc lets grow. No block is freed before: the C
 * library would take later ones from its heap. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define N (320 << 10)

static void try(const char *name, int advice, int protect)
{
    char *a[4];
    pid_t c = fork();
    if (c == 0) {
        for (int i = 0; i < 4; i++) {
            a[i] = malloc(N);
            memset(a[i], i + 1, N);
        }
        char *b = (char *)(((uintptr_t)a[1] + 4096 + 4095) & ~4095ul);
        size_t len = N - 12288;
        int r = protect >= 0 ? mprotect(b, len, protect) : madvise(b, len, advice);
        free(a[1]);
        a[0] = realloc(a[0], 600 << 10);
        memset(a[0], 7, 600 << 10);
        pid_t g = fork();
        if (g == 0) {
            for (int i = 0; i < 600 << 10; i++)
                if (a[0][i] != 7)
                    _exit(1);
            _exit(0);
        }
        int st;
        waitpid(g, &st, 0);
        printf("%s: call %d, grandchild %d\n", name, r, st);
        fflush(stdout);
        _exit(0);
    }
    int st;
    waitpid(c, &st, 0);
    printf("%s: %d\n", name, st);
    fflush(stdout);
}

int main(void)
{
    try("MADV_DONTFORK", MADV_DONTFORK, -1);
    try("MADV_WIPEONFORK", MADV_WIPEONFORK, -1);
    try("mprotect NONE", 0, PROT_NONE);
}
