/*
 * cache/config/internal: what the files of the configuration share.
 *
 * Private. config.c owns the order of sources and fills in options, file.c reads one file, value.c knows names and values.
 */
#ifndef AOTICACHE_CACHE_CONFIG_INTERNAL_H
#define AOTICACHE_CACHE_CONFIG_INTERNAL_H

#include "cache/cache.h"
#include "cache/config/config.h"

#define AOTICACHE_CONFIG_MAX_FILES 2

typedef struct aoticache_config_setting {
    char *text; /* NULL: the default */
    char *origin;
    uint64_t number;
    double share;
} aoticache_config_setting;

struct aoticache_config {
    aoticache_config_setting settings[AOTICACHE_CONFIG_COUNT];
    char **keep; /* NULL-terminated; the texts are in keep_text */
    char *keep_text;
    char *key_directory;
    struct {
        char *path;
        char *state;
    } files[AOTICACHE_CONFIG_MAX_FILES];
    size_t file_count;
    size_t problem_count;
    aoticache_logger logger; /* while it is read */
};

/* A warning, counted. */
void aoticache_config_warn(aoticache_config *config, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/*
 * Takes a value where it is one, otherwise warns. origin: "FILE:LINE", "$NAME". is_file: relative directories are refused
 * and "~/" is the home. OK also where it is wrong; NO_MEMORY.
 */
aoticache_status aoticache_config_take(aoticache_config *config, aoticache_config_name name, const char *text,
                                       const char *origin, bool is_file);

/* Whose a file must be to be believed. */
typedef enum aoticache_config_trust {
    AOTICACHE_CONFIG_OF_ROOT,
    AOTICACHE_CONFIG_OF_USER,
    AOTICACHE_CONFIG_OF_ANYBODY,
} aoticache_config_trust;

/* Reads one file, if it is there and trusted; what became of it is its state in config->files. OK, NO_MEMORY, or with
 * OF_ANYBODY: why it cannot be read. */
aoticache_status aoticache_config_add_file(aoticache_config *config, const char *path, aoticache_config_trust trust,
                                           aoticache_error *ret_error);

/* The settings whose values add up, whichever of the sources says them. */
static inline bool aoticache_config_adds_up(aoticache_config_name name)
{
    return name == AOTICACHE_CONFIG_trusted_keys || name == AOTICACHE_CONFIG_revoked_keys;
}

/* Returns whether the machine's file requires signatures: then nothing takes that back. */
bool aoticache_config_always_requires_signatures(const aoticache_config *config);

/* Makes the patterns of `keep` of its text. OK, NO_MEMORY. */
aoticache_status aoticache_config_split_keep(aoticache_config *config);

/* ---- for opening a cache ---- */

/*
 * Completes options: what the caller left open comes from the files and the environment, and what they leave open has its
 * default. Reads nothing where options->is_configured. *ret_config owns the strings that were filled in; NULL if nothing was
 * read.
 */
aoticache_status aoticache_config_complete(aoticache_cache_options *options, aoticache_config **ret_config,
                                           aoticache_error *ret_error);
static inline void cleanup_config_release(aoticache_config **config)
{
    aoticache_config_free(*config);
}
/* Initialise with NULL. */
#define cleanup_config __attribute__((cleanup(cleanup_config_release)))

/* The directory that files name; false if none does. */
bool aoticache_config_find_directory(char *ret_path, size_t size);

/* Returns whether a file or the environment says it. */
bool aoticache_config_is_set(const aoticache_config *config, aoticache_config_name name);

#endif
