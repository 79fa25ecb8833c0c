/* Threads by a bare clone whose thread pointer is null ("null"), names zeroes ("zeroes"), its own address with nothing before
 * it ("own") or behind it ("last"), closed memory ("closed"), or is a number ("number", "round"), call what needs no thread-local variables in the C library: not its mremap, of which the stack is protected.
 * Built with -z now: to bind takes some. */
#include "check.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { STACK = 256 << 10, THREADS = 40 };
static char zeroes[1 << 16] __attribute__((aligned(64)));
static int number, wrong;
static char *given;

static int fails(int line)
{
    wrong = line;
    return 1;
}
#define EXPECT(what) do { if (!(what)) return fails(__LINE__); } while (0)

static int work(void *argument)
{
    const size_t bytes = 8 * MIB;
    const long how = (long)argument;
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (int i = 0; i < 4; i++) {
        char *at = how % 2 ? mmap(NULL, bytes, rights, flags, -1, 0)
                           : (void *)syscall(SYS_mmap, NULL, bytes, rights, flags, -1, 0);
        EXPECT(at != MAP_FAILED);
        for (size_t j = 0; j < bytes; j += 4096) {
            EXPECT(at[j] == 0);
            at[j] = 1;
        }
        EXPECT(madvise(at, bytes / 2, MADV_DONTNEED) == 0 && at[0] == 0 && at[bytes / 2] == 1);
        EXPECT(mprotect(at, 4096, PROT_READ) == 0 && mprotect(at, 4096, rights) == 0);
        at = (char *)syscall(SYS_mremap, at, bytes, 2 * bytes, MREMAP_MAYMOVE);
        EXPECT(at != MAP_FAILED && at[bytes - 4096] == 1 && at[bytes] == 0);
        EXPECT(mmap(at, 2 * MIB, rights, flags | MAP_FIXED, -1, 0) == at && at[0] == 0);
        EXPECT((how % 2 ? munmap(at, 2 * bytes) : syscall(SYS_munmap, at, 2 * bytes)) == 0);
    }
    char *inner = (char *)(((long)given + 4095) & -4096);
    EXPECT(given[5] == 5 && mprotect(inner, 4 * MIB, PROT_READ) == 0 && mprotect(inner, 4 * MIB, rights) == 0);
    EXPECT(madvise(inner + MIB, MIB, MADV_DONTNEED) == 0 && inner[MIB] == 0);
    struct rlimit limit;
    EXPECT(syscall(SYS_prlimit64, 0, RLIMIT_DATA, NULL, &limit) == 0);
    EXPECT(syscall(SYS_prlimit64, 0, RLIMIT_DATA, &limit, NULL) == 0);
    if (how % 4 == 0)
        syscall(SYS_exit, 0);
    return 0;
}

int main(int argc, char **argv)
{
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS
        | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    CHECK(argc == 2);
    void *pointer = argv[1][0] == 'z' ? zeroes + sizeof zeroes / 2 : NULL;
    if (argv[1][0] == 'o') {
        char *pages = map(3 * 4096);
        CHECK(mprotect(pages, 4096, PROT_NONE) == 0);
        pointer = pages + 4096;
        *(void **)pointer = pointer;
    }
    if (argv[1][0] == 'l') {
        char *pages = map(2 * 4096);
        CHECK(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
        pointer = pages + 4096 - sizeof(void *);
        *(void **)pointer = pointer;
    }
    if (argv[1][0] == 'c') {
        pointer = map(4096);
        CHECK(mprotect(pointer, 4096, PROT_NONE) == 0);
    }
    if (argv[1][0] == 'n' && argv[1][2] == 'm')
        pointer = (void *)7;
    if (argv[1][0] == 'r')
        pointer = (void *)0x123456000;
    char *stack = map(STACK);
    given = malloc(32 * MIB);
    for (long i = 0; i < THREADS; i++) {
        given[5] = 5;
        CHECK(clone(work, stack + STACK, flags, (void *)i, &number, pointer, &number) > 0);
        while (__atomic_load_n(&number, __ATOMIC_SEQ_CST) != 0)
            usleep(100);
        if (wrong)
            dprintf(2, "line %d\n", wrong);
        CHECK(!wrong);
        map_again(8 * MIB, i);
        free(given);
        given = malloc(32 * MIB);
    }
    puts("done");
}
