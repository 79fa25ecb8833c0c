/* A program that uses each function of the API. It ends with 0, or with the line that found something wrong. */
#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <faultless.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int read_sevens(void *context, uint64_t offset, void *buffer, size_t length) {
    /* By a thread of the library: what it writes before a page is there, a checker of races does not order. */
    __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST);
    memset(buffer, 7, length);
    return offset >= MIB ? 5 : 0;
}

static int read_nothing(void *context, uint64_t offset, void *buffer, size_t length) {
    (void)context, (void)offset, (void)buffer, (void)length;
    return -1;
}

static int use(int delivery) {
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = delivery, .window_first = PAGE, .window_most = 64 * PAGE};
    faultless_region *region = NULL;
    int made = faultless_region_new(8 * MIB + 5, &options, &region);
    if (made == FAULTLESS_E_NO_USERFAULTFD) {
        fprintf(stderr, "skipped: %s\n", faultless_strerror(made));
        return 0;
    }
    CHECK(made == 0 && region != NULL);
    CHECK(faultless_region_length(region) == 8 * MIB + 5);
    CHECK(faultless_region_delivery(region) == delivery);
    CHECK(faultless_region_check_thread(region) == 0);
    CHECK(delivery != FAULTLESS_SIGNAL || !faultless_region_serves_system_calls(region));
    unsigned char *data = faultless_region_data(region);
    for (size_t at = 0; at < 8 * MIB; at += PAGE) {
        CHECK(data[at] == 0);
        data[at] = 1;
    }
    CHECK(faultless_region_present(region) >= 8 * MIB && faultless_region_present(NULL) == 0);
    uint64_t faults = faultless_region_counter(region, "region_pgfault");
    CHECK(delivery == FAULTLESS_DIRECT || delivery == FAULTLESS_KERNEL ? faults == 0 : faults > 0 && faults <= faultless_counter("region_pgfault"));
    CHECK(faultless_region_counter(region, "mmap_served") == 0 && faultless_region_counter(NULL, "region_pgfault") == 0);
    CHECK(faultless_protect(region, 0, MIB, FAULTLESS_READ) == 0);
    CHECK(data[5 * PAGE] == 1);
    CHECK(faultless_remap(region, 0, MIB, 4 * MIB) == FAULTLESS_E_MAPPED);
    CHECK(faultless_unmap(region, 4 * MIB, 2 * MIB) == 0);
    CHECK(faultless_remap(region, 0, MIB, 4 * MIB) == 0);
    CHECK(data[4 * MIB] == 1);
    CHECK(faultless_map(region, 0, MIB, FAULTLESS_WRITE) == 0);
    CHECK(faultless_populate(region, 0, MIB) == 0 && data[0] == 0);
    CHECK(faultless_advise(region, 7 * MIB, MIB, FAULTLESS_DONTNEED) == 0 && data[7 * MIB] == 0);
    CHECK(faultless_advise(region, 0, MIB, 99) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_map(region, 1, PAGE, FAULTLESS_WRITE) == FAULTLESS_E_OUTSIDE);
    faultless_region_free(region);
    return 0;
}

/* Options of other versions: their size says what they have. */
static int sizes(void) {
    struct {
        faultless_options known;
        uint64_t more;
    } newer = {{FAULTLESS_OPTIONS, .delivery = FAULTLESS_DIRECT}, 0};
    faultless_options *options = &newer.known;
    faultless_region *region = NULL;
    options->size = sizeof newer;
    CHECK(faultless_region_new(MIB, options, &region) == 0);
    faultless_region_free(region);
    newer.more = 1;
    CHECK(faultless_region_new(MIB, options, &region) == FAULTLESS_E_NEWER && region == NULL);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_NEWER), "version"));
    options->size = sizeof *options;
    CHECK(faultless_region_new(MIB, options, &region) == 0);
    faultless_region_free(region);

    /* What lies beyond an older version's options says nothing. */
    options->areas = SIZE_MAX;
    CHECK(faultless_region_new(MIB, options, &region) == FAULTLESS_E_NO_ADDRESS_SPACE);
    options->size = offsetof(faultless_options, areas);
    CHECK(faultless_region_new(MIB, options, &region) == 0);
    CHECK(faultless_region_delivery(region) == FAULTLESS_DIRECT);
    faultless_region_free(region);

    size_t none[] = {0, 1, sizeof *options - 4, sizeof *options + 4, 8192, SIZE_MAX - 7};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        options->size = none[i];
        CHECK(faultless_region_new(MIB, options, &region) == FAULTLESS_E_SIZE && region == NULL);
    }
    CHECK(strstr(faultless_strerror(FAULTLESS_E_SIZE), "FAULTLESS_OPTIONS"));
    return 0;
}

