/* Hooks of fork resize, use and free large blocks, and what a child frees leaves its memory. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *p, *large;

static size_t rss(void)
{
    char line[256];
    size_t k = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %zu", &k);
    fclose(f);
    return k >> 10;
}

static char lines[1024];

/* What the parent finds is printed after the child has ended. */
static void hook(const char *where)
{
    char *q = realloc(p, 3 << 20);
    int kept = q && q[0] == 1 && q[(2 << 20) - 1] == 1;
    size_t n = strlen(lines);
    snprintf(lines + n, sizeof lines - n, "%s: %s, content %s, usable %d\n", where, q ? "memory" : strerror(errno),
             kept ? "kept" : "lost", malloc_usable_size(q) >= 3 << 20);
    free(q);
    p = malloc(2 << 20);
    memset(p, 1, 2 << 20);
}

static void prepare(void) { hook("prepare"); }
static void parent(void) { hook("parent"); }
static void child(void) { hook("child"); }

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_atfork(prepare, parent, child);
    p = malloc(2 << 20);
    memset(p, 1, 2 << 20);
    large = malloc(200 << 20);
    memset(large, 1, 200 << 20);
    pid_t c = fork();
    if (c == 0) {
        free(large);
        printf("%sthe child has given it back: %d\n", lines, rss() < 100);
        _exit(0);
    }
    int st;
    waitpid(c, &st, 0);
    printf("%s%d, the parent has it: %d\n", lines, st, large[0] == 1 && large[(200 << 20) - 1] == 1);
}
