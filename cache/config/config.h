/*
 * cache/config/config: settings of a machine and of a user: /etc/aoticache.conf, then $XDG_CONFIG_HOME/aoticache/config (or
 * ~/.config/aoticache/config), then the environment (AOTICACHE_DIR, AOTICACHE_MAX_SIZE, ...), then the caller or the command
 * line; a later source overrides an earlier one. docs/configuration.md describes the files.
 *
 * A file has lines `name = value`, comments from '#', nothing else. A wrong line is reported and skipped, never fatal.
 *
 * The cache reads the configuration when it is opened, and only for options that the caller left unset: directory,
 * allow_shared, limits, time limits. Lookups never read it. Settings for collections only (max_age, min_free, policy, keep)
 * are read by aoticache-gc.
 *
 * Trust: /etc/aoticache.conf must belong to root, the user's file to root or the effective user, and neither may be
 * writable by others; any other file is reported and not used. In a program that runs with another user's rights (AT_SECURE)
 * the environment and the user's file are ignored, and only the program itself can set allow_shared.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_CONFIG_CONFIG_H
#define AOTICACHE_CACHE_CONFIG_CONFIG_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_CONFIG_SYSTEM_FILE "/etc/aoticache.conf"
/* Names a file that is read instead of both; empty: none is read. The checks of the user's file apply to it. */
#define AOTICACHE_CONFIG_FILE_VARIABLE "AOTICACHE_CONFIG"

/* name in files, environment variable, default as text, description */
#define AOTICACHE_CONFIG_LIST(X)                                                                                     \
    X(directory, "AOTICACHE_DIR", "", "the cache directory; empty: $XDG_CACHE_HOME/aoticache")                       \
    X(max_size, "AOTICACHE_MAX_SIZE", "0", "limit of the cache's size, in bytes; 0: no limit")                       \
    X(max_entries, "AOTICACHE_MAX_ENTRIES", "0", "limit of its entries; 0: no limit")                                \
    X(max_age, "AOTICACHE_MAX_AGE", "0", "aoticache-gc removes entries not used for this long; 0: never")            \
    X(min_free, "AOTICACHE_MIN_FREE", "0", "free space that aoticache-gc keeps, as 5% or 10G")                       \
    X(policy, "AOTICACHE_POLICY", "lru", "lru or cost")                                                              \
    X(keep, "AOTICACHE_KEEP", "", "patterns of operators that are never collected, separated by spaces")             \
    X(allow_shared, "AOTICACHE_ALLOW_SHARED", "false", "accept a directory that others own or may write to")         \
    X(failure_ttl, "AOTICACHE_FAILURE_TTL", "600", "seconds that a failed compile is remembered")                    \
    X(compile_timeout, "AOTICACHE_COMPILE_TIMEOUT", "600", "seconds to wait for another process's compile")          \
    X(lock_timeout, "AOTICACHE_LOCK_TIMEOUT", "10", "seconds to wait for locks")                                     \
    X(require_signatures, "AOTICACHE_REQUIRE_SIGNATURES", "true", "kernels from elsewhere need a trusted signature") \
    X(trusted_keys, "AOTICACHE_TRUSTED_KEYS", "", "public keys whose signatures are trusted, separated by spaces")   \
    X(revoked_keys, "AOTICACHE_REVOKED_KEYS", "", "keys and manifests that are never trusted")                       \
    X(sign_with, "AOTICACHE_SIGN_WITH", "", "files of secret keys to sign with; empty: the user's own key")          \
    X(keys, "AOTICACHE_KEYS", "", "directory of the user's keys; empty: ~/.config/aoticache")                        \
    X(remote, "AOTICACHE_REMOTE", "", "servers that many machines share, and their options")                         \
    X(remember_digests, "AOTICACHE_REMEMBER_DIGESTS", "true",                                                        \
      "a large file that did not change is hashed once per boot")                                                    \
    X(cpu, "AOTICACHE_CPU", "native", "CPU level that compiles are for: x86-64-v3, or avx2,fma; native: this machine")

