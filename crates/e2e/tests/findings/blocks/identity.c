/* A thread changes its identity while another one loads a library, whose constructor waits for it. */
#include "../../../programs/check.h"
#include <dlfcn.h>
#include <grp.h>
#include <pthread.h>

static void *change(void *unused)
{
    (void)unused;
    gid_t groups[64];
    int n = getgroups(64, groups);
    CHECK(setuid(getuid()) == 0 && setgid(getgid()) == 0 && seteuid(geteuid()) == 0);
    printf("%d\n", n >= 0 && (geteuid() != 0 || setgroups(n, groups) == 0));
    return NULL;
}

/* Called by the library's constructor. */
void in_constructor(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, change, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    take_and_give(1, 3, 8);
    CHECK(argc == 2 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL));
    puts("loaded");
}
