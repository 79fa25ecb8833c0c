/* Programs that are started with what cannot be read or does not fit, by old and new functions: the C library's answers. */
#include "check.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>

enum { LONG = 200 << 10 };
static char word[LONG + 1], script[32] = "/tmp/starts.XXXXXX", made[48];

#if defined __GLIBC__ && defined __x86_64__
int old_spawn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
    char *const[]);
__asm__(".symver old_spawn, posix_spawn@GLIBC_2.2.5");
#else
#define old_spawn posix_spawn
#endif

static int status_of(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void)
{
    memset(word, 'x', LONG);
    map_again(8 * MIB, 1);

    /* What is in front of an entry that is too long cannot be read. */
    char *words[] = { "true", NULL }, *bad[] = { (char *)1, word, NULL }, *too_long[] = { "true", word, NULL };
    int answer = execve("/bin/true", words, bad);
    printf("execve: %d, %s\n", answer, strerror(errno));

    /* The file is made once. */
    int file = mkstemp(script);
    CHECK(file >= 0 && write(file, "exit 5\n", 7) == 7 && fchmod(file, 0755) == 0 && close(file) == 0);
    snprintf(made, sizeof made, "%s.made", script);
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions, 1, made, O_WRONLY | O_CREAT | O_EXCL, 0600) == 0);
    pid_t child;
    answer = posix_spawn(&child, "/bin/true", &actions, NULL, too_long, environ);
    printf("posix_spawn: %s, made: %d\n", strerror(answer), unlink(made));

    /* The old function gives a text to the shell. */
    answer = old_spawn(&child, script, NULL, NULL, words, environ);
    printf("old: %s, %d\n", strerror(answer), answer ? -1 : status_of(child));
    answer = posix_spawn(&child, script, NULL, NULL, words, environ);
    printf("new: %s, %d\n", strerror(answer), answer ? -1 : status_of(child));
    CHECK(unlink(script) == 0);
    puts("done");
}
