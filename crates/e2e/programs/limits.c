/* A program that limits its own memory after it has used a lot: "as" or "data", by one of four calls; or that locks
 * all of it, "lock". Prints how much it gets from then on. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* So large that the tables of the library do not show in the number to be had. */
#define CHUNK (64 * MIB)
#define MOST 20

static void set(int kind, size_t bytes, const char *how)
{
    struct rlimit limit = { bytes, RLIM_INFINITY }, old;
    CHECK(getrlimit(kind, &old) == 0);
    limit.rlim_max = old.rlim_max;
    if (strcmp(how, "setrlimit") == 0)
        CHECK(setrlimit(kind, &limit) == 0);
    else if (strcmp(how, "prlimit") == 0)
        CHECK(prlimit(getpid(), kind, &limit, NULL) == 0);
    else if (strcmp(how, "direct") == 0)
        CHECK(syscall(SYS_setrlimit, kind, &limit) == 0);
    else
        CHECK(syscall(SYS_prlimit64, 0, kind, &limit, NULL) == 0);
}

/* How many chunks are to be had, by mmap or malloc. */
static int chunks(int by_mmap)
{
    static char *chunk[MOST];
    int n = 0;
    for (; n < MOST; n++) {
        chunk[n] = by_mmap ? mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                           : malloc(CHUNK);
        if (chunk[n] == (by_mmap ? MAP_FAILED : NULL))
            break;
        CHECK(!by_mmap || is_zero(chunk[n], CHUNK / 64));
        fill(chunk[n], CHUNK / 64, n);
    }
    CHECK(errno == ENOMEM || errno == EAGAIN || n == MOST);
    for (int i = 0; i < n; i++) {
        CHECK(is_filled(chunk[i], CHUNK / 64, i));
        if (by_mmap)
            CHECK(munmap(chunk[i], CHUNK) == 0);
        else
            free(chunk[i]);
    }
    return n;
}

static void *small_thread(void *arg)
{
    return arg;
}

/* Everything that addresses of the arena may see once more. */
static void use(void)
{
    for (int round = 0; round < 30; round++) {
        size_t bytes = (3 + round % 5) * MIB + round * 4096;
        char *a = map(bytes), *b = malloc(bytes), *c = calloc(1, bytes);
        CHECK(b && c && is_zero(a, bytes) && is_zero(c, bytes));
        memset(a, round + 1, bytes);
        memset(b, round + 1, bytes);
        memset(c, round + 1, bytes);
        b = realloc(b, bytes + 3 * MIB);
        CHECK(b && b[0] == round + 1 && b[bytes - 1] == round + 1);
        char *moved = mremap(a, bytes, bytes + 5 * MIB, MREMAP_MAYMOVE);
        CHECK(moved != MAP_FAILED && moved[bytes - 1] == round + 1 && moved[bytes + MIB] == 0);
        CHECK(munmap(moved + MIB, MIB) == 0);
        CHECK(mprotect(moved + MIB, MIB, PROT_READ) == -1 && errno == ENOMEM);
        CHECK(mmap(moved + MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                   0) == moved + MIB);
        CHECK(moved[MIB] == 0 && moved[2 * MIB] == round + 1);
        CHECK(munmap(moved, bytes + 5 * MIB) == 0);
        CHECK(msync(moved, MIB, MS_ASYNC) == -1 && errno == ENOMEM);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, small_thread, a) == 0 && pthread_join(thread, NULL) == 0);
        free(b);
        free(c);
    }
}

static void *churn(void *over)
{
    for (int i = 0; !*(volatile int *)over; i++) {
        size_t bytes = (1 + i % 6) * MIB;
        char *a = malloc(bytes), *b = map(bytes + 2 * MIB);
        CHECK(a && is_zero(b, bytes));
        fill(a, bytes, i);
        fill(b, bytes, i + 1);
        CHECK(is_filled(a, bytes, i) && is_filled(b, bytes, i + 1));
        free(a);
        CHECK(munmap(b, bytes + 2 * MIB) == 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc > 2);
    int over = 0;
    pthread_t threads[3];
    int busy = argc > 3;
    /* From before, of all kinds; half of it is given back before, half of it after. */
    enum { OLD = 12 };
    char *mapped[OLD], *block[OLD], *small[OLD];
    for (int i = 0; i < OLD; i++) {
        mapped[i] = map(3 * MIB + i * 4096);
        block[i] = malloc(5 * MIB);
        small[i] = malloc(300000);
        fill(mapped[i], 3 * MIB, i);
        fill(block[i], 5 * MIB, i);
        fill(small[i], 300000, i);
    }
    char *large = map(256 * MIB);
    fill(large, 256 * MIB, 1);
    CHECK(munmap(large, 256 * MIB) == 0);
    for (int i = 0; i < OLD; i += 2) {
        CHECK(munmap(mapped[i], 3 * MIB + i * 4096) == 0);
        free(block[i]);
        free(small[i]);
    }
    for (int i = 0; i < 3 && busy; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, &over) == 0);
    if (strcmp(argv[1], "lock") == 0) {
        /* Only who has no privilege is limited. */
        struct rlimit limit = { 220 * MIB, 220 * MIB };
        if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && geteuid() == 0)
            CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        int failed = mlockall(MCL_CURRENT | (strcmp(argv[2], "future") == 0 ? MCL_FUTURE : 0));
        printf("locked: %d, %zu\n", failed ? errno : 0, kib_of_status("VmLck") / (256 << 10));
    } else {
        set(strcmp(argv[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA, 1000 * MIB, argv[2]);
    }
    if (busy) {
        usleep(20000);
        over = 1;
        for (int i = 0; i < 3; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    } else {
        printf("chunks: %d, %d\n", chunks(1), chunks(0));
    }
    use();
    for (int i = 1; i < OLD; i += 2) {
        CHECK(is_filled(mapped[i], 3 * MIB, i) && is_filled(block[i], 5 * MIB, i) && is_filled(small[i], 300000, i));
        block[i] = realloc(block[i], 6 * MIB);
        CHECK(block[i] && is_filled(block[i], 5 * MIB, i));
        CHECK(munmap(mapped[i], 3 * MIB + i * 4096) == 0);
        free(block[i]);
        free(small[i]);
    }
    if (!busy)
        printf("chunks in the end: %d, %d\n", chunks(1), chunks(0));
}
