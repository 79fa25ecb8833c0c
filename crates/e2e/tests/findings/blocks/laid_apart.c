/* The program maps memory where it wants it, and that is where ranges are moved that it unmaps: each large reservation
 * that is there. How: by a "call", "moved" there, "unmapped" first, a segment "attached", what is there "opened", or by an
 * "instruction". In the "first" or in "all" quarters of the reservations. It is the program's alone, also in a child, and
 * once the engine has ended (a "limit", "locks"). */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include "../../../programs/instruction.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define N (4 * MIB)
#define LARGE (8192 * MIB)
#define MOST 64

static char *laid[MOST];
static int count;
static const char *how;

static const int rights = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;

/* Whether the kernel tells what lies at an address: without that no one sees what an instruction does. */
static int kernel_tells(void)
{
    struct {
        uint64_t size, flags, addr, rest[10];
    } query = {.size = sizeof query, .addr = (uintptr_t)&count};
    int maps = open("/proc/self/maps", O_RDONLY);
    int tells = maps >= 0 && ioctl(maps, _IOC(_IOC_READ | _IOC_WRITE, 'f', 17, sizeof query), &query) == 0;
    close(maps);
    return tells;
}

static void lay(char *at)
{
    char *is;
    if (!strcmp(how, "moved")) {
        is = mremap(map(N), N, N, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    } else if (!strcmp(how, "unmapped")) {
        CHECK(munmap(at, N) == 0);
        is = mmap(at, N, rights, private | MAP_FIXED_NOREPLACE, -1, 0);
    } else if (!strcmp(how, "attached")) {
        int id = shmget(IPC_PRIVATE, N, 0600);
        is = shmat(id, at, SHM_REMAP);
        CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    } else if (!strcmp(how, "opened")) {
        CHECK(mprotect(is = at, N, rights) == 0);
    } else if (!strcmp(how, "instruction")) {
        is = (char *)instruction(SYS_mmap, (long)at, N, rights, private | MAP_FIXED, -1);
    } else {
        CHECK(!strcmp(how, "call"));
        is = mmap(at, N, rights, private | MAP_FIXED, -1, 0);
    }
    CHECK(is == at);
    memset(at, 0x55, N);
    CHECK(count < MOST);
    laid[count++] = at;
}

static void look(void)
{
    unsigned char present[N / 4096];
    for (int i = 0; i < count; i++) {
        CHECK(mincore(laid[i], N, present) == 0);
        CHECK(laid[i][0] == 0x55 && memcmp(laid[i], laid[i] + 1, N - 1) == 0);
    }
}

/* Memory that the engine takes back at its end. */
static void use(void)
{
    for (int i = 0; i < 6; i++) {
        char *at = map(8 * MIB);
        CHECK(is_zero(at, 8 * MIB));
        memset(at, 3, 8 * MIB);
        CHECK(munmap(at, 8 * MIB) == 0);
    }
    look();
}

static void limit(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = (rlim_t)1 << 44;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    look();
}

/* The large reservations; in a run without any, one of the program's own. */
static int reservations(char **start, size_t *bytes, int most)
{
    char line[512], kind[8];
    unsigned long from, to;
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, kind) == 3 && !strcmp(kind, "---p") && to - from >= LARGE && n < most)
            start[n] = (char *)from, bytes[n++] = to - from;
    fclose(maps);
    if (n == 0) {
        start[n] = mmap(NULL, LARGE, PROT_NONE, private | MAP_NORESERVE, -1, 0);
        CHECK(start[n] != MAP_FAILED);
        bytes[n++] = LARGE;
    }
    return n;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    how = argv[1];
    char *start[8];
    size_t bytes[8];
    if (strcmp(how, "instruction") || kernel_tells()) {
        use();
        int n = reservations(start, bytes, 8), quarters = strcmp(argv[2], "all") ? 1 : 4;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < quarters; k++)
                lay((char *)((uintptr_t)(start[i] + bytes[i] / 4 * k) & ~(uintptr_t)4095));
        for (int round = 0; round < 3; round++) {
            pid_t child = fork();
            if (child == 0) {
                look();
                if (round == 1)
                    limit();
                use();
                /* What the child lays itself. Other parts may be gone, so they cannot be opened. */
                if (round == 2 && strcmp(how, "opened"))
                    lay(laid[0] + 64 * MIB);
                use();
                _exit(0);
            }
            CHECK(ended(child) == 0);
            use();
        }
        if (!strcmp(argv[3], "limit"))
            limit();
        else
            mlockall(MCL_CURRENT);
        use();
    }
    puts("done");
}
