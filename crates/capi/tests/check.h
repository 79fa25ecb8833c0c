/* What the tests of the C API need: a check that names its line, and sizes. */
#pragma once
#include <stdio.h>

#define CHECK(x)                                             \
    do {                                                     \
        if (!(x)) {                                          \
            fprintf(stderr, "line %d: %s\n", __LINE__, #x);  \
            return 1;                                        \
        }                                                    \
    } while (0)

enum { PAGE = 4096, MIB = 1 << 20 };
