/*
 * tools/aoticache/interruption: Ctrl-C during a compile.
 *
 * Compilers run in process groups of their own, so a terminal's signal does not reach them; they would go on for a
 * result that nobody takes. Before the tool dies of the signal it passes it on to the groups of its children. What was
 * half made in the cache is left as after any kill, and collected later.
 */
#include "tools/aoticache/commands.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static char children_path[64]; /* made before the handler is set: snprintf is not for handlers */

/* Only calls that signal-safety(7) names. */
static void pass_on(int signal_number)
{
    char text[4096];
    int fd = open(children_path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text) : 0;
    pid_t pid = 0;
    for (ssize_t i = 0; i < size; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            pid = pid * 10 + (text[i] - '0');
            continue;
        }
        /* A child that leads no group has no group of its number: then this does nothing. */
        if (pid > 1)
            kill(-pid, SIGTERM);
        pid = 0;
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void aoticache_interruption_prepare(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    snprintf(children_path, sizeof children_path, "/proc/self/task/%ld/children", (long)getpid());
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old;
        struct sigaction action = {.sa_handler = pass_on};
        sigemptyset(&action.sa_mask);
        /* Under nohup and in scripts' background a signal is ignored, and stays so. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}
