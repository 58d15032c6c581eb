/*
 * tools/aoticache/doctor: types and functions shared by the files of `aoticache doctor`: reporting a finding, and the
 * checks.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_DOCTOR_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_DOCTOR_INTERNAL_H

#include "aoticache/admin.h"
#include "aoticache/remote.h"
#include "aoticache/runner.h"
#include "cache/config/config.h"
#include "tools/cli/cli.h"

typedef enum aoticache_verdict {
    AOTICACHE_VERDICT_OK,
    AOTICACHE_VERDICT_WARN,
    AOTICACHE_VERDICT_FAIL,
} aoticache_verdict;

typedef struct aoticache_doctor {
    const aoticache_cli *cli;
    const char *python, *cc; /* NULL for the defaults */
    json_t *checks;          /* with --json */
    unsigned counts[3];      /* by verdict */
} aoticache_doctor;

/* Reports one finding. advice: what to do; NULL if there is nothing to do. */
void aoticache_doctor_report(aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
                             const char *format, ...) AOTICACHE_PRINTF(5, 6);

/* Checks the directory, its file system, the index. Creates nothing. */
void aoticache_doctor_check_directory(aoticache_doctor *doctor);
/* Checks the C compiler, Python with PyTorch, the shim. */
void aoticache_doctor_check_compilers(aoticache_doctor *doctor);
/* Checks the processor, the kernel, limits. */
void aoticache_doctor_check_machine(aoticache_doctor *doctor);

/* Reads the configuration and reports errors in it. The caller frees it. */
aoticache_config *aoticache_doctor_check_configuration(aoticache_doctor *doctor);

/* Checks whether the remotes of the configuration answer. */
void aoticache_doctor_check_remotes(aoticache_doctor *doctor);

/* Compares the configured limits with the contents of the directory and its file system. */
void aoticache_doctor_check_limits(aoticache_doctor *doctor, const aoticache_config *config, const char *path,
                                   const aoticache_statistics *statistics);
/* Reports quarantined files that still take up space. */
void aoticache_doctor_check_quarantine(aoticache_doctor *doctor, const char *path);

/* Checks the user's own key, trusted keys, and whether signatures are required. */
void aoticache_doctor_check_keys(aoticache_doctor *doctor, const aoticache_config *config, aoticache_cache *cache);

#endif
