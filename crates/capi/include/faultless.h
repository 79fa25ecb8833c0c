/* faultless: regions of memory whose page faults the library resolves itself.
 *
 * All offsets and lengths are in bytes, whole pages of 4096, from the start of the region. Each function may be called from any
 * thread at any time, but faultless_region_free, which must be the last use of a region.
 *
 * Link with `pkg-config --cflags --libs faultless`.
 */
#ifndef FAULTLESS_H
#define FAULTLESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct faultless_region faultless_region;
/* Work that goes on in the background. */
typedef struct faultless_background faultless_background;

/* How a missing page is noticed. */
enum faultless_delivery {
    FAULTLESS_BEST = 0,   /* by a thread if the kernel allows that, else not at all */
    FAULTLESS_DIRECT = 1, /* not at all: memory is brought when it is mapped */
    FAULTLESS_THREAD = 2, /* by handler threads; system calls on untouched memory work */
    FAULTLESS_SIGNAL = 3  /* by SIGBUS, in the thread that faults; system calls on untouched memory fail with EFAULT */
};

/* What a part may be used for. */
enum faultless_rights { FAULTLESS_NONE = 0, FAULTLESS_READ = 1, FAULTLESS_WRITE = 2 };

enum faultless_advice {
    FAULTLESS_NORMAL = 0,
    FAULTLESS_RANDOM = 1,
    FAULTLESS_HUGE = 2,
    FAULTLESS_NOHUGE = 3,
    FAULTLESS_DONTNEED = 4 /* drops what is there: it reads as when it was mapped */
};

/* What the functions return: 0, a number of these, or a negated errno of the kernel's. */
enum faultless_error {
    FAULTLESS_E_LENGTH = 1,
    FAULTLESS_E_NO_ADDRESS_SPACE = 2,
    FAULTLESS_E_NO_USERFAULTFD = 3,
    FAULTLESS_E_NO_FEATURE = 4,
    FAULTLESS_E_DIRECT_BACKING = 5,
    FAULTLESS_E_NO_THREAD = 6,
    FAULTLESS_E_TOO_MANY_REGIONS = 7,
    FAULTLESS_E_SIGBUS_BLOCKED = 8,
    FAULTLESS_E_SIGBUS_TAKEN = 9,
    FAULTLESS_E_OUTSIDE = 10,
    FAULTLESS_E_MAPPED = 11,
    FAULTLESS_E_NOT_MAPPED = 12,
    FAULTLESS_E_RIGHTS = 13,
    FAULTLESS_E_TOO_MANY_AREAS = 14,
    FAULTLESS_E_FORKED = 15,
    FAULTLESS_E_CLOSED = 16,
    FAULTLESS_E_ARGUMENT = 17, /* a null pointer, or a number that stands for nothing */
    FAULTLESS_E_OTHER = 18,
    FAULTLESS_E_LOST = 19,      /* with events: a part was unmapped or moved away by a call that is not the region's */
    FAULTLESS_E_NO_EVENTS = 20, /* they need FAULTLESS_THREAD and CAP_SYS_PTRACE */
    FAULTLESS_E_SIZE = 21,      /* options without FAULTLESS_OPTIONS */
    FAULTLESS_E_NEWER = 22      /* options that this version of the library does not know */
};

/* Fills a buffer with what the backing has at an offset, zeroes behind its end; 0, or an errno. Called by any thread, with
 * signal delivery inside a signal handler; not any more when faultless_region_free has returned. */
typedef int (*faultless_read)(void *context, uint64_t offset, void *buffer, size_t length);

/* How a region is made. Begin it with FAULTLESS_OPTIONS; zero bytes stand for the defaults. A program runs with any later version of
 * the library, and with an earlier one as long as what that does not have is zero. */
