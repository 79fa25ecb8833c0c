/* The program's table of descriptors is its own: it closes what it did not open, puts files where it likes, and fills the
 * table. Memory is right all the time. The argument says what it does. */
#include "check.h"
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void limit(rlim_t most)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void close_all(void)
{
    for (int round = 0; round < 3; round++) {
        CHECK(close_range(3, ~0u, 0) == 0);
        map_again(8 * MIB, round);
        for (int fd = 3; fd < 1100; fd++)
            close(fd);
        map_again(8 * MIB, round);
        closefrom(3);
        map_again(8 * MIB, round);
        /* The lowest number is free. */
        CHECK(dup(1) == 3 && close(3) == 0);
    }
}

/* Every number from 3 on becomes a file of the program's, which nobody closes or writes to. */
static void put_own(int from)
{
    struct stat mine, there;
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "mine", 4) == 4 && fstat(fd, &mine) == 0);
    for (int to = from; to < 1024; to++)
        CHECK(dup2(fd, to) == to);
    map_again(8 * MIB, 1);
    for (int to = from; to < 1024; to++)
        CHECK(fstat(to, &there) == 0 && there.st_ino == mine.st_ino);
    CHECK(lseek(fd, 0, SEEK_END) == 4);
    for (int to = from; to < 1024; to++)
        CHECK(close(to) == 0);
}

/* The table is full while memory is asked for again and again; afterwards there is room. */
static void fill_table(void)
{
    int most = 0, fd;
    while ((fd = dup(1)) >= 0)
        most = fd;
    CHECK(errno == EMFILE && most > 0);
    map_again(8 * MIB, 1);
    map_again(8 * MIB, 2);
    CHECK(dup(1) == -1 && errno == EMFILE);
    for (fd = 3; fd <= most; fd++)
        close(fd);
    map_again(8 * MIB, 3);
}

static void *own_table(void *barrier)
{
    CHECK(close_range(3, ~0u, CLOSE_RANGE_UNSHARE) == 0);
    for (int i = 0; i < 60; i++) {
        map_again(8 * MIB, i);
        pthread_barrier_wait(barrier);
    }
    int n = 0;
    for (int fd = 3; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    CHECK(n < 20);
    return NULL;
}

/* Two tables in one program: neither fills up. */
static void tables(void)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&thread, NULL, own_table, &barrier) == 0);
    for (int i = 0; i < 60; i++) {
        map_again(8 * MIB, i);
        pthread_barrier_wait(&barrier);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    int n = 0;
    for (int fd = 3; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    CHECK(n < 20);
}

static void children(char *program)
{
    for (int round = 0; round < 4; round++) {
        pid_t child = round < 2 ? fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (child == 0) {
            if (round % 2)
                closefrom(3);
            map_again(8 * MIB, round);
            /* Nothing is inherited across an exec. */
            execl(program, program, "open", NULL);
            _exit(8);
        }
        map_again(8 * MIB, round);
        CHECK(ended(child) == 0);
        map_again(8 * MIB, round);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    const char *what = argv[1];
    if (strcmp(what, "open") == 0) {
        for (int fd = 3; fd < 2000; fd++)
            CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
        return 0;
    }
    closefrom(3);
    limit(argc > 2 ? atoi(argv[2]) : 1024);
    map_again(8 * MIB, 0);
    if (strcmp(what, "close") == 0)
        close_all();
    else if (strcmp(what, "put") == 0)
        put_own(990), put_own(3), put_own(1000);
    else if (strcmp(what, "full") == 0)
        fill_table(), fill_table();
    else if (strcmp(what, "tables") == 0)
        tables();
    else
        children(argv[0]);
    map_again(8 * MIB, 9);
    puts("done");
}
