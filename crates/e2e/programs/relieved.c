/* A limit of address space ("as") or data ("data") that was set by an instruction is met by calls of several kinds: as
 * without the library, all but the last have room. */
#include "check.h"
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>

static void set_limit(int kind, size_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    long result;
    register const void *old asm("r10") = NULL;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(SYS_prlimit64), "D"(0), "S"(kind), "d"(&limit), "r"(old)
                 : "rcx", "r11", "memory");
    CHECK(result == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc > 2);
    take_and_give(1, 4, 4);
    char *block = malloc(8 * MIB), *at = map(4 * MIB);
    char *closed = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int id = shmget(IPC_PRIVATE, MIB, 0600 | IPC_CREAT);
    fill(block, 8 * MIB, 1);
    fill(at, 4 * MIB, 2);
    CHECK(closed != MAP_FAILED && id >= 0);
    if (strcmp(argv[1], "as") == 0)
        set_limit(RLIMIT_AS, (size_t)1 << 30);
    else
        set_limit(RLIMIT_DATA, 64 * MIB);
    const char *call = argv[2];
    if (strcmp(call, "mremap") == 0)
        CHECK((at = mremap(at, 4 * MIB, 12 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED && is_filled(at, 4 * MIB, 2));
    else if (strcmp(call, "sbrk") == 0)
        CHECK(sbrk(8 * MIB) != (void *)-1);
    else if (strcmp(call, "brk") == 0)
        CHECK(brk((char *)sbrk(0) + 8 * MIB) == 0);
    else if (strcmp(call, "shmat") == 0)
        CHECK(shmat(id, NULL, 0) != (void *)-1);
    else if (strcmp(call, "mprotect") == 0)
        CHECK(mprotect(closed, 4 * MIB, PROT_READ | PROT_WRITE) == 0);
    else if (strcmp(call, "syscall") == 0)
        CHECK(syscall(SYS_mprotect, closed, 4 * MIB, PROT_READ | PROT_WRITE) == 0);
    shmctl(id, IPC_RMID, NULL);
    errno = 0;
    CHECK(mmap(NULL, (size_t)2 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    CHECK(errno == ENOMEM && is_filled(block, 8 * MIB, 1));
    puts("done");
}
