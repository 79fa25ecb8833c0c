/* "give PROGRAM ARGS" starts a program with an environment of which some entries are odd; without arguments prints its own. */
#include "check.h"

extern char **environ;

int main(int argc, char **argv)
{
    if (argc > 2) {
        char *entries[] = {"A=1", "A=2", "noequals", "=x", "", "XDG_CONFIG_HOME=/dev/null", NULL};
        execve(argv[2], argv + 2, entries);
        return 127;
    }
    for (char **entry = environ; *entry; entry++)
        puts(*entry);
}
