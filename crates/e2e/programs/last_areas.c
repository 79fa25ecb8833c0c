/* At the limit of areas a mapping grows or does not, and blocks are had or not. What the program has keeps its bytes. The argument says
 * how many areas are left. */
#include "check.h"

#define WITH_AREAS (140000 * (size_t)4096)

static int limit_of_areas(void)
{
    int most = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(file && fscanf(file, "%d", &most) == 1);
    fclose(file);
    return most;
}

/* Takes all areas but `left`. */
static char *take_areas(int left)
{
    char *at = mmap(NULL, WITH_AREAS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t i = 0; i < WITH_AREAS; i += 8192)
        if (mprotect(at + i, 4096, PROT_READ) != 0)
            break;
    for (int i = 0; i < left; i++)
        mprotect(at + i * 8192, 4096, PROT_NONE);
    return at;
}

static void mappings(int left)
{
    size_t bytes = (40 + 2 * (left % 5)) * MIB;
    char *at = map(bytes);
    fill(at, bytes, left);
    char *areas = take_areas(left);
    char *moved = mremap(at, bytes, bytes + 2 * MIB, MREMAP_MAYMOVE);
    size_t now = bytes + (moved == MAP_FAILED ? 0 : 2 * MIB);
    if (moved != MAP_FAILED)
        at = moved;
    CHECK(is_filled(at, bytes, left));
    CHECK(munmap(areas, WITH_AREAS) == 0 && munmap(at, now) == 0);
}

static void blocks(int left)
{
    enum { N = 24 };
    char *all[N] = { 0 }, *areas = take_areas(left);
    size_t sizes[N];
    for (int round = 0; round < 400; round++) {
        int i = round * 7 % N;
        if (all[i])
            CHECK(is_filled(all[i], sizes[i], i));
        if (round % 5 == 1 && all[i])
            mprotect((char *)(((uintptr_t)all[i] + 8191) & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE | (round % 2 ? PROT_EXEC : 0));
        free(all[i]);
        sizes[i] = (1 + round % 9) * MIB / 2;
        all[i] = malloc(sizes[i]);
        if (all[i])
            fill(all[i], sizes[i], i);
    }
    for (int i = 0; i < N; i++)
        free(all[i]);
    CHECK(munmap(areas, WITH_AREAS) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (limit_of_areas() > 70000) {
        puts("too many areas");
        return 0;
    }
    int left = atoi(argv[1]);
    for (int i = 0; i < 6; i++) {
        mappings(left + i);
        blocks(left + i);
    }
    puts("done");
    return 0;
}
