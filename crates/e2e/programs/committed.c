/* Memory that a program commits inside of a reservation, and advises itself: what the kernel says of it afterwards.
   Arguments: how it advises, and what. */
#include "check.h"
#include <sys/syscall.h>

enum { RESERVED = 512, COMMITTED = 256 };

/* Whether huge pages are wanted and refused in the areas of a range, and how many areas there are. */
static void show(const char *when, char *start, char *end)
{
    char line[512];
    int is_there = 0, wanted = 0, refused = 0, areas = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps != NULL);
    while (fgets(line, sizeof line, smaps)) {
        uintptr_t from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3) {
            is_there = (uintptr_t)start < to && from < (uintptr_t)end;
            areas += is_there;
        } else if (is_there && strncmp(line, "VmFlags", 7) == 0) {
            wanted += strstr(line, " hg") != NULL;
            refused += strstr(line, " nh") != NULL;
        }
    }
    fclose(smaps);
    printf("%s: %d areas, %d wanted, %d refused\n", when, areas, wanted, refused);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    int advice = strcmp(argv[2], "refuse") == 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE;
    char *served = malloc(64 * MIB);
    CHECK(served && memset(served, 1, 8 * MIB));
    char *at = mmap(NULL, RESERVED * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    char *begin = (char *)(((uintptr_t)at + 2 * MIB - 1) & -(2 * MIB)), *end = begin + COMMITTED * MIB;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    CHECK(mmap(begin, COMMITTED * MIB, PROT_READ | PROT_WRITE, flags, -1, 0) == begin);
    int is_call = strcmp(argv[1], "call") == 0;
    CHECK((is_call ? madvise(begin, COMMITTED * MIB, advice)
                   : syscall(SYS_madvise, begin, COMMITTED * MIB, advice)) == 0);
    show("advised", begin, end);
    /* Each page of a part, and then one of each 2 MiB, with time to look. */
    for (char *page = begin; page < begin + COMMITTED / 2 * MIB; page += 4096) {
        *page = 1;
        if ((page - begin) % (8 * MIB) == 0)
            usleep(5000);
    }
    show("used", begin, end);
    for (char *page = begin + COMMITTED / 2 * MIB; page < end; page += 2 * MIB) {
        *page = 1;
        usleep(1000);
    }
    usleep(50000);
    show("used here and there", begin, end);
    for (char *part = begin; part < end; part += 4 * MIB)
        CHECK(madvise(part, 2 * MIB, MADV_DONTNEED) == 0);
    show("dropped in parts", begin, end);
    free(served);
    return puts("as in a plain run") < 0;
}
