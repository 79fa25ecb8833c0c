/* System calls of code outside the C library are the program's to handle (as in wine): there are none then. */
#include "check.h"
#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static char selector;
static volatile int handled;
static uintptr_t low, high;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
    handled++;
}

static int look(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)bytes, (void)unused;
    for (int i = 0; strstr(info->dlpi_name, "libc.so") && i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = start + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            low = low && low < start ? low : start;
            high = high > end ? high : end;
        }
    }
    return 0;
}

int main(void)
{
    dl_iterate_phdr(look, NULL);
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    take_and_give(1, 8, 8);
    char *before = malloc(3 * MIB), *grown = map(96 * MIB);
    fill(before, 3 * MIB, 1);
    fill(grown, 96 * MIB, 2);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, low, high - low, &selector)) {
        puts("no dispatch");
        return 0;
    }
    selector = 1;
    char *block = malloc(8 * MIB), *at = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int mapped = at != MAP_FAILED;
    if (block)
        fill(block, 8 * MIB, 3);
    if (mapped)
        fill(at, 8 * MIB, 4);
    before = realloc(before, 5 * MIB);
    int kept = before && is_filled(before, 3 * MIB, 1);
    free(before);
    free(block);
    int dropped = mapped && madvise(at, 4 * MIB, MADV_DONTNEED) == 0 && is_zero(at, 4 * MIB);
    int guarded = mapped && mprotect(at, 4096, PROT_READ) == 0;
    int unmapped = mapped && munmap(at, 8 * MIB) == 0;
    grown = mremap(grown, 96 * MIB, 104 * MIB, MREMAP_MAYMOVE);
    int moved = grown != MAP_FAILED && is_filled(grown, 96 * MIB, 2);
    errno = 0;
    int called = syscall(SYS_close, -1) == -1 && errno == EBADF && syscall(SYS_getpid) == getpid();
    selector = 0;
    printf("%d %d %d %d %d %d %d: %d handled\n", mapped, kept, dropped, guarded, unmapped, moved, called, handled);
}
