/* A program that may only read, write and exit frees and resizes blocks of before: of the C library's heap, these make no system
 * call. */
#include "../../../programs/check.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    char *block[4];
    /* From now on the C library has such blocks in its heap. */
    for (int i = 0; i < 3; i++) {
        char *first = malloc(16 * MIB);
        memset(first, i, 16 * MIB);
        free(first);
    }
    for (int i = 0; i < 4; i++) {
        block[i] = malloc(4 * MIB - i * 777777);
        memset(block[i], i, MIB);
    }
    /* The heap's end is not given back. */
    char *last = malloc(64 << 10);
    memset(last, 1, 64 << 10);
    CHECK(argc < 2 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0
                   : syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0);
    (void)argv;
    free(block[1]);
    block[2] = realloc(block[2], 400 << 10);
    int kept = block[2][0] == 2 && block[2][399 << 10] == 2 && block[3][MIB - 1] == 3;
    free(block[0]);
    free(block[3]);
    free(block[2]);
    const char *text = kept ? "kept\n" : "lost\n";
    syscall(SYS_write, 1, text, strlen(text));
    syscall(SYS_exit, 0);
}
