/* Loads the library given with RTLD_DEEPBIND; each side frees and resizes what the other allocated, with "used" also
 * what was allocated before. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    char *early = argc > 2 ? malloc(8 * MIB) : NULL;
    if (early)
        fill(early, 8 * MIB, 4);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    CHECK(library);
    void *(*bound_malloc)(size_t) = dlsym(library, "bound_malloc");
    void *(*bound_calloc)(size_t) = dlsym(library, "bound_calloc");
    void *(*bound_realloc)(void *, size_t) = dlsym(library, "bound_realloc");
    void (*bound_free)(void *) = dlsym(library, "bound_free");
    CHECK(bound_malloc && bound_calloc && bound_realloc && bound_free);
    for (size_t bytes = 1000; bytes < 40 * MIB; bytes = bytes * 3 + 512) {
        char *ours = malloc(bytes), *theirs = bound_calloc(bytes);
        CHECK(ours && theirs && is_zero(theirs, bytes));
        fill(ours, bytes, 1);
        fill(theirs, bytes, 2);
        ours = bound_realloc(ours, bytes * 2);
        theirs = realloc(theirs, bytes * 2);
        CHECK(ours && theirs && is_filled(ours, bytes, 1) && is_filled(theirs, bytes, 2));
        bound_free(ours);
        free(theirs);
        theirs = bound_malloc(bytes);
        fill(theirs, bytes, 3);
        free(theirs);
    }
    if (early) {
        early = bound_realloc(early, 12 * MIB);
        CHECK(early && is_filled(early, 8 * MIB, 4));
        bound_free(early);
    }
    puts("done");
}