typedef struct faultless_options {
    size_t size;           /* set by FAULTLESS_OPTIONS */
    uint32_t delivery;     /* enum faultless_delivery */
    uint32_t handlers;     /* threads of FAULTLESS_THREAD, or descriptors of FAULTLESS_SIGNAL; 0: one */
    size_t window_first;   /* bytes that a fault brings at first ... */
    size_t window_most;    /* ... and at most, while faults follow each other; 0: as the delivery is */
    size_t areas;          /* parts with different attributes at a time; 0: 4096 */
    size_t budget;         /* bytes beyond what was used: made ready beforehand, and brought by a fault; 0: 64 MiB, any window */
    uint32_t small_pages;  /* whether large windows, too, are made of small pages */
    uint32_t unmapped;     /* whether nothing is mapped at first */
    faultless_read read;   /* where bytes come from that were not written; NULL: they are zero */
    void *context;         /* what `read` is given */
    uint32_t unzeroed;     /* whether missing pages may have old bytes of this process's: for who writes before it reads */
    uint32_t events;       /* whether the kernel tells the region of fork, mremap, munmap and madvise, which wait for that */
} faultless_options;

/* What options begin with: faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD};
 * before C++20: faultless_options options = {}; options.size = sizeof options; */
#define FAULTLESS_OPTIONS .size = sizeof(faultless_options)

/* Makes a region; options may be NULL. Where it fails, `*region` is NULL. */
int faultless_region_new(size_t length, const faultless_options *options, faultless_region **region);
/* Ends it, and all memory of it. NULL is nothing. */
void faultless_region_free(faultless_region *region);

void *faultless_region_data(const faultless_region *region);
size_t faultless_region_length(const faultless_region *region);
/* How many bytes of it are there. */
size_t faultless_region_present(const faultless_region *region);
/* enum faultless_delivery: what FAULTLESS_BEST has become. */
int faultless_region_delivery(const faultless_region *region);
/* Whether a system call may be given memory that was not touched yet. */
int faultless_region_serves_system_calls(const faultless_region *region);
/* Whether this thread may use the region: 0, or why not. */
int faultless_region_check_thread(const faultless_region *region);

int faultless_map(const faultless_region *region, size_t offset, size_t length, int rights);
int faultless_unmap(const faultless_region *region, size_t offset, size_t length);
int faultless_protect(const faultless_region *region, size_t offset, size_t length, int rights);
int faultless_remap(const faultless_region *region, size_t offset, size_t length, size_t to);
int faultless_advise(const faultless_region *region, size_t offset, size_t length, int advice);
int faultless_populate(const faultless_region *region, size_t offset, size_t length);

/* The same in the background; the end of the region ends it. Where it fails, `*background` is NULL, here and below. */
int faultless_populate_in_background(const faultless_region *region, size_t offset, size_t length,
                                     faultless_background **background);

/* Makes memory ready in the background for faults of regions to take, in huge pages. */
int faultless_reserve(size_t bytes, faultless_background **background);
/* How much is ready and was not taken; gives that back to the system, and what unzeroed regions have dropped and nobody took. */
size_t faultless_reserved(void);
size_t faultless_release_reserved(void);

/* Helps until all is ready, or no more is to be had. */
int faultless_background_wait(const faultless_background *background);
/* How many bytes were made ready so far; whether no more will be. */
size_t faultless_background_ready(const faultless_background *background);
int faultless_background_done(const faultless_background *background);
/* Ends it; what is ready stays so. */
void faultless_background_cancel(const faultless_background *background);
/* The last use of it; it goes on. NULL is nothing. */
void faultless_background_free(faultless_background *background);

/* What an error means, and what to do. The text is this thread's until it asks for the next. */
const char *faultless_strerror(int error);
/* A counter by its name, of all regions of this process; 0 if there is none of that name. */
uint64_t faultless_counter(const char *name);
/* The same of one region, for those that are kept by region (region_pgfault, region_pages, region_window_hits and _misses,
 * region_prefaulted, region_unused, region_fault_ns, region_given_up). */
uint64_t faultless_region_counter(const faultless_region *region, const char *name);
/* Sets a knob by its name (`faultless sysctl --list`), for all regions of this process. */
int faultless_set(const char *name, uint64_t value);
/* Turns speculative faults on or off, for all regions of this process. */
void faultless_set_speculative(int on);

#ifdef __cplusplus
}
#endif
#endif
