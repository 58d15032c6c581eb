/*
 * cache/config/apply: the configuration as options of a cache: all of it for who asks, and what a caller left open for
 * a cache that is being opened.
 *
 * Trust: in a program that runs with other rights than its caller's, config.c reads nothing but the machine's file, so
 * neither the caller's environment nor a file below a home that the caller names can send it to another directory. And
 * whoever may write a shared directory could make such a program run what he likes: it accepts one only where it says so
 * itself, whatever is configured.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "cache/config/internal.h"
#include "base/options.h"

static uint32_t milliseconds(const aoticache_config *config, aoticache_config_name name)
{
    return (uint32_t)(aoticache_config_number(config, name) * 1000);
}

static void apply_limits(const aoticache_config *config, aoticache_cache_options *options)
{
    /* 0 in a file means no limit; in the options it would mean to ask the configuration again. */
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_max_size)) {
        uint64_t bytes = aoticache_config_number(config, AOTICACHE_CONFIG_max_size);
        options->max_bytes = bytes != 0 ? bytes : UINT64_MAX;
    }
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_max_entries)) {
        uint64_t entries = aoticache_config_number(config, AOTICACHE_CONFIG_max_entries);
        options->max_entries = entries != 0 ? entries : UINT64_MAX;
    }
}

static void apply_directory(const aoticache_config *config, aoticache_cache_options *options)
{
    const char *directory = aoticache_config_value(config, AOTICACHE_CONFIG_directory);
    if (directory[0] != '\0')
        options->directory = directory;
}

static void apply(const aoticache_config *config, aoticache_cache_options *options)
{
    apply_directory(config, options);
    apply_limits(config, options);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_allow_shared) && getauxval(AT_SECURE) == 0)
        options->allow_shared = aoticache_config_number(config, AOTICACHE_CONFIG_allow_shared) != 0;
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_lock_timeout))
        options->lock_timeout_ms = milliseconds(config, AOTICACHE_CONFIG_lock_timeout);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_compile_timeout))
        options->compile_timeout_ms = milliseconds(config, AOTICACHE_CONFIG_compile_timeout);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_failure_ttl))
        options->failure_ttl_seconds = (uint32_t)aoticache_config_number(config, AOTICACHE_CONFIG_failure_ttl);
    options->is_configured = true;
}

void aoticache_config_apply(const aoticache_config *config, struct aoticache_cache_options *options)
{
    aoticache_cache_options all;
    if (config == NULL || options == NULL ||
        AOTICACHE_OPTIONS_READ(aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT, options, &all, NULL) != AOTICACHE_OK)
        return; /* opening the cache with them will say what is wrong */
    apply(config, &all);
    all.size = options->size;
    memcpy(options, &all, all.size < sizeof all ? all.size : sizeof all);
}

/* ---- opening ---- */

/* What the caller said explicitly wins, member by member. */
static void fill_in(aoticache_cache_options *options, const aoticache_cache_options *said)
{
    if (options->directory == NULL)
        options->directory = said->directory;
    options->allow_shared |= said->allow_shared;
    if (options->max_bytes == 0)
        options->max_bytes = said->max_bytes;
    if (options->max_entries == 0)
        options->max_entries = said->max_entries;
    if (options->lock_timeout_ms == AOTICACHE_AS_CONFIGURED)
        options->lock_timeout_ms = said->lock_timeout_ms;
    if (options->compile_timeout_ms == AOTICACHE_AS_CONFIGURED)
        options->compile_timeout_ms = said->compile_timeout_ms;
    if (options->failure_ttl_seconds == AOTICACHE_AS_CONFIGURED)
        options->failure_ttl_seconds = said->failure_ttl_seconds;
}

/* A configuration of NULL is one that says nothing. */
static void fill_in_defaults(aoticache_cache_options *options)
{
    const aoticache_cache_options defaults = {
        .lock_timeout_ms = milliseconds(NULL, AOTICACHE_CONFIG_lock_timeout),
        .compile_timeout_ms = milliseconds(NULL, AOTICACHE_CONFIG_compile_timeout),
        .failure_ttl_seconds = (uint32_t)aoticache_config_number(NULL, AOTICACHE_CONFIG_failure_ttl)};
    fill_in(options, &defaults);
}

aoticache_status aoticache_config_complete(aoticache_cache_options *options, aoticache_config **ret_config,
                                           aoticache_error *ret_error)
{
    *ret_config = NULL;
    if (!options->is_configured) {
        aoticache_cache_options said = AOTICACHE_CACHE_OPTIONS_INIT;
        aoticache_status status = aoticache_config_read(options->logger, ret_config, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        apply(*ret_config, &said);
        fill_in(options, &said);
    }
    fill_in_defaults(options);
    return AOTICACHE_OK;
}

bool aoticache_config_find_directory(char *ret_path, size_t size)
{
    aoticache_config *config = NULL;
    if (aoticache_config_read((aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        return false;
    const char *directory = aoticache_config_value(config, AOTICACHE_CONFIG_directory);
    size_t length = strlen(directory);
    bool is_found = length > 0 && length < size;
    if (is_found)
        memcpy(ret_path, directory, length + 1);
    aoticache_config_free(config);
    return is_found;
}
