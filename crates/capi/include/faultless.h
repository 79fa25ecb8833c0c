/* faultless: regions of memory whose page faults the library resolves itself, and files mapped by huge pages.
 *
 * Units: offsets and lengths of regions are in bytes from their start, whole pages of 4096. The length of a region may be any.
 * Errors: functions that return int return 0, or a number of enum faultless_error, or a negated errno of the kernel's, unless it is
 *   said otherwise. faultless_strerror says what it means and what to do. errno is not set.
 * Ownership: what faultless_region_new, faultless_reserve and faultless_populate_in_background give is the caller's, who ends it with
 *   faultless_region_free or faultless_background_free. Memory of a region ends with it. Texts are the library's and stay for good.
 * Threads: each function may be called from any thread at any time, but the two that free, which must be the last use.
 * Null: a region, background or name that is NULL is FAULTLESS_E_ARGUMENT, or a value of 0.
 *
 * Link with `pkg-config --cflags --libs faultless`, and with -Wl,-rpath,DIRECTORY where the library is not in a directory that the
 * loader looks in.
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
/* What a region held at one moment. */
typedef struct faultless_snapshot faultless_snapshot;

/* How a missing page is noticed. */
enum faultless_delivery {
    /* What is right everywhere, and fast second: FAULTLESS_THREAD if system calls on untouched memory work with it, which takes root
     * or access to /dev/userfaultfd, else FAULTLESS_KERNEL. FAULTLESS_KERNEL, too, where no thread or descriptor can be had, and with
     * a limit of addresses or data (ulimit -v, -d). With `read` or `events`: FAULTLESS_THREAD in any case. */
    FAULTLESS_BEST = 0,
    /* Not at all: memory is brought when it is mapped. Not with `read`. */
    FAULTLESS_DIRECT = 1,
    /* By handler threads. System calls on untouched memory work if faultless_region_serves_system_calls says so, else they fail with
     * EFAULT: faultless_populate it before. Not under valgrind, which runs one thread at a time. */
    FAULTLESS_THREAD = 2,
    /* By SIGBUS, in the thread that faults: faster. System calls on untouched memory fail with EFAULT: faultless_populate it before.
     * The handler for SIGBUS is the library's while there are such regions; one that the program installs meanwhile ends it at the
     * next fault (faultless_region_check_thread tells), one from before is called for what is no region's. */
    FAULTLESS_SIGNAL = 3,
    /* By the kernel, as for any memory, in huge pages where it has them. Not with `read`. */
    FAULTLESS_KERNEL = 4
};

/* What a part may be used for: bits, which may be or'ed. As with the processor's own, what may be written to may be read. */
enum faultless_rights { FAULTLESS_NONE = 0, FAULTLESS_READ = 1, FAULTLESS_WRITE = 2 };

enum faultless_advice {
    FAULTLESS_NORMAL = 0,
    FAULTLESS_RANDOM = 1,
    FAULTLESS_HUGE = 2,
    FAULTLESS_NOHUGE = 3,
    FAULTLESS_DONTNEED = 4, /* of a region: drops what is there: it reads as when it was mapped; of a file: gives clean memory back */
    FAULTLESS_SEQUENTIAL = 5, /* of files alone, as the next one: what follows is brought ahead */
    FAULTLESS_WILLNEED = 6    /* brings it now, as faultless_file_prefetch does */
};

