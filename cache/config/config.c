/*
 * cache/config/config: the sources of settings, their order, and their conversion to the options of a cache.
 *
 * Trust: a program that runs with other rights than its caller's reads nothing but the machine's file (secure_getenv()
 * gives it no variable), so neither the caller's environment nor a file below a home directory named by the caller can make
 * it use another directory. Nor does the configuration make such a program accept a shared directory, because a user who may
 * write there could make it run any code. It accepts one only if its own options say so.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/arguments.h"
#include "base/options.h"
#include "cache/config/config_internal.h"

/* ---- reading ---- */

/* Finds a file. name: relative to the user's configuration directory. */
static bool find_user_path(const char *name, char ret_path[PATH_MAX])
{
    const char *xdg = secure_getenv("XDG_CONFIG_HOME");
    const char *home = secure_getenv("HOME");
    int length;
    if (xdg != NULL && xdg[0] == '/') /* the XDG specification says to ignore relative paths */
        length = snprintf(ret_path, PATH_MAX, "%s/%s", xdg, name);
    else if (home != NULL && home[0] == '/')
        length = snprintf(ret_path, PATH_MAX, "%s/.config/%s", home, name);
    else
        return false;
    return length > 0 && length < PATH_MAX;
}

static aoticache_status find_key_directory(aoticache_config *config)
{
    char path[PATH_MAX] = "";
    const char *chosen = aoticache_config_get(config, AOTICACHE_CONFIG_keys).text;
    if (getauxval(AT_SECURE) == 0 && chosen[0] == '\0' && !find_user_path("aoticache", path))
        path[0] = '\0';
    config->info.key_directory = strdup(chosen[0] != '\0' ? chosen : path);
    return config->info.key_directory != NULL ? AOTICACHE_OK : AOTICACHE_NO_MEMORY;
}

static aoticache_status read_files(aoticache_config *config, aoticache_error *ret_error)
{
    const char *only = secure_getenv(AOTICACHE_CONFIG_FILE_VARIABLE);
    char user_file[PATH_MAX];
    if (only != NULL && only[0] == '\0')
        return AOTICACHE_OK;
    if (only != NULL) {
        aoticache_status status = aoticache_config_add_file(config, only, AOTICACHE_CONFIG_OF_USER, ret_error);
        /* Other files may be missing; a file named explicitly should exist. */
        if (status == AOTICACHE_OK && strcmp(config->files[0].state, "not there") == 0)
            aoticache_config_warn(config, "$" AOTICACHE_CONFIG_FILE_VARIABLE ": %.3000s does not exist", only);
        return status;
    }
    aoticache_status status =
        aoticache_config_add_file(config, AOTICACHE_CONFIG_SYSTEM_FILE, AOTICACHE_CONFIG_OF_ROOT, ret_error);
    if (status == AOTICACHE_OK && find_user_path("aoticache/config", user_file))
        status = aoticache_config_add_file(config, user_file, AOTICACHE_CONFIG_OF_USER, ret_error);
    return status;
}

/* Reads the environment; an empty variable counts as unset. */
static aoticache_status read_environment(aoticache_config *config)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < AOTICACHE_CONFIG_COUNT; i++) {
        char origin[64];
        const aoticache_config_name name = (aoticache_config_name)i;
        const char *variable = aoticache_config_get(NULL, name).variable, *text = secure_getenv(variable);
        if (text == NULL || text[0] == '\0')
            continue;
        snprintf(origin, sizeof origin, "$%s", variable);
        status = aoticache_config_take(config, name, text, origin, false);
    }
    return status;
}

static aoticache_status finish_reading(aoticache_config *config, aoticache_status status, aoticache_config **ret_config,
                                       aoticache_error *ret_error)
{
    if (status == AOTICACHE_OK)
        status = aoticache_config_split_keep(config);
    if (status == AOTICACHE_OK)
        status = find_key_directory(config);
    if (status == AOTICACHE_NO_MEMORY)
        aoticache_error_set(ret_error, status, "out of memory for the configuration");
    config->logger = (aoticache_logger){.log = NULL};
    if (status == AOTICACHE_OK)
        *ret_config = config;
    else
        aoticache_config_free(config);
    return status;
}

