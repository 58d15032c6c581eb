/*
 * cache/config_apply: the configuration as options of a cache: all of it for who asks, and what a caller left open for
 * a cache that is being opened.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/config_internal.h"

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

void aoticache_config_apply(const aoticache_config *config, struct aoticache_cache_options *options)
{
    if (config == NULL || options == NULL)
        return;
    apply_directory(config, options);
    apply_limits(config, options);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_allow_shared))
        options->allow_shared = aoticache_config_number(config, AOTICACHE_CONFIG_allow_shared) != 0;
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_lock_timeout))
        options->lock_timeout_ms = milliseconds(config, AOTICACHE_CONFIG_lock_timeout);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_compile_timeout))
        options->compile_timeout_ms = milliseconds(config, AOTICACHE_CONFIG_compile_timeout);
    if (aoticache_config_is_set(config, AOTICACHE_CONFIG_failure_ttl))
        options->failure_ttl_seconds = (uint32_t)aoticache_config_number(config, AOTICACHE_CONFIG_failure_ttl);
}

static bool environment_names_directory(void)
{
    const char *directory = secure_getenv(aoticache_config_variable(AOTICACHE_CONFIG_directory));
    return directory != NULL && directory[0] != '\0';
}

aoticache_status aoticache_config_complete(aoticache_cache_options *options, aoticache_config **ret_config,
                                           aoticache_error *ret_error)
{
    bool lacks_directory = options->directory == NULL && !environment_names_directory();
    bool lacks_limits = options->max_bytes == 0 && !options->read_only;
    *ret_config = NULL;
    if (!lacks_directory && !lacks_limits)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_config_read(options->logger, ret_config, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t max_entries = options->max_entries;
    if (lacks_limits)
        apply_limits(*ret_config, options);
    if (max_entries != 0)
        options->max_entries = max_entries;
    if (options->directory == NULL)
        apply_directory(*ret_config, options);
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
