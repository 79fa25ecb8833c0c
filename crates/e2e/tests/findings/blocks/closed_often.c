/* The program, or children of vfork that share its memory, close every descriptor again and again. Later a block of other rights is
 * freed. No descriptor of anybody's is left over. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include "../../../programs/instruction.h"
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/syscall.h>

#define N (8 * MIB)

static void use(void)
{
    char *block = malloc(N);
    memset(block, 1, N);
    free(block);
}

static int close_and_use(void *end)
{
    instruction(SYS_close_range, 3, ~0u, 0);
    use();
    if (end)
        _exit(0);
    return 0;
}

int main(int argc, char **argv)
{
    static char stack[1 << 17];
    CHECK(argc == 2);
    closefrom(3);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    use();
    for (int i = 0; i < 40; i++) {
        if (!strcmp(argv[1], "children"))
            ended(clone(close_and_use, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, stack));
        else
            close_and_use(NULL);
        use();
    }
    int open = 0;
    for (int fd = 3; fd < 4096; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    CHECK(open <= 4);
    char *block = malloc(N);
    memset(block, 1, N);
    CHECK(instruction(SYS_mprotect, ((uintptr_t)block + 8191) & ~(uintptr_t)4095, N - 16384, PROT_READ) == 0);
    free(block);
    for (int i = 0; i < 4; i++)
        use();
    puts("done");
}
