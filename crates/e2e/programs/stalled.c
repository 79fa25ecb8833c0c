/* The library's background thread is stopped for a while, again and again, wherever it is: a tracer does that to this one
 * thread, as a debugger would. The program gets what it asks for, and zero is zero. */
#include "check.h"
#include <dirent.h>
#include <sys/ptrace.h>
#include <time.h>

static void rest(long us)
{
    struct timespec time = { 0, us * 1000 };
    nanosleep(&time, NULL);
}

/* Set when the thread was stopped often enough; both processes have it. */
static volatile int *enough;

/* Memory is given back and left alone for long enough to be zeroed, and then wanted again. */
static void work(void)
{
    for (int i = 0; i < 40 || (!*enough && i < 2000); i++) {
        char *at = map(32 * MIB);
        CHECK(is_zero(at, 32 * MIB));
        fill(at, 32 * MIB, i);
        CHECK(is_filled(at, 32 * MIB, i) && munmap(at, 32 * MIB) == 0);
        rest(6000 + i % 7 * 300);
        take_and_give(i, 1, 9);
    }
}

/* The thread of that name in `pid`; 0: there is none now. */
static pid_t background(pid_t pid)
{
    char path[100], name[32];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    pid_t found = 0;
    for (struct dirent *task; tasks && !found && (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", pid, task->d_name);
        FILE *comm = fopen(path, "r");
        if (comm && fgets(name, sizeof name, comm) && strcmp(name, "faultless\n") == 0)
            found = atoi(task->d_name);
        if (comm)
            fclose(comm);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

int main(void)
{
    enough = mmap(NULL, sizeof *enough, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(enough != MAP_FAILED);
    /* Without the library there is no such thread. */
    *enough = !getenv("LD_PRELOAD");
    pid_t pid = fork(), seized = 0;
    CHECK(pid >= 0);
    if (pid == 0) {
        work();
        _exit(0);
    }
    int status, stops = 0, refused = 0;
    for (int turn = 0; waitpid(pid, &status, WNOHANG) == 0; turn++) {
        pid_t thread = background(pid);
        int ended;
        if (seized && waitpid(seized, &ended, __WALL | WNOHANG) == seized && !WIFSTOPPED(ended))
            seized = 0;
        rest(500 + turn % 11 * 400);
        if (!thread || refused)
            continue;
        if (thread != seized) {
            if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0) {
                /* It has ended meanwhile, or nobody may trace here. */
                refused = errno == EPERM && background(pid) == thread;
                *enough |= refused;
                continue;
            }
            seized = thread;
        }
        int stopped;
        if (ptrace(PTRACE_INTERRUPT, thread, 0, 0) != 0 || waitpid(thread, &stopped, __WALL) != thread ||
            !WIFSTOPPED(stopped)) {
            continue;
        }
        *enough |= ++stops > 3;
        rest(30000);
        ptrace(PTRACE_CONT, thread, 0, 0);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (getenv("LD_PRELOAD") && !refused)
        CHECK(stops > 3);
    puts("all as it should be");
    return 0;
}