/* Rights are bits: what may be written to may be read. */
static int rights(void) {
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_KERNEL, .unmapped = 1};
    faultless_region *region = NULL;
    CHECK(faultless_region_new(4 * MIB, &options, &region) == 0);
    unsigned char *data = faultless_region_data(region);
    CHECK(faultless_map(region, 0, MIB, FAULTLESS_READ | FAULTLESS_WRITE) == 0);
    CHECK(faultless_map(region, MIB, MIB, FAULTLESS_WRITE) == 0);
    CHECK(faultless_map(region, 2 * MIB, MIB, FAULTLESS_READ) == 0);
    data[0] = data[MIB] = 1;
    CHECK(data[0] + data[MIB] + data[2 * MIB] == 2);
    CHECK(faultless_protect(region, 0, 2 * MIB, FAULTLESS_READ) == 0);
    CHECK(faultless_protect(region, 0, 2 * MIB, FAULTLESS_READ | FAULTLESS_WRITE) == 0);
    data[PAGE] = 2;
    for (int wrong = -1; wrong <= 8; wrong += wrong < 0 ? 5 : 1) {
        CHECK(faultless_protect(region, 0, MIB, wrong) == FAULTLESS_E_ARGUMENT);
        CHECK(faultless_map(region, 3 * MIB, MIB, wrong) == FAULTLESS_E_ARGUMENT);
    }
    CHECK(data[PAGE] == 2);
    faultless_region_free(region);
    return 0;
}

/* Pages that a first fault brings, and faults until all is there. */
static int windows_of(size_t first, size_t most, size_t *pages, uint64_t *faults) {
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_SIGNAL, .small_pages = 1, .window_first = first, .window_most = most};
    faultless_region *region = NULL;
    int made = faultless_region_new(8 * MIB, &options, &region);
    if (made) return made;
    unsigned char *data = faultless_region_data(region);
    data[0] = 1;
    *pages = faultless_region_present(region) / PAGE;
    for (size_t at = 0; at < 8 * MIB; at += PAGE) data[at] = 1;
    *faults = faultless_region_counter(region, "region_pgfault");
    faultless_region_free(region);
    return 0;
}

/* One window may be given without the other; what makes no sense is an error. */
static int windows(void) {
    size_t pages;
    uint64_t faults, more;
    CHECK(windows_of(2 * PAGE, PAGE, &pages, &faults) == FAULTLESS_E_CHOICE);
    CHECK(windows_of(1, 0, &pages, &faults) == FAULTLESS_E_CHOICE);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_CHOICE), "window"));
    if (windows_of(0, 0, &pages, &faults) == FAULTLESS_E_NO_USERFAULTFD) return 0;
    CHECK(pages == 1);
    CHECK(windows_of(64 * PAGE, 0, &pages, &more) == 0 && pages == 64 && more < faults);
    CHECK(windows_of(0, 4 * PAGE, &pages, &more) == 0 && pages == 1 && more >= 512);
    return 0;
}

/* A text stays whatever is asked for later, and says what the kernel said. */
static int texts(void) {
    const char *first = faultless_strerror(FAULTLESS_E_LENGTH), *second = faultless_strerror(-ENOMEM);
    char before[2][256];
    snprintf(before[0], sizeof before[0], "%s", first);
    snprintf(before[1], sizeof before[1], "%s", second);
    for (int error = -4100; error < 200; error++) CHECK(*faultless_strerror(error));
    CHECK(!strcmp(first, before[0]) && !strcmp(second, before[1]) && strcmp(first, second));
    CHECK(faultless_strerror(-ENOMEM) == second && faultless_strerror(FAULTLESS_E_LENGTH) == first);

    faultless_region *region = NULL;
    struct rlimit limit, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){0, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_SIGNAL};
    int error = faultless_region_new(MIB, &options, &region), said = faultless_errno();
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(error == FAULTLESS_E_NO_USERFAULTFD && said == EMFILE);
    CHECK(strstr(faultless_strerror(error), strerror(EMFILE)));
    CHECK(faultless_region_new(0, NULL, &region) == FAULTLESS_E_LENGTH && faultless_errno() == 0);
    CHECK(!strstr(faultless_strerror(error), strerror(EMFILE)));
    /* The kernel has said nothing. */
    const char *refused[] = {faultless_strerror(FAULTLESS_E_NO_USERFAULTFD), faultless_strerror(FAULTLESS_E_NO_EVENTS)};
    for (int i = 0; i < 2; i++) CHECK(!strstr(refused[i], "os error") && !strstr(refused[i], strerror(EPERM)) && strstr(refused[i], ": "));
    return 0;
}

