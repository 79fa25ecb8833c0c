/* Faults of several kinds in several mappings, by turns: new memory in two of them and in the heap, pages of a file, and
 * copies in a child. Between two turns it waits as many milliseconds as its second argument says, so that each fault can
 * have a record. Its first argument is the file. At its end it says how many pages of each it has touched. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, TURN = 1000, LARGE = 24576, SMALL = 12288, FILE_PAGES = 16384, HEAP = 5120, COPIES = 16384 };

static useconds_t wait_us;

struct part {
    volatile char *start;
    long pages, done;
};

__attribute__((noinline)) static int touch(struct part *part)
{
    long end = part->done + TURN < part->pages ? part->done + TURN : part->pages;
    for (; part->done < end; part->done++)
        part->start[part->done * PAGE] = 1;
    usleep(wait_us);
    return part->done < part->pages;
}

static char *map(long pages, int flags, int file)
{
    char *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, file, 0);
    if (start == MAP_FAILED)
        exit(9);
    return start;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    /* Small pages alone, whatever the system is set to. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    wait_us = atoi(words[2]) * 1000;
    int file = open(words[1], O_RDONLY);
    /* That of the file lies between the two others, so that these stay two. */
    struct part parts[] = {
        { map(LARGE, MAP_ANONYMOUS, -1), LARGE, 0 },
        { map(FILE_PAGES, 0, file), FILE_PAGES, 0 },
        { map(SMALL, MAP_ANONYMOUS, -1), SMALL, 0 },
        { sbrk(HEAP * PAGE), HEAP, 0 },
    };
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < 4; i++)
            more |= touch(&parts[i]);
    }
    pid_t child = fork();
    if (child == 0) {
        struct part copies = { parts[0].start, COPIES, 0 };
        while (touch(&copies))
            ;
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%d %d %d %d %d\n", LARGE, SMALL, FILE_PAGES, HEAP, COPIES);
    return status != 0;
}
