/*
 * cache/config/file: reads one file of the configuration: checks whether it is trusted, and parses its lines.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/config/config_internal.h"

#define MAX_FILE_BYTES 65536

static const char spaces[] = " \t\r";

/* ---- lines ---- */

static char *trim(char *text)
{
    text += strspn(text, spaces);
    size_t length = strlen(text);
    while (length > 0 && strchr(spaces, text[length - 1]) != NULL)
        text[--length] = '\0';
    return text;
}

/* Removes a comment, which begins at the start of the line or after a space, so that a path may contain '#'. */
static void cut_comment(char *line)
{
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '#' && (c == line || c[-1] == ' ' || c[-1] == '\t')) {
            *c = '\0';
            return;
        }
    }
}

static bool has_control_characters(const char *line)
{
    for (; *line != '\0'; line++)
        if (((unsigned char)*line < 0x20 && strchr(spaces, *line) == NULL) || *line == 0x7f)
            return true;
    return false;
}

static void warn_of_name(aoticache_config *config, const char *origin, const char *name, const char *nearest)
{
    if (nearest != NULL)
        aoticache_config_warn(config, "%s: unknown setting '%.64s'; did you mean %s?", origin, name, nearest);
    else
        aoticache_config_warn(config, "%s: unknown setting '%.64s'; 'aoticache config' lists all settings", origin,
                              name);
}

static aoticache_status apply_line(aoticache_config *config, const char *path, size_t number, char *line)
{
    cleanup_free char *origin = NULL;
    if (asprintf(&origin, "%s:%zu", path, number) < 0) {
        origin = NULL;
        return AOTICACHE_NO_MEMORY;
    }
    if (has_control_characters(line)) {
        aoticache_config_warn(config, "%s: control character; line ignored", origin);
        return AOTICACHE_OK;
    }
    cut_comment(line);
    line = trim(line);
    if (line[0] == '\0')
        return AOTICACHE_OK;
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        aoticache_config_warn(config, "%s: '%.64s' is not of the form name = value", origin, line);
        return AOTICACHE_OK;
    }
    *equals = '\0';
    aoticache_config_name name;
    const char *nearest = NULL;
    const char *text = trim(line);
    if (aoticache_config_name_parse(text, &name, &nearest) == AOTICACHE_OK)
        return aoticache_config_take(config, name, trim(equals + 1), origin, true);
    warn_of_name(config, origin, text, nearest);
    return AOTICACHE_OK;
}

static aoticache_status apply_lines(aoticache_config *config, const char *path, char *text)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t number = 1; status == AOTICACHE_OK && text != NULL; number++) {
        char *end = strchr(text, '\n');
        if (end != NULL)
            *end++ = '\0';
        status = apply_line(config, path, number, text);
        text = end;
    }
    return status;
}

/* ---- the file ---- */

/* Returns OK, or DENIED with the reason why it is not trusted. */
static aoticache_status check_trust(const char *path, const struct stat *found, aoticache_config_trust trust,
                                    aoticache_error *ret_error)
{
    if (!S_ISREG(found->st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s is not a regular file", path);
    if (trust == AOTICACHE_CONFIG_OF_ANYBODY)
        return AOTICACHE_OK;
    if (found->st_uid != 0 && (trust == AOTICACHE_CONFIG_OF_ROOT || found->st_uid != geteuid()))
        return aoticache_error_set(
            ret_error, AOTICACHE_DENIED, "%s is not used: it belongs to user %ld, and must belong to %s", path,
            (long)found->st_uid, trust == AOTICACHE_CONFIG_OF_ROOT ? "root" : "this user or root");
    if ((found->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s is not used: it can be written by others (mode 0%o); chmod go-w %s", path,
                                   (unsigned)(found->st_mode & 07777), path);
    return AOTICACHE_OK;
}

static aoticache_status read_text(int fd, const char *path, char **ret_text, aoticache_error *ret_error)
{
    cleanup_free char *text = malloc(MAX_FILE_BYTES + 1);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    size_t size = 0;
    while (size <= MAX_FILE_BYTES) {
        ssize_t got = read(fd, text + size, MAX_FILE_BYTES + 1 - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read %s", path);
        if (got == 0)
            break;
        size += (size_t)got;
    }
    if (size > MAX_FILE_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s is not used: it is larger than %d bytes", path,
                                   MAX_FILE_BYTES);
    text[size] = '\0';
    if (strlen(text) != size)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s is not used: it has a zero byte at %zu", path,
                                   strlen(text));
    *ret_text = steal_ptr(&text);
    return AOTICACHE_OK;
}

static aoticache_status read_file(const char *path, aoticache_config_trust trust, char **ret_text,
                                  aoticache_error *ret_error)
{
    /* Links are followed (users keep such files elsewhere); the owner of the target is checked. */
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s does not exist", path);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %s", path);
    aoticache_status status = check_trust(path, &found, trust, ret_error);
    return status == AOTICACHE_OK ? read_text(fd, path, ret_text, ret_error) : status;
}

/* Records the file and the outcome. */
static aoticache_status record_file(aoticache_config *config, const char *path, const char *state)
{
    char *path_copy = strdup(path);
    char *state_copy = strdup(state);
    if (path_copy == NULL || state_copy == NULL) {
        free(path_copy);
        free(state_copy);
        return AOTICACHE_NO_MEMORY;
    }
    config->files[config->info.file_count].path = path_copy;
    config->files[config->info.file_count++].state = state_copy;
    return AOTICACHE_OK;
}

aoticache_status aoticache_config_add_file(aoticache_config *config, const char *path, aoticache_config_trust trust,
                                           aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    cleanup_free char *text = NULL;
    aoticache_status status = read_file(path, trust, &text, &detail);
    const char *state = status == AOTICACHE_OK ? "read" : status == AOTICACHE_NOT_FOUND ? "not there" : detail.message;
    if (record_file(config, path, state) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    if (status == AOTICACHE_OK)
        return apply_lines(config, path, text);
    if (trust == AOTICACHE_CONFIG_OF_ANYBODY || status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (status != AOTICACHE_NOT_FOUND)
        aoticache_config_warn(config, "%s", detail.message);
    return AOTICACHE_OK;
}