aoticache_status aoticache_config_read(const char *path, aoticache_logger logger, aoticache_config **ret_config,
                                       aoticache_error *ret_error)
{
    if (ret_config == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_config);
    aoticache_config *config = calloc(1, sizeof *config);
    if (config == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the configuration");
    config->info.files = config->files;
    config->logger = logger;
    if (path != NULL)
        return finish_reading(config, aoticache_config_add_file(config, path, AOTICACHE_CONFIG_OF_ANYBODY, ret_error),
                              ret_config, ret_error);
    aoticache_status status = read_files(config, ret_error);
    if (status == AOTICACHE_OK)
        status = read_environment(config);
    return finish_reading(config, status, ret_config, ret_error);
}

void aoticache_config_free(aoticache_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < AOTICACHE_CONFIG_COUNT; i++) {
        free(config->values[i].text);
        free(config->values[i].origin);
    }
    for (size_t i = 0; i < config->info.file_count; i++) {
        free((char *)config->files[i].path);
        free((char *)config->files[i].state);
    }
    free(config->keep);
    free(config->keep_text);
    free((char *)config->info.key_directory);
    free(config);
}

const aoticache_config_info *aoticache_config_get_info(const aoticache_config *config)
{
    static const aoticache_config_info none = {.key_directory = ""};
    return config != NULL ? &config->info : &none;
}

/* ---- as options of a cache ---- */

static uint32_t milliseconds(const aoticache_config *config, aoticache_config_name name)
{
    return (uint32_t)(aoticache_config_get(config, name).number * 1000);
}

static void apply_limits(const aoticache_config *config, aoticache_cache_options *options)
{
    /* 0 in a file means no limit; in the options it would mean to read the configuration again. */
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_max_size)) {
        uint64_t bytes = aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number;
        options->max_bytes = bytes != 0 ? bytes : UINT64_MAX;
    }
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_max_entries)) {
        uint64_t entries = aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number;
        options->max_entries = entries != 0 ? entries : UINT64_MAX;
    }
}

static void apply_trust(const aoticache_config *config, aoticache_cache_options *options)
{
    options->trusted_keys = aoticache_config_get(config, AOTICACHE_CONFIG_trusted_keys).text;
    options->revoked_keys = aoticache_config_get(config, AOTICACHE_CONFIG_revoked_keys).text;
    options->sign_with = aoticache_config_get(config, AOTICACHE_CONFIG_sign_with).text;
    options->key_directory = config->info.key_directory;
    if (aoticache_config_always_requires_signatures(config))
        options->signatures = AOTICACHE_SIGNATURES_ALWAYS;
    else
        options->signatures = aoticache_config_get(config, AOTICACHE_CONFIG_require_signatures).number != 0
                                  ? AOTICACHE_SIGNATURES_REQUIRED
                                  : AOTICACHE_SIGNATURES_NOT_REQUIRED;
}

static void apply_settings(const aoticache_config *config, aoticache_cache_options *options)
{
    const char *directory = aoticache_config_get(config, AOTICACHE_CONFIG_directory).text;
    if (directory[0] != '\0')
        options->directory = directory;
    apply_limits(config, options);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_allow_shared) && getauxval(AT_SECURE) == 0)
        options->allow_shared = aoticache_config_get(config, AOTICACHE_CONFIG_allow_shared).number != 0;
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_lock_timeout))
        options->lock_timeout_ms = milliseconds(config, AOTICACHE_CONFIG_lock_timeout);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_compile_timeout))
        options->compile_timeout_ms = milliseconds(config, AOTICACHE_CONFIG_compile_timeout);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_failure_ttl))
        options->failure_ttl_seconds = (uint32_t)aoticache_config_get(config, AOTICACHE_CONFIG_failure_ttl).number;
    apply_trust(config, options);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_remote))
        options->remote = aoticache_config_get(config, AOTICACHE_CONFIG_remote).text;
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_remember_digests))
        options->hash_always = aoticache_config_get(config, AOTICACHE_CONFIG_remember_digests).number == 0;
    options->is_configured = true;
}