/* What functions return that can fail: 0, one of these, or a negated errno of the kernel's. */
enum faultless_error {
    FAULTLESS_E_LENGTH = 1,            /* the length is 0, or too large */
    FAULTLESS_E_NO_ADDRESS_SPACE = 2,  /* the kernel refused the address space (ulimit -v), or memory for tables */
    FAULTLESS_E_NO_USERFAULTFD = 3,    /* not allowed here, or no more descriptors: faultless_errno says which */
    FAULTLESS_E_NO_FEATURE = 4,        /* this kernel's userfaultfd cannot do that */
    FAULTLESS_E_DIRECT_BACKING = 5,    /* `read` needs FAULTLESS_THREAD or FAULTLESS_SIGNAL */
    FAULTLESS_E_NO_THREAD = 6,         /* no thread can be started (ulimit -u, -v) */
    FAULTLESS_E_TOO_MANY_REGIONS = 7,  /* more than 4096 with FAULTLESS_SIGNAL */
    FAULTLESS_E_SIGBUS_BLOCKED = 8,    /* this thread blocks SIGBUS */
    FAULTLESS_E_SIGBUS_TAKEN = 9,      /* another handler for SIGBUS was installed later */
    FAULTLESS_E_OUTSIDE = 10,          /* the part or file is empty, or it is not whole pages, or not inside the region */
    FAULTLESS_E_MAPPED = 11,           /* something is mapped there already */
    FAULTLESS_E_NOT_MAPPED = 12,       /* a part of it is not mapped, or to be moved in several pieces */
    FAULTLESS_E_RIGHTS = 13,           /* it may not be used like that all over */
    FAULTLESS_E_TOO_MANY_AREAS = 14,   /* more parts with different attributes than `areas` */
    FAULTLESS_E_FORKED = 15,           /* the region is the parent's */
    FAULTLESS_E_CLOSED = 16,           /* its faults could not be served any more (also of a file); stderr has the reason */
    FAULTLESS_E_ARGUMENT = 17,         /* a null pointer, or a number that stands for nothing */
    FAULTLESS_E_OTHER = 18,
    FAULTLESS_E_LOST = 19,      /* with events: a part was unmapped or moved away by a call that is not the region's */
    FAULTLESS_E_NO_EVENTS = 20, /* they need FAULTLESS_THREAD and CAP_SYS_PTRACE */
    FAULTLESS_E_SIZE = 21,      /* options without FAULTLESS_OPTIONS */
    FAULTLESS_E_NEWER = 22,     /* options that this version of the library does not know */
    FAULTLESS_E_CHOICE = 23,    /* a window of less than a page, or the first larger than the largest */
    FAULTLESS_E_VALGRIND = 24,  /* FAULTLESS_THREAD, or events, under valgrind */
    FAULTLESS_E_ENDED = 25,     /* the region was freed before background work on it was done */
    FAULTLESS_E_PART = 26,      /* the part is not inside the file */
    FAULTLESS_E_NO_FILE = 27,   /* only regular files have a cache */
    FAULTLESS_E_PARENTS = 28,   /* the file was opened by the parent of this process */
    FAULTLESS_E_NO_SNAPSHOTS = 29, /* not all writes to the region can be noticed: see faultless_snapshot_take */
    FAULTLESS_E_TOO_MANY_SNAPSHOTS = 30, /* 1024 of a region at a time */
    FAULTLESS_E_TARGET = 31,    /* a device node, a FIFO or a socket has the name of the file to save to */
    FAULTLESS_E_CANCELLED = 32, /* the background work was cancelled before it was done */
    FAULTLESS_E_NO_SWAP = 33,   /* swap_budget takes FAULTLESS_THREAD, faults of the kernel's own, neither `read` nor events */
    FAULTLESS_E_INCOMPLETE = 34 /* the snapshot lost bytes, because no memory was left to keep them */
};

/* Fills all of a buffer with what the backing has at an offset, zeroes behind its end; returns 0, or an errno. At EINTR it is called
 * again. Called by any thread,
 * with signal delivery inside a signal handler; not any more when faultless_region_free has returned. The buffer is the library's. */
typedef int (*faultless_read)(void *context, uint64_t offset, void *buffer, size_t length);

/* How a region is made. Begin it with FAULTLESS_OPTIONS; zero bytes stand for the defaults. A program runs with any later version of
 * the library, and with an earlier one as long as what that does not have is zero. */
