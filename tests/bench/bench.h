/*
 * bench: what the benchmarks written in C share: the short form, reporting figures that were left out, clocks that
 * other programs do not advance, and counting the instructions that a program executes.
 *
 * No limit here is in seconds, since those depend on the machine. A limit is the largest ratio to a baseline that was
 * measured in the same run, or the largest ratio of two counts of instructions.
 */
#ifndef AOTICACHE_TESTS_BENCH_BENCH_H
#define AOTICACHE_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Returns whether `make bench QUICK=1` wants the short form. */
static inline bool bench_is_quick(void)
{
    const char *quick = getenv("BENCH_QUICK");
    return quick != NULL && quick[0] != '\0' && strcmp(quick, "0") != 0;
}

/* Reports to scripts/bench which figures this run does not have, and why. Neither text may contain a quotation mark. */
static inline void bench_left_out(const char *what, const char *why)
{
    printf("{\"left_out\":\"%s\",\"why\":\"%s\"}\n", what, why);
    fflush(stdout);
}

/* Returns the processor time of this thread: it stands still while other programs run. */
static inline uint64_t bench_processor_ns(void)
{
    struct timespec now = {.tv_sec = 0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the instructions that callgrind counts in "PROGRAM MODE TIMES", or 0 if it cannot run. */
static inline double bench_instructions_of(const char *program, const char *mode, unsigned long times)
{
    char command[8192], line[512];
    double found = 0;
    snprintf(command, sizeof command, "valgrind --tool=callgrind --callgrind-out-file=/dev/null '%s' %s %lu 2>&1",
             program, mode, times);
    FILE *output = popen(command, "r");
    while (output != NULL && fgets(line, sizeof line, output) != NULL) {
        const char *at = strstr(line, "Collected :");
        if (at != NULL)
            found = strtod(at + strlen("Collected :"), NULL);
    }
    return output != NULL && pclose(output) == 0 ? found : 0;
}

/*
 * Returns the instructions of one repetition of what this program does in `mode`, or 0 if they cannot be counted. Work
 * that the program does once is in both counts, and cancels out.
 */
static inline double bench_instructions(const char *mode)
{
    const unsigned long few = 1000, many = 21000;
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return 0;
    self[length] = '\0';
    double first = bench_instructions_of(self, mode, few);
    double second = first > 0 ? bench_instructions_of(self, mode, many) : 0;
    return second > first ? (second - first) / (double)(many - few) : 0;
}

#endif
