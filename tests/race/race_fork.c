/*
 * A process forks while its threads load, run and unload libraries; each child does the same with its own library. A
 * child has none of its parent's threads, so a lock that one of them held at the fork is never released in the child.
 *
 * Arguments: children (default 300), threads (default 3).
 */
#include "base/base.h"
#include "loader/loader.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/*
 * Returns suppressions. The sanitizer does not see the dynamic linker's own lock; accesses under it look like races in
 * malloc.
 */
AOTICACHE_API const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:ld-linux\nrace:/proc/thread-self/fd/\n";
}
#endif

enum { MAX_THREADS = 16, CHILD_SECONDS = 30, LOADS_A_FORK = 50 };

static char library_path[PATH_MAX];
static atomic_bool stop;
static atomic_ulong loads, forks;

/* Loads one library, makes its container, and frees both. Returns what went wrong, or NULL. */
static const char *load_once(void)
{
    static __thread aoticache_error error;
    aoticache_library *library = NULL;
    aoticache_runner *runner = NULL;
    int fd = open(library_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return "it cannot be opened";
    aoticache_status status = aoticache_library_load_fd(fd, "kernel", NULL, &library, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_create(library, NULL, &runner, &error);
    close(fd);
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
    return status == AOTICACHE_OK ? NULL : error.message;
}

/*
 * Waits for the forks. ThreadSanitizer keeps memory for each load: after some 24,000 of them fork() fails, out of
 * memory.
 */
static void wait_for_forks(void)
{
#if defined(__SANITIZE_THREAD__)
    while (!atomic_load(&stop) && atomic_load(&loads) > LOADS_A_FORK * (atomic_load(&forks) + 1))
        usleep(100);
#endif
}

static void *load_on(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        wait_for_forks();
        const char *problem = load_once();
        if (problem != NULL) {
            fprintf(stderr, "not ok - a thread: %s\n", problem);
            exit(1);
        }
        atomic_fetch_add(&loads, 1);
    }
    return NULL;
}

/* Runs in a child: does what the parent's threads do, and a fork with another thread, which ThreadSanitizer forbids. */
static int child_main(void)
{
    int status = 1;
    alarm(CHILD_SECONDS);
    if (load_once() != NULL)
        return 1;
#if !defined(__SANITIZE_THREAD__)
    pthread_t thread;
    if (pthread_create(&thread, NULL, load_on, NULL) != 0)
        return 1;
#endif
    pid_t grandchild = fork();
    if (grandchild == 0)
        return load_once() != NULL;
#if !defined(__SANITIZE_THREAD__)
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
#endif
    return waitpid(grandchild, &status, 0) == grandchild && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Runs a child. Returns 0: it did everything; 1: it failed; 2: it hung. */
static int run_child(void)
{
    int status = 0;
    atomic_fetch_add(&forks, 1);
    pid_t child = fork();
    if (child == 0)
        _exit(child_main());
    if (child < 0)
        perror("fork");
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? 2 : 1;
    return WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv)
{
    unsigned long children = argc > 1 ? strtoul(argv[1], NULL, 10) : 300;
    size_t threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 3;
    unsigned long results[3] = {0};
    pthread_t numbers[MAX_THREADS];
    const char *build = getenv("BUILD");
#if defined(__SANITIZE_ADDRESS__)
    /* Seen with GCC 12: a child waits in SizeClassAllocator64::GetFromAllocator, one in a few hundred. */
    puts(
        "skip - race_fork: the address sanitizer's allocator has locks of its own, which no child of a fork gets free");
    return 77;
#endif
    snprintf(library_path, sizeof library_path, "%s/tests/hosts/pointwise.so", build != NULL ? build : "build");
    setenv("AOTICACHE_HOME", build != NULL ? build : "build", 0);
    const char *problem = load_once();
    if (problem != NULL || threads > MAX_THREADS) {
        fprintf(stderr, "not ok - %s: %s\n", library_path, problem != NULL ? problem : "too many threads");
        return 1;
    }
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&numbers[i], NULL, load_on, NULL) != 0)
            return 1;
    /* Stop after a few that hang. */
    for (unsigned long i = 0; i < children && results[2] < 3; i++)
        results[run_child()]++;
    atomic_store(&stop, true);
    for (size_t i = 0; i < threads; i++)
        pthread_join(numbers[i], NULL);
    printf("%s - %lu of %lu children beside %lu loads went through, %lu failed, %lu hung\n",
           results[0] == children ? "ok" : "not ok", results[0], children, atomic_load(&loads), results[1], results[2]);
    return results[0] == children ? 0 : 1;
}