typedef struct faultless_options {
    size_t size;           /* set by FAULTLESS_OPTIONS */
    uint32_t delivery;     /* enum faultless_delivery */
    uint32_t handlers;     /* threads of FAULTLESS_THREAD, or descriptors of FAULTLESS_SIGNAL, up to 16; 0: one */
    size_t window_first;   /* bytes that a fault brings at first; 0: a page */
    size_t window_most;    /* and at most, while faults follow each other; 0: 64 MiB by thread, 32 MiB by signal */
    size_t areas;          /* parts with different attributes at a time; 0: 4096 */
    size_t budget;         /* bytes beyond what was used: made ready beforehand, and brought by a fault; 0: 64 MiB, any window */
    uint32_t small_pages;  /* whether large windows, too, are made of small pages; by the kernel also with less than 2 MiB above */
    uint32_t unmapped;     /* whether nothing is mapped at first */
    faultless_read read;   /* where bytes come from that were not written; NULL: they are zero */
    void *context;         /* what `read` is given; the caller's, for as long as the region lives */
    uint32_t unzeroed;     /* whether missing pages may have old bytes of this process's: for who writes before it reads */
    uint32_t events;       /* whether the kernel tells the region of fork, mremap, munmap and madvise, which wait for that */
    size_t swap_budget;    /* bytes in memory, 4 MiB or more: pages above it go to a file; 0: all stay. See _E_NO_SWAP */
    const char *swap_directory; /* where that file is, which has no name; NULL: TMPDIR, or /tmp */
} faultless_options;

/* What options begin with: faultless_options options = {FAULTLESS_OPTIONS, .delivery = FAULTLESS_THREAD};
 * before C++20: faultless_options options = {}; options.size = sizeof options; */
#define FAULTLESS_OPTIONS .size = sizeof(faultless_options)

/* Makes a region of `length` bytes, all of it mapped for reading and writing unless the options say otherwise. Options may be NULL, and
 * are not used after the call. The region is the caller's; where it fails, `*region` is NULL. */
int faultless_region_new(size_t length, const faultless_options *options, faultless_region **region);
/* Ends it, and all memory of it. NULL is nothing. */
void faultless_region_free(faultless_region *region);

/* The first byte, at a multiple of 2 MiB; NULL of NULL. The region's. */
void *faultless_region_data(const faultless_region *region);
/* Its length in bytes, as it was asked for. */
size_t faultless_region_length(const faultless_region *region);
/* How many bytes of it are there. */
size_t faultless_region_present(const faultless_region *region);
/* enum faultless_delivery: what FAULTLESS_BEST has become. */
int faultless_region_delivery(const faultless_region *region);
/* 1 if a system call may be given memory that was not touched yet; 0 if it fails with EFAULT then. */
int faultless_region_serves_system_calls(const faultless_region *region);
/* Whether this thread may use the region: 0, or FAULTLESS_E_SIGBUS_BLOCKED, _SIGBUS_TAKEN, _FORKED or _CLOSED. */
int faultless_region_check_thread(const faultless_region *region);

/* Maps a part where nothing is mapped, for `rights`, bits of enum faultless_rights. Errors: _OUTSIDE, _MAPPED, _TOO_MANY_AREAS. */
int faultless_map(const faultless_region *region, size_t offset, size_t length, int rights);
/* Unmaps what is mapped in a part; its memory is gone, and an access is a SIGSEGV. What the program said of the part to the kernel (mlock,
 * madvise, mbind) does not hold for what is mapped there next. Errors: _OUTSIDE. */
int faultless_unmap(const faultless_region *region, size_t offset, size_t length);
/* Changes what a part may be used for, all of which is mapped. Errors: _OUTSIDE, _NOT_MAPPED, _TOO_MANY_AREAS. */
int faultless_protect(const faultless_region *region, size_t offset, size_t length, int rights);
/* Moves a part to offset `to`, where nothing is mapped. The part has the same rights and advice all over, and what of it was moved before
 * came in one piece; otherwise move it part by part. Errors: _OUTSIDE, _NOT_MAPPED (also for several pieces), _MAPPED, _TOO_MANY_AREAS. */
int faultless_remap(const faultless_region *region, size_t offset, size_t length, size_t to);
/* Takes advice, one of enum faultless_advice, about a part, all of which is mapped. Errors: _OUTSIDE, _NOT_MAPPED. */
int faultless_advise(const faultless_region *region, size_t offset, size_t length, int advice);
/* Brings all pages of a part, so that system calls find them in every delivery mode. Errors: _OUTSIDE, _NOT_MAPPED, _RIGHTS where it has
 * none, what `read` gave. */
