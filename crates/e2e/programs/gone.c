/* An entry of the environment goes, and what it points to with it. Nobody reads the environment any more. */
#include "check.h"

int main(void)
{
    char *entry = map(4096);
    strcpy(entry, "FOO=bar");
    CHECK(putenv(entry) == 0 && munmap(entry, 4096) == 0);
    take_and_give(1, 8, 8);
    puts("done");
}
