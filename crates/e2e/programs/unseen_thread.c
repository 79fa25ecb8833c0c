/* The program's first thread is started past the library, by the C library's own function: as libraries do that look for it
 * themselves (jemalloc). Mappings come and go after that. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static void *waits(void *unused)
{
    pause();
    return unused;
}

int main(void)
{
    /* The engine starts, and moves nothing. */
    char *block = malloc(32 * MIB);
    memset(block, 1, 32 * MIB);
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library);
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(library, "pthread_create");
    pthread_t thread;
    CHECK(create && create(&thread, NULL, waits, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        char *memory = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        for (size_t at = 0; at < 32 * MIB; at += 4096) {
            CHECK(memory[at] == 0);
            memory[at] = 1;
        }
        CHECK(munmap(memory, 32 * MIB) == 0);
    }
    puts("done");
}
