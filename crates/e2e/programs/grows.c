/* Resizes mappings by an instruction of its own, which no library sees; the kernel takes what is one area alone. */
#include "check.h"
#include <sys/syscall.h>

static void *resize(void *at, size_t old, size_t new)
{
    void *answer;
    register long flags __asm__("r10") = MREMAP_MAYMOVE;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_mremap), "D"(at), "S"(old), "d"(new), "r"(flags)
                     : "rcx", "r11", "memory");
    return answer;
}

int main(void)
{
    for (int i = 0; i < 24; i++) {
        /* Not of whole huge pages, and partly of memory that was used before. */
        size_t bytes = (2 + i) * MIB + (i % 3) * 0x5000, used = i % 2 ? bytes : bytes / 2;
        char *at = map(bytes);
        CHECK(is_zero(at, used));
        fill(at, used, i);
        char *larger = resize(at, bytes, 2 * bytes);
        CHECK((size_t)larger < -4095ul);
        CHECK(is_filled(larger, used, i) && is_zero(larger + bytes, bytes));
        char *smaller = resize(larger, 2 * bytes, bytes);
        CHECK(smaller == larger && is_filled(smaller, used, i));
        if (i % 3)
            CHECK(munmap(smaller, bytes) == 0);
    }
    puts("resized");
}
