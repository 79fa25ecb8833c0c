/* Blocks that are locked, and freed without munlock, beside blocks that stay: their memory goes, and they are no longer locked. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static size_t status(const char *key)
{
    char line[256];
    size_t k = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            sscanf(line + strlen(key), ": %zu", &k);
    fclose(f);
    return k;
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    char *keep[40];
    for (int i = 0; i < 40; i++) {
        keep[i] = malloc(270 << 10);
        memset(keep[i], 1, 270 << 10);
        char *b = malloc(1500 << 10);
        memset(b, 1, 1500 << 10);
        mlock(b, 1500 << 10);
        free(b);
    }
    size_t sum = 0;
    for (int i = 0; i < 40; i++)
        sum += keep[i][(270 << 10) - 1];
    printf("%zu kept, resident below 40 MiB: %d, locked %zu\n", sum, status("VmRSS") < 40 << 10, status("VmLck"));
}
