/* A thread writes to memory for the first time while another one registers it with a userfaultfd, slot by slot. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define HUGE (2 * MIB)
enum { SLOTS = 24, WRITES = 64, ROUNDS = 12 };

static char *at;
static int round_, turn, written;

static volatile uint32_t *word(int slot, int i)
{
    return (uint32_t *)(at + slot * HUGE + (i * 7 + 3) * 4096 + i * 4);
}

static void rest(int turns)
{
    for (volatile int i = 0; i < turns; i++)
        ;
}

static void *writer(void *none)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) <= slot)
            ;
        rest((slot + round_ * SLOTS) * 2500);
        for (int i = 0; i < WRITES; i++) {
            *word(slot, i) = 1 + i;
            rest(slot * 100);
        }
        __atomic_store_n(&written, slot + 1, __ATOMIC_RELEASE);
    }
    return none;
}

static int watch;

/* What is missing is a page of zeroes. */
static void *server(void *none)
{
    struct uffd_msg message;
    while (read(watch, &message, sizeof message) == sizeof message) {
        struct uffdio_zeropage zero = { .range = { message.arg.pagefault.address & ~4095ul, 4096 } };
        CHECK(ioctl(watch, UFFDIO_ZEROPAGE, &zero) == 0 || errno == EEXIST);
    }
    return none;
}

static void child(void)
{
    map_again((SLOTS + 1) * HUGE, 1);
    char *all = map((SLOTS + 1) * HUGE);
    at = (char *)(((uintptr_t)all + HUGE - 1) / HUGE * HUGE);
    watch = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = { .api = UFFD_API };
    CHECK(watch >= 0 && ioctl(watch, UFFDIO_API, &api) == 0);
    pthread_t thread, serving;
    CHECK(pthread_create(&serving, NULL, server, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, writer, NULL) == 0);
    for (int slot = 0; slot < SLOTS; slot++) {
        struct uffdio_register range = { { (uintptr_t)at + slot * HUGE, HUGE }, UFFDIO_REGISTER_MODE_MISSING, 0 };
        __atomic_store_n(&turn, slot + 1, __ATOMIC_RELEASE);
        CHECK(ioctl(watch, UFFDIO_REGISTER, &range) == 0);
        while (__atomic_load_n(&written, __ATOMIC_ACQUIRE) <= slot)
            ;
        for (int i = 0; i < WRITES; i++)
            CHECK(*word(slot, i) == (uint32_t)(1 + i));
    }
    CHECK(pthread_join(thread, NULL) == 0 && munmap(all, (SLOTS + 1) * HUGE) == 0);
}

int main(void)
{
    map_again((SLOTS + 1) * HUGE, 1);
    for (round_ = 0; round_ < ROUNDS; round_++) {
        pid_t pid = fork();
        if (pid == 0) {
            child();
            _exit(0);
        }
        CHECK(ended(pid) == 0);
    }
    puts("nothing was lost");
}
