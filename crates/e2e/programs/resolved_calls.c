/* A program with a library that makes calls of many kinds while it is linked (resolver_calls.c). */
#include "check.h"

int call(void);

int main(void)
{
    printf("%d\n", call());
    take_and_give(1, 4, 8);
}
