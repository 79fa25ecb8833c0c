/* A program with more thread-local variables than a stack of the library's threads has room for. */
#include <faultless.h>
#include <stdio.h>

__thread volatile char large[6 << 20];

int main(void) {
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD};
    faultless_region *region;
    large[5] = 1;
    int error = faultless_region_new(8 << 20, &options, &region);
    if (error == FAULTLESS_E_NO_USERFAULTFD) return 0;
    if (error) {
        fprintf(stderr, "%s\n", faultless_strerror(error));
        return 1;
    }
    ((volatile char *)faultless_region_data(region))[4096] = 1;
    faultless_region_free(region);
    return 0;
}
