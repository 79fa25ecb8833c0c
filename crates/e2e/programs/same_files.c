/* The program has a file of /proc that the engine has, too, at all numbers. No child of it loses one. */
#include "check.h"
#include <fcntl.h>
#include <sys/resource.h>

static int lost(int first, int end)
{
    int lost = 0;
    for (int i = first; i < end; i++)
        lost += fcntl(i, F_GETFD) < 0;
    return lost;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int end = limit.rlim_cur < 2100 ? (int)limit.rlim_cur : 2100;
    map_again(64 * MIB, 3);
    use_both(16);
    int file = open(argv[1], O_RDONLY);
    CHECK(file >= 0);
    for (int i = file + 1; i < end; i++)
        CHECK(dup2(file, i) == i);
    CHECK(lost(file, end) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(lost(file, end) == 0);
        map_again(64 * MIB, 4);
        CHECK(lost(file, end) == 0);
        _exit(0);
    }
    CHECK(ended(child) == 0 && lost(file, end) == 0);
    return puts("none lost") < 0;
}
