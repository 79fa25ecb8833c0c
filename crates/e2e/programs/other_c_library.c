/* Built with musl: memory of all kinds, errors, threads, forks and other programs, where nothing of faultless is used. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define CHECK(what) do { if (!(what)) { dprintf(2, "%d: %s\n", __LINE__, #what); _exit(9); } } while (0)

static void *work(void *unused)
{
    for (size_t i = 1; i < 20; i++) {
        char *block = malloc(i * MIB);
        CHECK(block);
        memset(block, (int)i, i * MIB);
        block = realloc(block, 2 * i * MIB);
        CHECK(block && block[i * MIB - 1] == (char)i);
        free(block);
        block = calloc(i, 100);
        CHECK(block && block[i * 100 - 1] == 0);
        free(block);
    }
    return unused;
}

static void aligned(void)
{
    void *block = NULL;
    CHECK(posix_memalign(&block, 3, 100) == EINVAL && posix_memalign(&block, 4096, 100) == 0);
    CHECK((size_t)block % 4096 == 0);
    free(block);
    CHECK(posix_memalign(&block, 4096, 8 * MIB) == 0 && malloc_usable_size(block) >= 8 * MIB);
    free(block);
    free(aligned_alloc(64, 128));
    block = memalign(1 << 16, 100);
    CHECK((size_t)block % (1 << 16) == 0);
    free(block);
    free(valloc(100));
}

static void calls(void)
{
    char *at = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), seen[4096];
    CHECK(at != MAP_FAILED && at[5 * MIB] == 0);
    memset(at, 1, 16 * MIB);
    at = mremap(at, 16 * MIB, 32 * MIB, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED && at[16 * MIB - 1] == 1 && at[16 * MIB] == 0);
    CHECK(madvise(at, MIB, MADV_DONTNEED) == 0 && at[0] == 0 && mincore(at, MIB, (void *)seen) == 0);
    CHECK(mprotect(at, 4096, PROT_READ) == 0 && munmap(at, 32 * MIB) == 0);
    errno = 0;
    CHECK(munmap((void *)1, 5) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_munmap, 1, 5) == -1 && syscall(SYS_getpid) == getpid());
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(setuid(getuid()) == 0 && setgid(getgid()) == 0);
    errno = 0;
    CHECK(prctl(9999, 0, 0, 0, 0) == -1 && errno == EINVAL);
    CHECK(ioctl(-1, TIOCGWINSZ, &limit) == -1 && errno == EBADF);
    CHECK(send(-1, "", 1, 0) == -1 && errno == EBADF);
    CHECK(sbrk(0) != (void *)-1);
    CHECK(dlopen("no library", RTLD_NOW) == NULL && dlerror() != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "no function") == NULL && dlerror() != NULL);
}

int main(int argc, char **argv)
{
    pthread_t threads[3];
    int status;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    aligned();
    calls();
    pid_t child = fork();
    if (child == 0) {
        work(NULL);
        _exit(3);
    }
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    CHECK(system("exit 4") == 4 << 8);
    puts(argv[argc - 1] == argv[0] ? "first" : argv[1]);
    fflush(stdout);
    if (argc == 1)
        execl(argv[0], argv[0], "second", NULL);
}