/* The default is memory that system calls can be given. */
static int defaults(void) {
    faultless_region *region = NULL;
    CHECK(faultless_region_new(MIB, NULL, &region) == 0);
    int delivery = faultless_region_delivery(region);
    CHECK(delivery == FAULTLESS_THREAD || delivery == FAULTLESS_KERNEL);
    CHECK(faultless_region_serves_system_calls(region) == 1);
    FILE *file = fopen("/dev/zero", "r");
    CHECK(file && fread(faultless_region_data(region), MIB, 1, file) == 1);
    fclose(file);
    faultless_region_free(region);
    return 0;
}

static int threads(void) {
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    while (dir && readdir(dir)) count++;
    closedir(dir);
    return count;
}

/* Many regions share handler threads. */
static int many(void) {
    static faultless_region *regions[300];
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD};
    int before = threads();
    for (int i = 0; i < 300; i++) {
        int error = faultless_region_new(MIB, &options, &regions[i]);
        if (error == FAULTLESS_E_NO_USERFAULTFD) return 0;
        CHECK(error == 0);
        ((unsigned char *)faultless_region_data(regions[i]))[PAGE] = (unsigned char)i;
    }
    CHECK(threads() <= before + 9);
    for (int i = 0; i < 300; i++) {
        CHECK(((unsigned char *)faultless_region_data(regions[i]))[PAGE] == (unsigned char)i);
        faultless_region_free(regions[i]);
    }
    return 0;
}

int main(void) {
    if (many()) return 1;
    if (sizes() || rights() || windows() || texts() || defaults()) return 1;
    for (int delivery = FAULTLESS_DIRECT; delivery <= FAULTLESS_KERNEL; delivery++) {
        if (use(delivery)) return 1;
    }
    faultless_region *region = NULL;
    CHECK(faultless_region_new(0, NULL, &region) == FAULTLESS_E_LENGTH && region == NULL);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_LENGTH), "length"));
    CHECK(strlen(faultless_strerror(-12)) > 0 && faultless_strerror(1000) != NULL);
    CHECK(faultless_unmap(NULL, 0, PAGE) == FAULTLESS_E_ARGUMENT);
    faultless_set_speculative(0);
    faultless_set_speculative(1);

    CHECK(faultless_set("prefault_max_order", 3) == 0 && faultless_set("nothing", 3) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_set("prefault_max_order", 14) == 0);

    faultless_background *background = NULL;
    CHECK(faultless_reserve(4 * MIB, NULL) == FAULTLESS_E_ARGUMENT);
    CHECK(faultless_reserve(4 * MIB, &background) == 0 && background != NULL);
    CHECK(faultless_background_wait(background) == 0 && faultless_background_done(background));
    CHECK(faultless_background_done(NULL) == 0);
    size_t ready = faultless_background_ready(background);
    CHECK(ready <= 4 * MIB && faultless_reserved() == ready);
    faultless_background_cancel(background);
    faultless_background_free(background);
    CHECK(faultless_release_reserved() == ready && faultless_reserved() == 0);
    CHECK(faultless_region_new(MIB, NULL, &region) == 0);
    CHECK(faultless_populate_in_background(region, 1, PAGE, &background) != 0);
    CHECK(faultless_populate_in_background(region, 0, MIB, &background) == 0);
    CHECK(faultless_background_wait(background) == 0 && faultless_background_ready(background) >= MIB);
    faultless_background_free(background);
    faultless_region_free(region);

    int reads = 0;
    faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD, .read = read_sevens, .context = &reads};
    if (faultless_region_new(MIB, &options, &region) == 0) {
        CHECK(((unsigned char *)faultless_region_data(region))[PAGE] == 7 && __atomic_load_n(&reads, __ATOMIC_SEQ_CST) > 0);
        faultless_region_free(region);
    }
    faultless_options old = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_SIGNAL, .unzeroed = 1, .window_first = 2 * MIB, .window_most = 2 * MIB};
    if (faultless_region_new(8 * MIB, &old, &region) == 0) {
        uint64_t taken = faultless_counter("region_unzeroed");
        for (int round = 0; round < 2; round++) {
            memset(faultless_region_data(region), 7, 8 * MIB);
            CHECK(faultless_advise(region, 0, 8 * MIB, FAULTLESS_DONTNEED) == 0 && faultless_region_present(region) == 0);
        }
        CHECK(faultless_release_reserved() > 0 || faultless_counter("region_unzeroed") == taken);
        faultless_region_free(region);
    }
    faultless_options swapped = {FAULTLESS_OPTIONS, .swap_budget = 4 * MIB, .swap_directory = "/nowhere/at/all"};
    int refused = faultless_region_new(16 * MIB, &swapped, &region);
    CHECK(refused == -ENOENT || refused == FAULTLESS_E_NO_USERFAULTFD || refused == FAULTLESS_E_NO_SWAP || refused == FAULTLESS_E_VALGRIND);
    swapped.swap_directory = NULL;
    if (refused == -ENOENT && faultless_region_new(16 * MIB, &swapped, &region) == 0) {
        unsigned char *bytes = faultless_region_data(region);
        for (size_t at = 0; at < 16 * MIB; at += PAGE) bytes[at] = at / PAGE % 255 + 1;
        for (size_t at = 0; at < 16 * MIB; at += PAGE) CHECK(bytes[at] == at / PAGE % 255 + 1);
        CHECK(faultless_counter("swap_out") > 0 && faultless_counter("swap_in") > 0);
        faultless_region_free(region);
    }
    swapped.delivery = FAULTLESS_KERNEL;
    CHECK(faultless_region_new(16 * MIB, &swapped, &region) == FAULTLESS_E_NO_SWAP);
    swapped.swap_budget = MIB;
    CHECK(faultless_region_new(16 * MIB, &swapped, &region) == FAULTLESS_E_CHOICE);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_NO_SWAP), "swap_budget"));
