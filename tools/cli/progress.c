/*
 * tools/cli/progress: repeatedly prints "12/80 objects", or "compiling aten::abs, 7 s", on one line of a terminal.
 *
 * During a call of the library that reports nothing until it is done, a thread shows its duration: first after half a
 * second, so that quick calls show nothing, then every second.
 */
#include "base/clock.h"
#include "base/threads.h"
#include "tools/cli/cli.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_NS 500000000
#define NEXT_NS 1000000000

static bool is_terminal(const aoticache_cli_progress *progress)
{
    const char *terminal = getenv("TERM");
    return !progress->cli->quiet && isatty(STDERR_FILENO) && (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

/* Does the same for work without a number of steps: "compiling aten::abs, 7 s". */
static void progress_show_seconds(aoticache_cli_progress *progress, uint64_t seconds)
{
    if (!is_terminal(progress))
        return;
    progress->visible = true;
    fprintf(stderr, "\r\033[K%s, %llu s", progress->what, (unsigned long long)seconds);
    fflush(stderr);
}

void aoticache_cli_progress_show(aoticache_cli_progress *progress, uint64_t done, uint64_t all)
{
    if (!is_terminal(progress))
        return;
    uint64_t now = aoticache_monotonic_ns();
    if (progress->visible && now - progress->shown_ns < 100000000)
        return;
    progress->shown_ns = now;
    progress->visible = true;
    fprintf(stderr, "\r\033[K%llu/%llu %s", (unsigned long long)done, (unsigned long long)all, progress->what);
    fflush(stderr);
}

void aoticache_cli_progress_clear(aoticache_cli_progress *progress)
{
    if (progress->visible)
        fputs("\r\033[K", stderr);
    progress->visible = false;
}

/* ---- a long call ---- */

struct aoticache_cli_waiting {
    aoticache_cli_progress progress;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;
};

static void *show_seconds_until_over(void *argument)
{
    aoticache_cli_waiting *waiting = argument;
    uint64_t begun = aoticache_monotonic_ns();
    struct timespec next = aoticache_deadline_after(FIRST_NS);
    pthread_mutex_lock(&waiting->lock);
    while (!waiting->is_over) {
        if (pthread_cond_timedwait(&waiting->changed, &waiting->lock, &next) != ETIMEDOUT)
            continue;
        progress_show_seconds(&waiting->progress, (aoticache_monotonic_ns() - begun) / 1000000000u);
        next = aoticache_deadline_after(NEXT_NS);
    }
    aoticache_cli_progress_clear(&waiting->progress);
    pthread_mutex_unlock(&waiting->lock);
    return NULL;
}

static void free_waiting(aoticache_cli_waiting *waiting)
{
    pthread_cond_destroy(&waiting->changed);
    pthread_mutex_destroy(&waiting->lock);
    free(waiting);
}

aoticache_cli_waiting *aoticache_cli_waiting_begin(const aoticache_cli *cli, const char *what)
{
    aoticache_cli_waiting *waiting = calloc(1, sizeof *waiting);
    if (waiting == NULL)
        return NULL;
    waiting->progress = (aoticache_cli_progress){.cli = cli, .what = what};
    pthread_mutex_init(&waiting->lock, NULL);
    aoticache_condition_init(&waiting->changed);
    if (aoticache_threads_start(&waiting->thread, 1, NULL, show_seconds_until_over, waiting) == 1)
        return waiting;
    free_waiting(waiting);
    return NULL;
}

void aoticache_cli_waiting_end(aoticache_cli_waiting *waiting)
{
    if (waiting == NULL)
        return;
    pthread_mutex_lock(&waiting->lock);
    waiting->is_over = true;
    pthread_cond_signal(&waiting->changed);
    pthread_mutex_unlock(&waiting->lock);
    pthread_join(waiting->thread, NULL);
    free_waiting(waiting);
}
