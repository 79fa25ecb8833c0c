/* Large memory in a program that has nearly as many areas as it may have. Prints what each call answers. */
#include "check.h"

#define RW (PROT_READ | PROT_WRITE)

static size_t page;

/* Mappings of one page, no two of which are one area. */
static size_t crowd(char *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mprotect(at + 2 * i * page, page, PROT_READ) != 0) {
            CHECK(errno == ENOMEM);
            return i;
        }
    return n;
}

static void say(const char *what, int failed)
{
    printf("%s: %d\n", what, failed ? errno : 0);
}

static void use(void)
{
    static char *mapped[64], *block[64];
    for (int i = 0; i < 64; i++) {
        size_t bytes = (2 + i % 7) * MIB;
        mapped[i] = map(bytes);
        block[i] = i % 2 ? malloc(bytes) : calloc(1, bytes);
        CHECK(block[i] && is_zero(mapped[i], bytes) && (i % 2 || is_zero(block[i], bytes)));
        fill(mapped[i], bytes, i);
        fill(block[i], bytes, i + 1);
    }
    for (int i = 0; i < 64; i++) {
        size_t bytes = (2 + i % 7) * MIB;
        CHECK(is_filled(mapped[i], bytes, i) && is_filled(block[i], bytes, i + 1));
        if (i % 3 == 0)
            say("mprotect", mprotect(mapped[i] + MIB, MIB / 2, PROT_READ));
        if (i % 3 == 1)
            say("munmap of the middle", munmap(mapped[i] + MIB, MIB / 2));
        if (i % 5 == 0)
            say("madvise", madvise(mapped[i], MIB, MADV_DONTFORK));
        if (i % 5 == 1) {
            mapped[i] = mremap(mapped[i], MIB, 20 * MIB, MREMAP_MAYMOVE);
            say("mremap", mapped[i] == MAP_FAILED);
            CHECK(is_filled(mapped[i], MIB, i) && is_zero(mapped[i] + MIB, 19 * MIB));
            say("munmap of what moved", munmap(mapped[i], 20 * MIB));
        } else {
            say("munmap", munmap(mapped[i], bytes));
        }
        free(block[i]);
    }
}

int main(void)
{
    page = sysconf(_SC_PAGESIZE);
    size_t bytes = 600 * MIB;
    char *at = map(bytes);
    use();
    printf("areas: %zu\n", crowd(at, 30000));
    use();
    usleep(20000);
    use();
    /* To the end, where nothing works but what gives back. */
    size_t more = crowd(at + 60000 * page, 30000);
    CHECK(more < 30000);
    char *none = mmap(NULL, page, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("one more", none == MAP_FAILED && mprotect(at + page / page * page * 70001, page, PROT_NONE));
    for (int i = 0; i < 10; i++) {
        char *block = malloc(3 * MIB);
        if (block) {
            fill(block, 3 * MIB, i);
            CHECK(is_filled(block, 3 * MIB, i));
        }
        free(block);
    }
    say("all of it", munmap(at, bytes));
    use();
}
