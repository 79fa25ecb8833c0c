/* What a program changed of a block, or laid over it, must not show in blocks that it gets later. "calls": by functions of the
 * C library; "instructions": by system calls of the program's own. */
#define _GNU_SOURCE
#include "../../../programs/check.h"
#include "../../../programs/instruction.h"
#include <malloc.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define N (6 * MIB)
#define PART (MIB / 2)

static int own;

static int protect(char *at, int rights)
{
    return own ? instruction(SYS_mprotect, (long)at, PART, rights) : mprotect(at, PART, rights);
}

static int advise(char *at, int advice)
{
    return own ? instruction(SYS_madvise, (long)at, PART, advice) : madvise(at, PART, advice);
}

static char *place(char *at, int flags, int fd)
{
    flags |= MAP_FIXED;
    int rights = PROT_READ | PROT_WRITE;
    return own ? (char *)instruction(SYS_mmap, (long)at, PART, rights, flags, fd) : mmap(at, PART, rights, flags, fd, 0);
}

static int file;

static int change(const char *what, char *at)
{
    if (!strcmp(what, "read only"))
        return protect(at, PROT_READ);
    if (!strcmp(what, "closed"))
        return protect(at, PROT_NONE);
    if (!strcmp(what, "not for children"))
        return advise(at, MADV_DONTFORK);
    if (!strcmp(what, "empty for children"))
        return advise(at, MADV_WIPEONFORK);
    if (!strcmp(what, "locked"))
        return own ? instruction(SYS_mlock, (long)at, PART) : mlock(at, PART);
    if (!strcmp(what, "sealed")) {
        long r = own ? instruction(462, (long)at, PART) : syscall(462, at, PART, 0);
        return r && (own ? r == -ENOSYS : errno == ENOSYS) ? 0 : r;
    }
    if (!strcmp(what, "shared"))
        return place(at, MAP_SHARED | MAP_ANONYMOUS, -1) != at;
    if (!strcmp(what, "file"))
        return place(at, MAP_SHARED, file) != at;
    if (!strcmp(what, "moved there")) {
        char *from = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        return (own ? (char *)instruction(SYS_mremap, (long)from, PART, PART, flags, (long)at)
                    : mremap(from, PART, PART, flags, at)) != at;
    }
    if (!strcmp(what, "attached")) {
        int id = shmget(IPC_PRIVATE, PART, 0600 | IPC_CREAT);
        char *is = own ? (char *)instruction(SYS_shmat, id, (long)at, SHM_REMAP) : shmat(id, at, SHM_REMAP);
        shmctl(id, IPC_RMID, NULL);
        return is != at;
    }
    CHECK(!strcmp(what, "hole"));
    return own ? instruction(SYS_munmap, (long)at, PART) : munmap(at, PART);
}

/* Blocks are as any: writable, private, copied for children. */
static void look(void)
{
    char *block[4];
    for (int i = 0; i < 4; i++) {
        block[i] = i % 2 ? calloc(1, N) : malloc(N);
        CHECK(block[i] && (i % 2 == 0 || is_zero(block[i], N)));
        memset(block[i], 2, N);
    }
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 4; i++) {
            CHECK(block[i][0] == 2 && memcmp(block[i], block[i] + 1, N - 1) == 0);
            memset(block[i], 5, N);
        }
        _exit(0);
    }
    CHECK(ended(child) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(block[i][0] == 2 && memcmp(block[i], block[i] + 1, N - 1) == 0);
        free(block[i]);
    }
}

static void try(const char *what)
{
    char byte = 0, *neighbour[2];
    file = memfd_create("file", 0);
    CHECK(ftruncate(file, PART) == 0);
    look();
    neighbour[0] = malloc(N);
    char *block = malloc(N);
    neighbour[1] = malloc(N);
    memset(block, 1, N);
    char *at = (char *)(((uintptr_t)block + 3 * MIB) & ~(uintptr_t)4095);
    int done = change(what, at);
    free(block);
    look();
    /* In the neighbours alike, of which one grows. */
    done |= change(what, (char *)(((uintptr_t)neighbour[0] + MIB) & ~(uintptr_t)4095));
    free(neighbour[1]);
    free(neighbour[0]);
    look();
    CHECK(pread(file, &byte, 1, 100) == 1);
    printf("%s: %d, %zu KiB locked, %d in the file\n", what, done, kib_of_status("VmLck"), byte);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    /* The C library's own blocks would come from its heap again, with what was changed there. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    own = argc > 1 && !strcmp(argv[1], "instructions");
    const char *all[] = {"read only", "closed", "not for children", "empty for children", "locked", "sealed",
                         "shared", "file", "moved there", "attached", "hole"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t child = fork();
        if (child == 0) {
            try(all[i]);
            _exit(0);
        }
        printf("%s: ended %d\n", all[i], ended(child));
        fflush(stdout);
    }
}