int faultless_populate(const faultless_region *region, size_t offset, size_t length);

/* The same in the background; the end of the region ends it. The background is the caller's. Where it fails, `*background` is NULL,
 * here and below. */
int faultless_populate_in_background(const faultless_region *region, size_t offset, size_t length,
                                     faultless_background **background);

/* Takes a snapshot: what a part of a region holds now, while the region goes on changing. The part begins at a multiple of 2 MiB, and
 * ends at one or at the region's end. The snapshot is the caller's, who drops it with faultless_snapshot_free; when the region has
 * ended it is good for nothing else. While it lives, the program must not unmap, drop or move memory of the region by calls of its own.
 * Errors: _NO_SNAPSHOTS where not all writes can be noticed: it takes FAULTLESS_THREAD, faults of the kernel's own
 * (faultless_region_serves_system_calls), neither `read` nor events, and no memory of the process that is pinned for devices;
 * _TOO_MANY_SNAPSHOTS, _OUTSIDE, _RIGHTS; -ENOSYS where /proc is not mounted, because it says which pages are there. */
int faultless_snapshot_take(const faultless_region *region, size_t offset, size_t length, faultless_snapshot **snapshot);
size_t faultless_snapshot_length(const faultless_snapshot *snapshot);
/* How many bytes of copies it has: of what was written to since. */
size_t faultless_snapshot_held(const faultless_snapshot *snapshot);
/* Reads `length` bytes from `offset` on. Errors: _OUTSIDE, _ENDED; _INCOMPLETE where no memory was left for a copy of some page. */
int faultless_snapshot_read(const faultless_snapshot *snapshot, size_t offset, void *buffer, size_t length);
/* Writes it to a file in the background, `rate` bytes a second at most (0: as fast as it goes). The file gets its name when all of it
 * is there and durable. It goes on when the snapshot is freed. The background is the caller's. Errors at once: those of opening the file
 * (-ENOENT, -EACCES, -EISDIR …), _TARGET, _FORKED, _ENDED; other ones by faultless_background_wait. */
int faultless_snapshot_save(const faultless_snapshot *snapshot, const char *path, uint64_t rate, faultless_background **background);
/* Drops it. NULL is nothing. */
void faultless_snapshot_free(faultless_snapshot *snapshot);

/* Makes `bytes` of memory ready in the background for faults of regions to take, in huge pages. The background is the caller's. */
int faultless_reserve(size_t bytes, faultless_background **background);
/* How many bytes are ready and were not taken. */
size_t faultless_reserved(void);
/* Gives them back to the system, and what unzeroed regions have dropped and nobody took; how many bytes that were. */
size_t faultless_release_reserved(void);

/* Helps until all is ready, or no more is to be had. Signals are held back while this thread makes a step of 2 MiB, and not between
 * steps. Errors: that of the step that failed first; _CANCELLED, in every thread that waits; _ENDED, _FORKED. */
int faultless_background_wait(const faultless_background *background);
/* How many bytes were made ready so far. */
size_t faultless_background_ready(const faultless_background *background);
/* 1 if no more will be, else 0. */
int faultless_background_done(const faultless_background *background);
/* Ends it, and waits for the steps under way; what is ready stays so. It has no effect on work of which the last step has begun. */
void faultless_background_cancel(const faultless_background *background);
/* The last use of it; it goes on. NULL is nothing. */
void faultless_background_free(faultless_background *background);

/* Files: their pages are cached in this process, in huge pages. All handles and mappings of a file are the same memory. What is written is
 * in the file after a sync, or after the end of the last handle and mapping of it. A program that is KILLED BEFORE has lost it; one
 * that exits calls faultless_files_sync first. Other ways to read the file do not see it before.
 *
 * Units: offsets and lengths are in bytes, and may be any. Errors are a negated errno (-EIO, -ENOSPC, -EBADF where the file was not opened for
 * writing), or a number of enum faultless_error. Buffers and parts are the caller's, and not used after the call. A forked child has none
 * of its parent's files: an access to a mapping is a SIGSEGV there. Signal handlers must not call these functions. Record locks (F_SETLK)
 * of the process on a file are gone when its last handle and mapping end; those of F_OFD_SETLK and flock(2) stay. */
