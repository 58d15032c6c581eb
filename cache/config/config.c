/*
 * cache/config/config: see config.h. Where settings come from, in which order, and what there is to ask.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/name_distance.h"
#include "cache/config/internal.h"

static const struct {
    const char *name, *variable, *value, *text;
} names[AOTICACHE_CONFIG_COUNT] = {
#define CONFIG_ROW(name, variable, value, text) {#name, variable, value, text},
    AOTICACHE_CONFIG_LIST(CONFIG_ROW)
#undef CONFIG_ROW
};

void aoticache_config_warn(aoticache_config *config, const char *format, ...)
{
    char line[AOTICACHE_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    config->problem_count++;
    if (length >= 0)
        aoticache_log(&config->logger, AOTICACHE_LOG_WARNING, "%s", line);
}

/* ---- reading ---- */

static bool find_user_file(char ret_path[PATH_MAX])
{
    const char *xdg = secure_getenv("XDG_CONFIG_HOME");
    const char *home = secure_getenv("HOME");
    int length;
    if (xdg != NULL && xdg[0] == '/') /* the XDG specification has relative paths ignored */
        length = snprintf(ret_path, PATH_MAX, "%s/aoticache/config", xdg);
    else if (home != NULL && home[0] == '/')
        length = snprintf(ret_path, PATH_MAX, "%s/.config/aoticache/config", home);
    else
        return false;
    return length > 0 && length < PATH_MAX;
}

static aoticache_status read_files(aoticache_config *config, aoticache_error *ret_error)
{
    const char *only = secure_getenv(AOTICACHE_CONFIG_FILE_VARIABLE);
    char user_file[PATH_MAX];
    if (only != NULL && only[0] == '\0')
        return AOTICACHE_OK;
    if (only != NULL) {
        aoticache_status status = aoticache_config_add_file(config, only, AOTICACHE_CONFIG_OF_USER, ret_error);
        /* Other files may well be absent; one that is named is meant to be there. */
        if (status == AOTICACHE_OK && strcmp(config->files[0].state, "not there") == 0)
            aoticache_config_warn(config, "$" AOTICACHE_CONFIG_FILE_VARIABLE ": %.3000s is not there", only);
        return status;
    }
    aoticache_status status =
        aoticache_config_add_file(config, AOTICACHE_CONFIG_SYSTEM_FILE, AOTICACHE_CONFIG_OF_ROOT, ret_error);
    if (status == AOTICACHE_OK && find_user_file(user_file))
        status = aoticache_config_add_file(config, user_file, AOTICACHE_CONFIG_OF_USER, ret_error);
    return status;
}

/* An empty variable says nothing. */
static aoticache_status read_environment(aoticache_config *config)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < AOTICACHE_CONFIG_COUNT; i++) {
        char origin[64];
        const char *text = secure_getenv(names[i].variable);
        if (text == NULL || text[0] == '\0')
            continue;
        snprintf(origin, sizeof origin, "$%s", names[i].variable);
        status = aoticache_config_take(config, (aoticache_config_name)i, text, origin, false);
    }
    return status;
}

static aoticache_status finish(aoticache_config *config, aoticache_status status, aoticache_config **ret_config,
                               aoticache_error *ret_error)
{
    if (status == AOTICACHE_OK)
        status = aoticache_config_split_keep(config);
    if (status == AOTICACHE_NO_MEMORY)
        aoticache_error_set(ret_error, status, "out of memory for the configuration");
    config->logger = (aoticache_logger){.log = NULL};
    if (status == AOTICACHE_OK)
        *ret_config = config;
    else
        aoticache_config_free(config);
    return status;
}

