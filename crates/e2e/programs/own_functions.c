/* Has functions of the C library's of its own, which are for itself alone: none may call them. */
#include "check.h"
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

static int calls;

int clock_gettime(clockid_t clock, struct timespec *time) { calls++; (void)clock, (void)time; return -1; }
int sched_getcpu(void) { calls++; return -1; }
pid_t getpid(void) { calls++; return -1; }
pid_t gettid(void) { calls++; return -1; }
int getrlimit(__rlimit_resource_t kind, struct rlimit *limit) { calls++; (void)kind, (void)limit; return -1; }
char *secure_getenv(const char *name) { calls++; (void)name; return NULL; }
void *dlsym(void *library, const char *name) { calls++; (void)library, (void)name; return NULL; }
int dl_iterate_phdr(int (*callback)(void *, size_t, void *), void *data)
{
    calls++;
    (void)callback, (void)data;
    return 0;
}
void *(memset)(void *to, int byte, size_t bytes)
{
    calls++;
    for (volatile char *at = to; bytes--;)
        *at++ = byte;
    return to;
}

int main(void)
{
    for (int i = 0; i < 4; i++) {
        char *block = calloc(8 + i, MIB);
        CHECK(block && block[5 * MIB] == 0);
        block[5 * MIB] = 1;
        block = realloc(block, 30 * MIB);
        CHECK(block && block[5 * MIB] == 1);
        free(block);
        char *area = map(8 * MIB);
        fill(area, 8 * MIB, i);
        CHECK(munmap(area, 8 * MIB) == 0);
        usleep(20000);
    }
    printf("%d calls\n", calls);
}
