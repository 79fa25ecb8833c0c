/* A library with functions of the C library's: one is indirect, and with VERSIONS one is hidden from look-ups without a version.
 * With LOADS its constructor starts threads that load and unload libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#ifdef VERSIONS
int hidden_ioctl(int fd, unsigned long request, ...);
__asm__(".symver hidden_ioctl, ioctl@OLD_1");
#define ioctl hidden_ioctl
#endif

int ioctl(int fd, unsigned long request, ...)
{
    (void)request;
    return fd == 12345 ? 42 : -1;
}

static int answer(int operation, ...) { return operation == 9999 ? 43 : -1; }
static void *choose(void) { return (void *)answer; }
int prctl(int operation, ...) __attribute__((ifunc("choose")));

#ifdef LOADS
static void *load(void *unused)
{
    for (;;) {
        void *library = dlopen("libBrokenLocale.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library)
            dlclose(library);
    }
    return unused;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, NULL, load, NULL);
}
#endif
