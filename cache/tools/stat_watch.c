/*
 * cache/tools/stat_watch: the view for people again and again, with what happened since the last time.
 */
#include "cache/tools/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void take_signals(sigset_t *ret_signals)
{
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGINT);
    sigaddset(ret_signals, SIGTERM);
    sigaddset(ret_signals, SIGHUP);
    /* Blocked, they wait until we look: no view is cut in the middle. */
    sigprocmask(SIG_BLOCK, ret_signals, NULL);
    signal(SIGINT, SIG_DFL);
}

/* True where a signal asks for the end. */
static bool wait_for(const sigset_t *signals, double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    int result;
    do
        result = sigtimedwait(signals, NULL, &pause);
    while (result < 0 && errno == EINTR);
    return result > 0;
}

static void print_recent(const aoticache_counters *before, const aoticache_counters *now, double seconds)
{
    const aoticache_counters recent = {.hits = now->hits - before->hits, .misses = now->misses - before->misses};
    char rate[AOTICACHE_CLI_UNIT_BYTES] = "";
    if (recent.hits + recent.misses > 0)
        snprintf(rate, sizeof rate, ", %.1f %% of them hits", 100 * stat_hit_rate(&recent));
    printf("\nlast %.3g s: %.1f lookups/s%s, %llu compiles, %llu failures, %llu evictions\n", seconds,
           (double)(recent.hits + recent.misses) / seconds, rate,
           (unsigned long long)(now->compiles - before->compiles),
           (unsigned long long)(now->compile_failures - before->compile_failures),
           (unsigned long long)(now->evicted - before->evicted));
}

int stat_watch(stat_view *view)
{
    const char *terminal = getenv("TERM");
    bool can_clear = terminal != NULL && strcmp(terminal, "dumb") != 0;
    sigset_t signals;
    aoticache_counters before = {.hits = 0};
    uint64_t read_ns = 0;
    take_signals(&signals);
    for (;;) {
        int result = stat_read(view);
        if (result != AOTICACHE_CLI_EXIT_OK)
            return result;
        const uint64_t now = aoticache_monotonic_ns();
        fputs(can_clear ? "\033[H\033[2J" : "\n", stdout);
        stat_print_text(view);
        if (read_ns != 0)
            print_recent(&before, &view->statistics.counters, (double)(now - read_ns) / 1e9);
        fflush(stdout);
        if (ferror(stdout) || wait_for(&signals, view->request->watch_seconds))
            break;
        before = view->statistics.counters;
        read_ns = now;
        stat_view_free(view);
    }
    putchar('\n');
    return AOTICACHE_CLI_EXIT_OK;
}