typedef struct faultless_file faultless_file;
typedef struct faultless_mapping faultless_mapping;
/* A part of a file, in bytes. */
typedef struct faultless_part {
    uint64_t offset;
    uint64_t length;
} faultless_part;

/* The cache of an open regular file, for what the descriptor was opened for; it may be closed afterwards. With `small_pages` a miss brings
 * 4 KiB, and not 2 MiB. The file is the caller's; where it fails, `*file` is NULL. Errors: _NO_FILE. */
int faultless_file_new(int fd, int small_pages, faultless_file **file);
/* The last use of a handle. The last one of the file, if there is no mapping, writes back; an error is printed on stderr. NULL is nothing. */
void faultless_file_free(faultless_file *file);
/* Its length in bytes, as this process knows it. */
uint64_t faultless_file_length(const faultless_file *file);
/* How many bytes of it are in memory. */
size_t faultless_file_present(const faultless_file *file);
/* 1 if it is read past the kernel's page cache (O_DIRECT). */
int faultless_file_is_direct(const faultless_file *file);
/* Reads up to `length` bytes; `*done`, unless NULL, is how many: fewer at the end of the file, or before bytes that cannot be read. */
int faultless_file_read(const faultless_file *file, uint64_t offset, void *buffer, size_t length, size_t *done);
/* Writes up to `length` bytes, and makes the file longer as far as it takes; `*done` as above. */
int faultless_file_write(const faultless_file *file, uint64_t offset, const void *bytes, size_t length, size_t *done);
/* Brings `count` parts into memory, in their order, with many requests to the device at a time. `*done`, unless NULL, is how many bytes of
 * them are there then: fewer than asked for where the knob `budget` has no room for more. Errors: _PART. */
int faultless_file_prefetch(const faultless_file *file, const faultless_part *parts, size_t count, size_t *done);
/* Makes it longer, by zeroes, or shorter. Errors: -EBUSY while a mapping reaches behind the new end. */
int faultless_file_set_length(const faultless_file *file, uint64_t length);
/* Has a part read as zero, and take no room in the file any more where the file system can do that. Errors: _PART. */
int faultless_file_punch(const faultless_file *file, uint64_t offset, uint64_t length);
/* Writes back what has changed in a part, as far as it is inside the file (UINT64_MAX: to the end), and waits until it is durable. An error
 * that another call met since the last time is told here, once. What could not be written stays in memory. */
int faultless_file_sync(const faultless_file *file, uint64_t offset, uint64_t length);
/* Gives back the memory of each 2 MiB that lie inside a part, but for what is mapped or not yet written; how many bytes. */
size_t faultless_file_drop(const faultless_file *file, uint64_t offset, uint64_t length);
/* Takes advice, one of enum faultless_advice, about a part, which is inside the file. No byte changes. NORMAL, SEQUENTIAL and RANDOM hold for
 * all reads by this handle, and for faults of lazy mappings in the part; HUGE and NOHUGE for pages that come to the 2 MiB that it touches.
 * Errors: _PART. */
int faultless_file_advise(const faultless_file *file, uint64_t offset, uint64_t length, int advice);

/* Brings a part into memory, and keeps it there: for reading, or with `writable` for both. All of it is there when this returns. The
 * mapping is the caller's, and may outlive the file's handle; where it fails, `*mapping` is NULL. Errors: _PART. */
int faultless_file_map(const faultless_file *file, uint64_t offset, size_t length, int writable, faultless_mapping **mapping);
/* What a lazy mapping is for. */
enum faultless_access {
    FAULTLESS_READ_FILE = 0,   /* to read */
    FAULTLESS_WRITE_FILE = 1,  /* to read and write: a sync writes the pages that have changed */
    FAULTLESS_CHANGE_COPY = 2  /* to read, and to change in this mapping alone: nothing of it goes to the file */
};

