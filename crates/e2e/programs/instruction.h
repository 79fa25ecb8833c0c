/* System calls by the program's own instruction, which no library sees. Arguments that are left out are 0. */
#pragma once

static inline long by_instruction(long number, const long of[6])
{
    long answer;
    register long r10 asm("r10") = of[3];
    register long r8 asm("r8") = of[4];
    register long r9 asm("r9") = of[5];
    asm volatile("syscall"
                 : "=a"(answer)
                 : "a"(number), "D"(of[0]), "S"(of[1]), "d"(of[2]), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return answer;
}

#define instruction(number, ...) by_instruction(number, (const long[6]){__VA_ARGS__})
