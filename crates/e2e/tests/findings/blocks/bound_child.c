/* A forked child loads a library with RTLD_DEEPBIND that frees a large block of before the fork. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char *p = malloc(2 << 20);
    memset(p, argc, 2 << 20);
    pid_t c = fork();
    if (c == 0) {
        void *l = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (!l)
            _exit(9);
        ((void (*)(void *))dlsym(l, "lib_free"))(p);
        _exit(0);
    }
    int st;
    waitpid(c, &st, 0);
    printf("child: %d\n", st);
}
