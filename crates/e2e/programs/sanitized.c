/* Built with a sanitizer: large blocks and mappings in two threads, and a name that is not there is looked up. */
#include <dlfcn.h>
#include <pthread.h>
#include "check.h"

static void *work(void *unused)
{
    for (size_t i = 1; i < 6; i++)
        use_both(i);
    return unused;
}

int main(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    work(NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(dlsym(RTLD_DEFAULT, "no_function_of_this_name") == NULL && dlerror() != NULL);
    puts("done");
}