static aoticache_status begin(aoticache_logger logger, aoticache_config **ret_config, aoticache_error *ret_error)
{
    if (ret_config == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "no place for the configuration: ret_config is NULL");
    *ret_config = calloc(1, sizeof **ret_config);
    if (*ret_config == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the configuration");
    (*ret_config)->logger = logger;
    return AOTICACHE_OK;
}

aoticache_status aoticache_config_read(aoticache_logger logger, aoticache_config **ret_config,
                                       aoticache_error *ret_error)
{
    aoticache_config *config = NULL;
    aoticache_status status = begin(logger, ret_config != NULL ? &config : NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = read_files(config, ret_error);
    if (status == AOTICACHE_OK)
        status = read_environment(config);
    return finish(config, status, ret_config, ret_error);
}

aoticache_status aoticache_config_read_file(const char *path, aoticache_logger logger, aoticache_config **ret_config,
                                            aoticache_error *ret_error)
{
    aoticache_config *config = NULL;
    if (path == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_config_read_file: path is NULL");
    aoticache_status status = begin(logger, ret_config != NULL ? &config : NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_config_add_file(config, path, AOTICACHE_CONFIG_OF_ANYBODY, ret_error);
    return finish(config, status, ret_config, ret_error);
}

void aoticache_config_free(aoticache_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < AOTICACHE_CONFIG_COUNT; i++) {
        free(config->settings[i].text);
        free(config->settings[i].origin);
    }
    for (size_t i = 0; i < config->file_count; i++) {
        free(config->files[i].path);
        free(config->files[i].state);
    }
    free(config->keep);
    free(config->keep_text);
    free(config);
}

/* ---- asking ---- */

size_t aoticache_config_problem_count(const aoticache_config *config)
{
    return config != NULL ? config->problem_count : 0;
}

bool aoticache_config_file(const aoticache_config *config, size_t position, const char **ret_path,
                           const char **ret_state)
{
    if (config == NULL || position >= config->file_count)
        return false;
    *ret_path = config->files[position].path;
    *ret_state = config->files[position].state;
    return true;
}

static bool is_name(aoticache_config_name name)
{
    return (unsigned)name < AOTICACHE_CONFIG_COUNT;
}

bool aoticache_config_is_set(const aoticache_config *config, aoticache_config_name name)
{
    return config != NULL && is_name(name) && config->settings[name].text != NULL;
}

const char *aoticache_config_value(const aoticache_config *config, aoticache_config_name name)
{
    if (!is_name(name))
        return NULL;
    return aoticache_config_is_set(config, name) ? config->settings[name].text : names[name].value;
}

const char *aoticache_config_origin(const aoticache_config *config, aoticache_config_name name)
{
    if (!is_name(name))
        return NULL;
    return aoticache_config_is_set(config, name) ? config->settings[name].origin : "default";
}

const char *aoticache_config_name_text(aoticache_config_name name)
{
    return is_name(name) ? names[name].name : NULL;
}

const char *aoticache_config_variable(aoticache_config_name name)
{
    return is_name(name) ? names[name].variable : NULL;
}

const char *aoticache_config_describe(aoticache_config_name name)
{
    return is_name(name) ? names[name].text : NULL;
}

/* What has to be changed in at most a third of the letters. */
static const char *nearest_name(const char *text)
{
    const char *nearest = NULL;
    size_t least = strlen(text) / 3 + 2;
    for (size_t i = 0; i < AOTICACHE_CONFIG_COUNT; i++) {
        size_t distance = aoticache_name_distance(text, names[i].name, least, true);
        if (distance < least) {
            nearest = names[i].name;
            least = distance;
        }
    }
    return nearest;
}

aoticache_status aoticache_config_name_parse(const char *text, aoticache_config_name *ret_name,
                                             const char **ret_nearest)
{
    for (size_t i = 0; text != NULL && i < AOTICACHE_CONFIG_COUNT; i++) {
        if (strcmp(text, names[i].name) == 0) {
            *ret_name = (aoticache_config_name)i;
            return AOTICACHE_OK;
        }
    }
    if (ret_nearest != NULL)
        *ret_nearest = text != NULL ? nearest_name(text) : NULL;
    return AOTICACHE_NOT_FOUND;
}
