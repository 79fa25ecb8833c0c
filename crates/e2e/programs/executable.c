/* Memory is executable where it is readable, from the beginning ("first") or once the engine serves ("later"), by the C
 * library's function or by its number ("number"). */
#include "check.h"
#include <setjmp.h>
#include <sys/personality.h>
#include <sys/syscall.h>

static sigjmp_buf fails;
static void on_fault(int signal) { siglongjmp(fails, signal); }

static int call(void *block)
{
    static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 }; /* mov eax, 42; ret */
    memcpy(block, code, sizeof code);
    return sigsetjmp(fails, 1) ? -1 : ((int (*)(void))block)();
}

static void use(size_t mib)
{
    for (int i = 0; i < 4; i++) {
        char *block = malloc(mib * MIB), *area = map(mib * MIB);
        CHECK(block && is_zero(area, mib * MIB));
        printf("%d %d", call(block), call(area));
        fill(area, mib * MIB, i);
        area = mremap(area, mib * MIB, mib * MIB + 8 * MIB, MREMAP_MAYMOVE);
        CHECK(area != MAP_FAILED);
        printf(" %d\n", call(area + mib * MIB));
        block = realloc(block, mib * MIB + 8 * MIB);
        CHECK(block != NULL);
        printf("%d\n", call(block + mib * MIB));
        free(block);
        CHECK(munmap(area, mib * MIB + 8 * MIB) == 0);
        usleep(1000);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 && personality(0xffffffff) == 0);
    signal(SIGSEGV, on_fault);
    char *old = NULL;
    if (strcmp(argv[1], "later") == 0) {
        use(64);
        old = malloc(64 * MIB);
        CHECK(old != NULL);
    }
    unsigned long new = READ_IMPLIES_EXEC;
    CHECK((strcmp(argv[2], "number") == 0 ? syscall(SYS_personality, new) : personality(new)) == 0);
    if (old) {
        printf("old %d\n", call(old));
        free(old);
    }
    use(64);
    puts("done");
}
