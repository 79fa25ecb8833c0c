/* The status of a process whose threads end one by one, or are killed one by one. */
#include "../../../programs/check.h"
#include "../../../programs/instruction.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void use(void)
{
    char *block = malloc(64 * MIB);
    memset(block, 1, 64 * MIB);
    free(block);
}

/* Whether the first thread has ended. */
static int is_over(void)
{
    char text[256] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && fclose(file) == 0);
    return strstr(text, ") Z ") != NULL;
}

static void *later(void *unused)
{
    while (!is_over())
        usleep(1000);
    usleep(1500000);
    use();
    return unused;
}

int main(void)
{
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            use();
            if (way == 0)
                syscall(SYS_exit, 5);
            if (way == 1 && pthread_create(&thread, NULL, later, NULL) == 0)
                syscall(SYS_exit, 5);
            if (way == 2 && pthread_create(&thread, NULL, later, NULL) == 0)
                pthread_exit(NULL);
            /* A filter that kills the thread alone, set by instructions. */
            struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = { 4, filter };
            CHECK(instruction(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) == 0);
            CHECK(instruction(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program) == 0);
            instruction(SYS_getppid, 0, 0, 0);
        }
        printf("%d: %d\n", way, ended(child));
        fflush(stdout);
    }
}
