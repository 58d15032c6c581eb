/*
 * tools/aoticache/doctor: what the files of `aoticache doctor` share beside commands.h.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_DOCTOR_H
#define AOTICACHE_TOOLS_AOTICACHE_DOCTOR_H

#include "cache/config/config.h"
#include "tools/aoticache/commands.h"

/* Reads the configuration and says what is wrong in it. The caller frees it. */
aoticache_config *aoticache_doctor_check_configuration(aoticache_doctor *doctor);

/* The limits that are set against what the directory holds and its file system has. */
void aoticache_doctor_check_limits(aoticache_doctor *doctor, const aoticache_config *config, const char *path,
                                   const aoticache_statistics *statistics);
/* What was set aside and still takes room. */
void aoticache_doctor_check_quarantine(aoticache_doctor *doctor, const char *path);

/* The directory that the command line or the configuration names. Creates nothing. */
void aoticache_doctor_check_directory_of(aoticache_doctor *doctor, const aoticache_config *config);

#endif
