/*
 * cache/config/config_internal: types and functions shared by the files of cache/config/.
 *
 * Private. config.c defines the order of sources and fills in options, file.c reads one file, value.c handles names and
 * values.
 */
#ifndef AOTICACHE_CACHE_CONFIG_INTERNAL_H
#define AOTICACHE_CACHE_CONFIG_INTERNAL_H

#include "cache/cache.h"
#include "cache/config/config.h"

#define AOTICACHE_CONFIG_MAX_FILES 2

typedef struct aoticache_config_value {
    char *text; /* NULL: the default */
    char *origin;
    uint64_t number;
    double share;
} aoticache_config_value;

struct aoticache_config {
    aoticache_config_value values[AOTICACHE_CONFIG_COUNT];
    char **keep; /* NULL-terminated; the texts are in keep_text */
    char *keep_text;
    aoticache_config_info info; /* owns its strings, and those of the files */
    aoticache_config_file files[AOTICACHE_CONFIG_MAX_FILES];
    aoticache_logger logger; /* used while it is read */
};

/* Logs a warning and counts it. */
void aoticache_config_warn(aoticache_config *config, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/*
 * Stores a value if it is valid, otherwise warns. origin: "FILE:LINE", "$NAME". is_file: relative directories are refused
 * and "~/" is the home. Returns OK also if the value is wrong; NO_MEMORY.
 */
aoticache_status aoticache_config_take(aoticache_config *config, aoticache_config_name name, const char *text,
                                       const char *origin, bool is_file);

/* Which owner a file must have to be trusted. */
typedef enum aoticache_config_trust {
    AOTICACHE_CONFIG_OF_ROOT,
    AOTICACHE_CONFIG_OF_USER,
    AOTICACHE_CONFIG_OF_ANYBODY,
} aoticache_config_trust;

/* Reads one file, if it exists and is trusted; the outcome is its state in config->info. Returns OK, NO_MEMORY, or with
 * OF_ANYBODY: why it cannot be read. */
aoticache_status aoticache_config_add_file(aoticache_config *config, const char *path, aoticache_config_trust trust,
                                           aoticache_error *ret_error);

/* Returns whether the values of this setting from several sources are combined. */
static inline bool aoticache_config_adds_up(aoticache_config_name name)
{
    return name == AOTICACHE_CONFIG_trusted_keys || name == AOTICACHE_CONFIG_revoked_keys;
}

/* Returns whether the machine's file requires signatures: then nothing can override that. */
bool aoticache_config_always_requires_signatures(const aoticache_config *config);

/* Splits the text of `keep` into patterns. OK, NO_MEMORY. */
aoticache_status aoticache_config_split_keep(aoticache_config *config);

/* ---- for opening a cache ---- */

/*
 * Completes options: those that the caller left unset come from the files and the environment, and the remaining ones get
 * their defaults. Reads nothing if options->is_configured. *ret_config owns the strings that were filled in; NULL if nothing
 * was read.
 */
aoticache_status aoticache_config_complete(aoticache_cache_options *options, aoticache_config **ret_config,
                                           aoticache_error *ret_error);
static inline void cleanup_config_release(aoticache_config **config)
{
    aoticache_config_free(*config);
}
/* Initialize with NULL. */
#define cleanup_config __attribute__((cleanup(cleanup_config_release)))

/* Gives the directory set in the files; returns false if none sets one. */
bool aoticache_config_find_directory(char *ret_path, size_t size);

/* Returns whether a file or the environment sets it. */
bool aoticache_config_is_set(const aoticache_config *config, aoticache_config_name name);

#endif
