/* Requests as the kernel takes them: an ioctl's in 32 bits, whatever its sign ("request"); process_madvise by its name
 * ("advice"); a limit by the number of another thread ("thread"); the processor's clock forbidden ("clock"); an error text that
 * waits while a thread is made ("text"). */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static int watcher, served;

static void *serve(void *unused)
{
    static char page[4096];
    struct uffd_msg message;
    struct pollfd one = { watcher, POLLIN, 0 };
    memset(page, 'F', sizeof page);
    while (poll(&one, 1, 500) > 0) {
        if (read(watcher, &message, sizeof message) <= 0)
            continue;
        struct uffdio_copy copy = { .dst = message.arg.pagefault.address & ~4095ul, .src = (long)page, .len = 4096 };
        int request = UFFDIO_COPY;
        CHECK(ioctl(watcher, request, &copy) == 0);
        served++;
    }
    return unused;
}

static void requests(void)
{
    const size_t bytes = 8 * MIB;
    int api = UFFDIO_API, enter = UFFDIO_REGISTER;
    for (int i = 0; i < 8; i++) {
        char *at = map(bytes);
        fill(at, bytes, i);
        CHECK(munmap(at, bytes) == 0);
    }
    char *at = map(bytes);
    watcher = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (watcher < 0)
        return;
    struct uffdio_api features = { .api = UFFD_API };
    struct uffdio_register range = { { (long)at, bytes }, UFFDIO_REGISTER_MODE_MISSING, 0 };
    CHECK(ioctl(watcher, api, &features) == 0 && ioctl(watcher, enter, &range) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    for (size_t i = 0; i < bytes; i += MIB)
        CHECK(((volatile char *)at)[i] == 'F');
    pthread_join(thread, NULL);
    CHECK(served == 8);
}

static void advice(void)
{
    const size_t bytes = 40000000;
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    for (int i = 0; i < 6; i++) {
        char *block = malloc(bytes);
        memset(block, 5, bytes);
        struct iovec piece = { (char *)(((uintptr_t)block + 8191) & ~4095ul), bytes / 2 & ~4095ul };
        /* Since Linux 6.13: whoever touches it gets a signal. */
        if (process_madvise(self, &piece, 1, 102, 0) < 0)
            return;
        free(block);
        block = malloc(bytes);
        fill(block, bytes, i);
        CHECK(is_filled(block, bytes, i));
        free(block);
    }
}

static void *nothing(void *unused)
{
    return unused;
}

static void *limits(void *unused)
{
    struct rlimit limit = { 1ul << 30, 1ul << 30 };
    pthread_t thread;
    CHECK(prlimit(gettid(), RLIMIT_AS, &limit, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(system("true") == 0);
    return unused;
}

static void threads(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        free(memset(malloc(5 * MIB), 1, 5 * MIB));
    CHECK(pthread_create(&thread, NULL, limits, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void clocks(void)
{
    CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    for (int i = 0; i < 20; i++) {
        free(memset(malloc((3 + i % 4) * MIB), 1, 3 * MIB));
        char *at = map(8 * MIB);
        fill(at, 8 * MIB, i);
        CHECK(munmap(at, 8 * MIB) == 0);
    }
    CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
}

static void texts(void)
{
    pthread_t thread;
    free(memset(malloc(5 * MIB), 1, 5 * MIB));
    CHECK(!dlopen("libnowhere.so", RTLD_NOW));
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    const char *text = dlerror();
    CHECK(text && strstr(text, "libnowhere.so"));
}

int main(int n, char **args)
{
    const char *how = n > 1 ? args[1] : "request";
    (how[0] == 'r' ? requests : how[0] == 'a' ? advice : how[0] == 'c' ? clocks : how[1] == 'h' ? threads : texts)();
    puts("taken");
}
