/* Programs are started with as many words as fit beside the environment that this one has plain. */
#include "check.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>

extern char **environ;
enum { WORD = 100 << 10, MOST = 64 };
static char *words[MOST + 2] = { "true" }, *plain[1000];

/* Words of so many bytes. */
static char **of(size_t bytes)
{
    static char all[WORD + 1];
    static char last[WORD + 1];
    size_t n = bytes / WORD;
    CHECK(n < MOST);
    memset(all, 'x', WORD);
    memset(last, 'x', WORD);
    last[bytes % WORD] = 0;
    for (size_t i = 0; i < n; i++)
        words[i + 1] = all;
    words[n + 1] = last;
    words[n + 2] = NULL;
    return words;
}

static int spawned(size_t bytes, char **environment)
{
    int status;
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, of(bytes), environment) != 0)
        return 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status == 0;
}

static int starts(int how, size_t bytes)
{
    int status, file;
    pid_t child = how % 2 ? fork() : vfork();
    if (child == 0) {
        switch (how / 2) {
        case 0: execve("/bin/true", of(bytes), environ); break;
        case 1: execv("/bin/true", of(bytes)); break;
        case 2: execvp("/bin/true", of(bytes)); break;
        case 3: execvpe("/bin/true", of(bytes), environ); break;
        case 4: syscall(SYS_execve, "/bin/true", of(bytes), environ); break;
        default: file = open("/bin/true", O_RDONLY); fexecve(file, of(bytes), environ); break;
        }
        _exit(errno == E2BIG ? 7 : 8);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void)
{
    struct rlimit limit = { 4 * MIB, 4 * MIB };
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    if (!getenv("LD_PRELOAD"))
        unsetenv("FAULTLESS_STATS");
    map_again(8 * MIB, 1);
    int n = 0;
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "LD_PRELOAD=", 11) && strncmp(*entry, "FAULTLESS_", 10))
            plain[n++] = *entry;
    size_t low = 0, high = 2 * MIB;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (spawned(middle, plain)) low = middle; else high = middle;
    }
    printf("%d %d\n", spawned(low, environ), spawned(low + 1, environ));
    for (int how = 0; how < 12; how++)
        printf("%d: %d %d\n", how, starts(how, low - 32), starts(how, low + 1024));
    puts("done");
}
