/* mbind with MPOL_MF_STRICT where no node, or none of this machine's, may have the pages: it fails for pages that are
 * there, and for memory that the program has not touched it does not. A line for each answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "check.h"

enum { PREFERRED = 1, LOCAL = 4, STRICT = 1 };
#define BYTES (8ul << 20)
#define PAGE 4096ul

static void ask(const char *what, char *at, size_t bytes, int mode) {
    errno = 0;
    long answer = syscall(SYS_mbind, at, bytes, mode, NULL, 0, STRICT);
    printf("%s, mode %d: %ld, errno %d\n", what, mode, answer, errno);
}

int main(void) {
    /* Memory that comes back, so that there is some to bring. */
    for (int i = 0; i < 4; i++) {
        char *at = map(BYTES);
        memset(at, 1, BYTES);
        munmap(at, BYTES);
        usleep(20000);
    }
    int modes[] = {LOCAL, PREFERRED};
    for (int i = 0; i < 2; i++) {
        char *fresh = map(BYTES), *holed = map(BYTES), *written = map(BYTES);
        ask("fresh", fresh, BYTES, modes[i]);
        munmap(holed + BYTES / 2, PAGE);
        ask("with a hole", holed, BYTES, modes[i]);
        written[BYTES - 1] = 7;
        ask("written", written, BYTES, modes[i]);
        for (size_t at = 0; at < BYTES; at++)
            CHECK(fresh[at] == 0 && (at / PAGE == BYTES / 2 / PAGE || holed[at] == 0));
        CHECK(written[BYTES - 1] == 7 && written[0] == 0);
    }
    return 0;
}
