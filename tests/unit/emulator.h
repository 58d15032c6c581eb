/*
 * For tests of behaviour in which an emulator of another processor (qemu-user) differs from a kernel.
 * scripts/check-arm64 sets AOTICACHE_TESTS_EMULATOR.
 */
#ifndef AOTICACHE_TESTS_EMULATOR_H
#define AOTICACHE_TESTS_EMULATOR_H

#include <criterion/criterion.h>
#include <stdlib.h>

/* Skips the test under an emulator, with the reason. */
#define SKIP_UNDER_EMULATOR(why)                    \
    do {                                            \
        if (getenv("AOTICACHE_TESTS_EMULATOR"))     \
            cr_skip_test("under an emulator " why); \
    } while (0)

#define EMULATOR_FORKS_ONE_THREAD \
    "the child of a process with threads cannot start one (an assertion of qemu 7.2 fails)"
#define EMULATOR_HAS_NO_VFORK "posix_spawn() does not learn that a program could not be started (qemu's vfork is fork)"
#define EMULATOR_IS_SLOW "one millisecond is too short for a single step"
#define EMULATOR_COUNTS_PAGES "a mapping of terabytes takes minutes and memory (qemu has flags for each page)"
#define EMULATOR_KEEPS_LIMITS "a limit of memory is that of the emulator"

#endif
