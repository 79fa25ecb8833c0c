/* A program that loads the library by its path, and closes it while a thread of the library serves a region: the code stays, and so
 * does the region. The path is the argument. */
#include <dlfcn.h>
#include <faultless.h>
#include <stdio.h>

#include "check.h"

enum { PAGES = 2048 };

int main(int argc, char **argv) {
    CHECK(argc == 2 && !dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD));
    for (int round = 1; round <= 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        int (*new_region)(size_t, const faultless_options *, faultless_region **) = dlsym(library, "faultless_region_new");
        void *(*data)(const faultless_region *) = dlsym(library, "faultless_region_data");
        void (*free_region)(faultless_region *) = dlsym(library, "faultless_region_free");
        const char *(*text)(int) = dlsym(library, "faultless_strerror");
        CHECK(new_region && data && free_region && text);
        /* A window of one page: a message for each. */
        faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD, .window_most = PAGE};
        faultless_region *region;
        int error = new_region((size_t)PAGES * PAGE, &options, &region);
        if (error == FAULTLESS_E_NO_USERFAULTFD) {
            fprintf(stderr, "skipped: %s\n", text(error));
            return 0;
        }
        CHECK(error == 0);
        volatile unsigned char *bytes = data(region);
        bytes[0] = (unsigned char)round;
        CHECK(dlclose(library) == 0);
        for (size_t page = 1; page < PAGES; page++) {
            CHECK(bytes[page * PAGE] == 0);
            bytes[page * PAGE + page] = (unsigned char)(page + (size_t)round);
        }
        CHECK(bytes[0] == round);
        for (size_t page = 1; page < PAGES; page++) {
            CHECK(bytes[page * PAGE + page] == (unsigned char)(page + (size_t)round));
        }
        free_region(region);
    }
    return 0;
}
