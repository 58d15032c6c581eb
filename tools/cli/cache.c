/*
 * tools/cli/cache: finds and opens the cache directory that the command line or the configuration names.
 */
#include "cache/config/config.h"
#include "cache/entries.h"
#include "tools/cli/cli.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static aoticache_config *current;   /* kept until the program ends: its strings are borrowed */
static aoticache_config *forgotten; /* likewise: the previous one */

static void forget_config(void)
{
    aoticache_config_free(forgotten);
    forgotten = current;
    current = NULL;
}

const aoticache_config *aoticache_cli_config(const aoticache_cli *cli)
{
    if (current == NULL && aoticache_config_read(NULL, aoticache_cli_logger(cli), &current, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    return current;
}

aoticache_cache_options aoticache_cli_cache_options(const aoticache_cli *cli)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_apply(aoticache_cli_config(cli), &options);
    options.allow_shared |= cli->allow_shared;
    options.directory = cli->directory != NULL ? cli->directory : options.directory;
    options.logger = aoticache_cli_logger(cli);
    return options;
}

aoticache_status aoticache_cli_open_cache(const aoticache_cli *cli, bool create, aoticache_cache **ret_cache,
                                          aoticache_error *ret_error)
{
    aoticache_cache_options options = aoticache_cli_cache_options(cli);
    options.must_exist = !create;
    return aoticache_cache_open(&options, ret_cache, ret_error);
}

void aoticache_cli_directory(const aoticache_cli *cli, char ret_path[PATH_MAX])
{
    aoticache_cache_options options = aoticache_cli_cache_options(cli);
    if (options.directory != NULL)
        snprintf(ret_path, PATH_MAX, "%s", options.directory);
    else if (aoticache_cache_default_directory(ret_path, PATH_MAX, NULL) != AOTICACHE_OK)
        snprintf(ret_path, PATH_MAX, "(no directory: neither AOTICACHE_DIR nor XDG_CACHE_HOME nor HOME is set)");
}

const char *aoticache_cli_directory_origin(const aoticache_cli *cli)
{
    const aoticache_config *read = aoticache_cli_config(cli);
    if (cli->directory != NULL)
        return "--cache-dir";
    return aoticache_config_get(read, AOTICACHE_CONFIG_directory).text[0] != '\0'
               ? aoticache_config_get(read, AOTICACHE_CONFIG_directory).origin
               : NULL;
}

int aoticache_cli_report_absent(const aoticache_cli *cli, const char *directory, const char *origin)
{
    aoticache_cli_error(cli,
                        "the cache directory %s does not exist: %s names it; correct that name, or let "
                        "a program store there first",
                        directory, origin);
    return AOTICACHE_CLI_EXIT_ABSENT;
}

/* Uses the configuration and the keys of the owner from here on; the directory stays the one that root named. */
static int take_environment_of_owner(const aoticache_cli *cli, const char *directory, const struct stat *found)
{
    const struct passwd *account = getpwuid(found->st_uid);
    const int result = account != NULL ? setenv("HOME", account->pw_dir, 1) : unsetenv("HOME");
    if (result != 0 || setenv("AOTICACHE_DIR", directory, 1) != 0 || unsetenv("XDG_CONFIG_HOME") != 0)
        return aoticache_cli_error(cli, "cannot change the environment: %s", strerror(errno));
    forget_config();
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_cli_look_as_owner(const aoticache_cli *cli)
{
    struct stat found;
    char directory[PATH_MAX];
    aoticache_config *config = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    if (geteuid() != 0)
        return AOTICACHE_CLI_EXIT_OK;
    /* Without a logger: errors in it are reported when it is read for use. */
    if (aoticache_config_read(NULL, (aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    aoticache_config_apply(config, &options);
    const char *named = cli->directory != NULL ? cli->directory : options.directory;
    const bool is_known = named != NULL
                              ? snprintf(directory, sizeof directory, "%s", named) < (int)sizeof directory
                              : aoticache_cache_default_directory(directory, sizeof directory, NULL) == AOTICACHE_OK;
    const bool stays = cli->allow_shared || options.allow_shared || !is_known || stat(directory, &found) != 0 ||
                       !S_ISDIR(found.st_mode) || found.st_uid == 0;
    aoticache_config_free(config);
    if (stays)
        return AOTICACHE_CLI_EXIT_OK;
    int result = aoticache_cli_become_owner(cli, directory, &found);
    return result == AOTICACHE_CLI_EXIT_OK ? take_environment_of_owner(cli, directory, &found) : result;
}

/* Handles the result of an open that creates nothing: OK; NOT_FOUND, which the caller reports; or an error, which has been
 * reported. */
static int open_existing(const aoticache_cli *cli, aoticache_cache **ret_cache, char ret_path[PATH_MAX])
{
    aoticache_error error = {.message = ""};
    int result = aoticache_cli_look_as_owner(cli);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    const char *origin = aoticache_cli_directory_origin(cli);
    aoticache_status status = aoticache_cli_open_cache(cli, false, ret_cache, &error);
    aoticache_cli_directory(cli, ret_path);
    if (status == AOTICACHE_NOT_FOUND && origin != NULL)
        return aoticache_cli_report_absent(cli, ret_path, origin);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

int aoticache_cli_open_or_report(const aoticache_cli *cli, bool create, aoticache_cache **ret_cache)
{
    char path[PATH_MAX];
    aoticache_error error = {.message = ""};
    if (create) {
        aoticache_status status = aoticache_cli_open_cache(cli, true, ret_cache, &error);
        return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
    }
    int result = open_existing(cli, ret_cache, path);
    if (result == AOTICACHE_CLI_EXIT_NOT_FOUND)
        aoticache_cli_error(cli, "no cache at %s: nothing was stored there yet", path);
    return result;
}

int aoticache_cli_open_if_there(const aoticache_cli *cli, aoticache_cache **ret_cache)
{
    char path[PATH_MAX];
    *ret_cache = NULL;
    int result = open_existing(cli, ret_cache, path);
    if (result != AOTICACHE_CLI_EXIT_NOT_FOUND)
        return result;
    aoticache_cli_note(cli, "no cache at %s: nothing was stored there yet", path);
    return AOTICACHE_CLI_EXIT_OK;
}