#ifndef WITHOUT_EVENTS
    options.events = 1;
    int made = faultless_region_new(MIB, &options, &region);
    if (made == 0) {
        CHECK(munmap(faultless_region_data(region), PAGE) == 0);
        CHECK(faultless_protect(region, 0, 2 * PAGE, FAULTLESS_READ) == FAULTLESS_E_LOST);
        CHECK(faultless_protect(region, PAGE, PAGE, FAULTLESS_READ) == 0);
        faultless_region_free(region);
    } else {
        CHECK(made == FAULTLESS_E_NO_USERFAULTFD || made == FAULTLESS_E_NO_EVENTS);
    }
#endif
    options.events = 1;
    options.delivery = FAULTLESS_SIGNAL;
    CHECK(faultless_region_new(MIB, &options, &region) == FAULTLESS_E_NO_EVENTS);
    CHECK(strstr(faultless_strerror(FAULTLESS_E_NO_EVENTS), "CAP_SYS_PTRACE"));
    CHECK(strstr(faultless_strerror(FAULTLESS_E_LOST), "unmapped"));
    /* What a function fails with that knows no error numbers. */
    options = (faultless_options){FAULTLESS_OPTIONS, .delivery = FAULTLESS_SIGNAL, .read = read_nothing};
    if (faultless_region_new(MIB, &options, &region) == 0) {
        CHECK(faultless_populate(region, 0, PAGE) == -EIO);
        CHECK(faultless_populate_in_background(region, 0, PAGE, &background) == 0);
        CHECK(faultless_background_wait(background) == -EIO);
        faultless_background_free(background);
        CHECK(faultless_populate_in_background(NULL, 0, PAGE, &background) == FAULTLESS_E_ARGUMENT && !background);
        faultless_region_free(region);
    }
    options = (faultless_options){FAULTLESS_OPTIONS, .delivery = 5};
    region = (faultless_region *)&options;
    CHECK(faultless_region_new(MIB, &options, &region) == FAULTLESS_E_ARGUMENT && region == NULL);
    options = (faultless_options){FAULTLESS_OPTIONS, .areas = SIZE_MAX};
    CHECK(faultless_region_new(MIB, &options, &region) == FAULTLESS_E_NO_ADDRESS_SPACE && region == NULL);
    CHECK(faultless_strerror(INT_MIN) != NULL && faultless_strerror(INT_MAX) != NULL);
    faultless_region_free(NULL);
    faultless_background_free(NULL);
    return 0;
}