void aoticache_config_apply(const aoticache_config *config, struct aoticache_cache_options *options)
{
    aoticache_cache_options all;
    if (config == NULL || options == NULL ||
        AOTICACHE_OPTIONS_READ(aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT, options, &all, NULL) !=
            AOTICACHE_OK)
        return; /* opening the cache with these options will report the error */
    apply_settings(config, &all);
    all.size = options->size;
    memcpy(options, &all, all.size < sizeof all ? all.size : sizeof all);
}

/* ---- opening ---- */

static void fill_trust(aoticache_cache_options *options, const aoticache_cache_options *said)
{
    if (options->trusted_keys == NULL)
        options->trusted_keys = said->trusted_keys;
    if (options->revoked_keys == NULL)
        options->revoked_keys = said->revoked_keys;
    if (options->sign_with == NULL)
        options->sign_with = said->sign_with;
    if (options->key_directory == NULL)
        options->key_directory = said->key_directory;
    if (options->signatures == AOTICACHE_SIGNATURES_AS_CONFIGURED || said->signatures == AOTICACHE_SIGNATURES_ALWAYS)
        options->signatures = said->signatures;
}

/* Completes the options; members set explicitly by the caller have precedence. */
static void fill_open_options(aoticache_cache_options *options, const aoticache_cache_options *said)
{
    if (options->directory == NULL)
        options->directory = said->directory;
    options->allow_shared |= said->allow_shared;
    options->hash_always |= said->hash_always;
    if (options->max_bytes == 0)
        options->max_bytes = said->max_bytes;
    if (options->max_entries == 0)
        options->max_entries = said->max_entries;
    if (options->remote == NULL)
        options->remote = said->remote;
    if (options->lock_timeout_ms == AOTICACHE_AS_CONFIGURED)
        options->lock_timeout_ms = said->lock_timeout_ms;
    if (options->compile_timeout_ms == AOTICACHE_AS_CONFIGURED)
        options->compile_timeout_ms = said->compile_timeout_ms;
    if (options->failure_ttl_seconds == AOTICACHE_AS_CONFIGURED)
        options->failure_ttl_seconds = said->failure_ttl_seconds;
    fill_trust(options, said);
}

/* Completes the options with the defaults, as a configuration of NULL does. */
static void fill_in_defaults(aoticache_cache_options *options)
{
    const aoticache_cache_options defaults = {
        .lock_timeout_ms = milliseconds(NULL, AOTICACHE_CONFIG_lock_timeout),
        .compile_timeout_ms = milliseconds(NULL, AOTICACHE_CONFIG_compile_timeout),
        .failure_ttl_seconds = (uint32_t)aoticache_config_get(NULL, AOTICACHE_CONFIG_failure_ttl).number};
    fill_open_options(options, &defaults);
}

aoticache_status aoticache_config_complete(aoticache_cache_options *options, aoticache_config **ret_config,
                                           aoticache_error *ret_error)
{
    *ret_config = NULL;
    if (!options->is_configured) {
        aoticache_cache_options said = AOTICACHE_CACHE_OPTIONS_INIT;
        aoticache_status status = aoticache_config_read(NULL, options->logger, ret_config, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        apply_settings(*ret_config, &said);
        fill_open_options(options, &said);
    }
    fill_in_defaults(options);
    return AOTICACHE_OK;
}

bool aoticache_config_find_directory(char *ret_path, size_t size)
{
    aoticache_config *config = NULL;
    if (aoticache_config_read(NULL, (aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        return false;
    const char *directory = aoticache_config_get(config, AOTICACHE_CONFIG_directory).text;
    size_t length = strlen(directory);
    bool is_found = length > 0 && length < size;
    if (is_found)
        memcpy(ret_path, directory, length + 1);
    aoticache_config_free(config);
    return is_found;
}