typedef enum aoticache_config_name {
#define AOTICACHE_CONFIG_ENUM(name, variable, value, text) AOTICACHE_CONFIG_##name,
    AOTICACHE_CONFIG_LIST(AOTICACHE_CONFIG_ENUM)
#undef AOTICACHE_CONFIG_ENUM
        AOTICACHE_CONFIG_COUNT
} aoticache_config_name;

/* Immutable after it was read: any number of threads may use it. */
typedef struct aoticache_config aoticache_config;

/*
 * Reads the files and the environment.
 *
 * path:   NULL; or the only file to read, whatever its owner, to check it. Then nothing else is read.
 * logger: receives a warning with the position for each wrong line, value or name.
 * Returns: OK (also if there are warnings, or without a path no file), INVALID (ret_config is NULL), NO_MEMORY; with a path
 * also NOT_FOUND, DENIED, IO (it cannot be read, is not a file, or is too large for a configuration).
 */
AOTICACHE_API aoticache_status aoticache_config_read(const char *path, aoticache_logger logger,
                                                     aoticache_config **ret_config, aoticache_error *ret_error);
/* NULL is allowed. */
AOTICACHE_API void aoticache_config_free(aoticache_config *config);

/* A file that was looked for. */
typedef struct aoticache_config_file {
    const char *path;
    const char *state; /* "read", "not there", or why it is not used */
} aoticache_config_file;

typedef struct aoticache_config_info {
    size_t problem_count;               /* how many warnings reading it gave */
    const aoticache_config_file *files; /* in order of precedence */
    size_t file_count;
    /* The user's directory of keys (cache/trust/trust.h): `keys`, otherwise the directory of the user's configuration,
     * whether or not that is read; "" if HOME is unknown, or if the program runs with the rights of another user. */
    const char *key_directory;
} aoticache_config_info;

/* Returns what is known of a configuration, borrowed from it. If config is NULL, there are no files and no directory. */
AOTICACHE_API const aoticache_config_info *aoticache_config_get_info(const aoticache_config *config);

/* One setting. Strings are borrowed from the config, or static. */
typedef struct aoticache_config_setting {
    const char *name;        /* in files: "max_size" */
    const char *variable;    /* in the environment: "AOTICACHE_MAX_SIZE" */
    const char *description; /* what it is, in one line */
    const char *text;        /* its value */
    const char *origin;      /* where the value came from: "/etc/aoticache.conf:3", "$AOTICACHE_MAX_SIZE", "default" */
    /*
     * The value as a number: bytes (max_size, and min_free unless it is a share), entries, seconds (max_age, failure_ttl,
     * compile_timeout, lock_timeout), 0 or 1 (allow_shared, require_signatures, remember_digests), an
     * aoticache_collect_policy (policy). 0 for all others.
     */
    uint64_t number;
    double share;            /* min_free, if it is a share of the file system: 0.05 for 5%; otherwise 0 */
    const char *const *list; /* keep: its patterns; NULL-terminated, never NULL */
} aoticache_config_setting;

/* Returns a setting; with the defaults if config is NULL. A name that does not exist has only NULLs. */
AOTICACHE_API aoticache_config_setting aoticache_config_get(const aoticache_config *config, aoticache_config_name name);
/* Finds the setting of this name: OK or NOT_FOUND. ret_nearest: then the nearest name, or NULL; may be NULL. */
AOTICACHE_API aoticache_status aoticache_config_name_parse(const char *text, aoticache_config_name *ret_name,
                                                           const char **ret_nearest);

struct aoticache_cache_options;
/*
 * Copies the settings of the files and the environment into options of a cache: directory, allow_shared, max_bytes,
 * max_entries, lock_timeout_ms, compile_timeout_ms, failure_ttl_seconds, remote, hash_always, and which signatures are
 * trusted; options without a setting are unchanged. Opening the cache then does not read the sources again (is_configured).
 * For programs that show or change the configuration before they open a cache; other programs leave this to
 * aoticache_cache_open(). Strings are borrowed from the config.
 */
AOTICACHE_API void aoticache_config_apply(const aoticache_config *config, struct aoticache_cache_options *options);

#ifdef __cplusplus
}
#endif
#endif
