/* Built with -fsanitize=address: large blocks, and with "broken" a read of one that was freed. */
#include "check.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < 12; i++) {
        char *gone = use_both(i);
        if (argc > 1 && i == 10)
            printf("%d\n", gone[5]);
    }
    puts("done");
}
