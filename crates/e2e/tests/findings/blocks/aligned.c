/* Large alignments, on each processor. */
#define _GNU_SOURCE
#include <malloc.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    int bad = 0;
    for (int cpu = 0; cpu < 8; cpu++) {
        cpu_set_t s;
        CPU_ZERO(&s);
        CPU_SET(cpu, &s);
        sched_setaffinity(0, sizeof s, &s);
        for (size_t a = 4ul << 20; a <= 128ul << 20; a *= 2) {
            char *p = memalign(a, 3 << 20);
            bad += !p || (uintptr_t)p % a != 0;
            memset(p, 1, 3 << 20);
        }
    }
    printf("%d misaligned\n", bad);
}