/* Maps a part of a file that may be larger than memory. Its pages come when they are touched, and go beyond the knob `budget`. A page
 * that cannot be read is a SIGBUS. `access` is one of enum faultless_access. The mapping is the caller's, as above. Errors: _PART,
 * _NO_USERFAULTFD, _NO_FEATURE (Linux 6.8), _NO_THREAD, _VALGRIND; _NO_SNAPSHOTS to write to the file, while it has a snapshot and
 * faultless_file_allow_snapshots was not called. */
int faultless_file_map_lazy(const faultless_file *file, uint64_t offset, size_t length, int access, faultless_mapping **mapping);
/* How faults of lazy mappings of this file are delivered: FAULTLESS_THREAD, unless this says FAULTLESS_SIGNAL before the first of them.
 * FAULTLESS_BEST leaves it as it is. Copies that are changed alone have threads in any case. Errors: _CHOICE where it is decided. */
int faultless_file_deliver(const faultless_file *file, int delivery);
/* Has writes to lazy mappings of this file wait until snapshots have their pages; before the first lazy mapping. The first write to a
 * page takes a message to a thread then, and again after each sync and each snapshot. Errors: _NO_SNAPSHOTS where a lazy mapping came
 * before, or the kernel does not deliver its own faults; and those of faultless_file_map_lazy. */
int faultless_file_allow_snapshots(const faultless_file *file);
/* Takes a snapshot of all of a file, or of what is mapped, while it goes on changing: see faultless_snapshot_take for what it is. It
 * keeps the file open. Errors: _NO_SNAPSHOTS where not all writes can be noticed: a mapping for writing that is not lazy, or one that
 * is, without faultless_file_allow_snapshots before; _TOO_MANY_SNAPSHOTS; _OUTSIDE of an empty file. */
int faultless_file_snapshot(const faultless_file *file, faultless_snapshot **snapshot);
int faultless_mapping_snapshot(const faultless_mapping *mapping, faultless_snapshot **snapshot);
/* 1 if a system call may be given memory of it that was not touched yet; 0 if it fails with EFAULT then. */
int faultless_mapping_serves_system_calls(const faultless_mapping *mapping);
/* Its first byte; NULL of NULL. The mapping's. What was mapped for reading alone must not be written to: nothing refuses that. */
void *faultless_mapping_data(const faultless_mapping *mapping);
/* Its length in bytes. */
size_t faultless_mapping_length(const faultless_mapping *mapping);
/* Writes it back, all of it if it is writable, and waits until it is durable. */
int faultless_mapping_sync(const faultless_mapping *mapping);
/* As faultless_file_advise, about a part of the mapping. What was changed in a private one stays with DONTNEED. Errors: _PART. */
int faultless_mapping_advise(const faultless_mapping *mapping, size_t offset, size_t length, int advice);
/* Ends it. NULL is nothing. */
void faultless_mapping_free(faultless_mapping *mapping);
/* Files whose pages in memory are together never more than `bytes`, 2 MiB at least. A miss lets pages of the group go, or waits for some.
 * What faultless_file_map keeps counts, too: a mapping that would be more is -ENOMEM, and so is a miss for which mappings leave no room.
 * The group is the caller's, and may be freed before its files; where it fails, `*group` is NULL. Errors: _ARGUMENT. */
typedef struct faultless_cache_group faultless_cache_group;
int faultless_cache_group_new(size_t bytes, faultless_cache_group **group);
void faultless_cache_group_free(faultless_cache_group *group);
/* As faultless_file_new. -EBUSY: the file is open in this process outside of the group. */
int faultless_cache_group_file(const faultless_cache_group *group, int fd, int small_pages, faultless_file **file);
/* How many bytes of the budget are in use, and how many of them mappings keep. */
size_t faultless_cache_group_used(const faultless_cache_group *group);
size_t faultless_cache_group_mapped(const faultless_cache_group *group);
/* Writes back what has changed in all files of this process. */
int faultless_files_sync(void);

/* What an error means, and what to do. Never NULL; the text is the library's, and stays for good. Of FAULTLESS_E_NO_USERFAULTFD and
 * FAULTLESS_E_NO_EVENTS it has what the kernel said, if that is this thread's last error. */
const char *faultless_strerror(int error);
/* What the kernel said when the last call of this thread failed that did: an errno, or 0 if it was not the kernel. */
int faultless_errno(void);
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
