/* Resident memory of this process in MiB, asked for without an allocation. */
#include <stddef.h>
#include <stdio.h>

static size_t rss(void)
{
    static char text[4096];
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    setvbuf(f, text, _IOFBF, sizeof text);
    if (fscanf(f, "%*u %zu", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages >> 8;
}
