/*
 * cache/tools/cli_cache: the cache directory that the command line names.
 */
#include "cache/tools/cli.h"

aoticache_status aoticache_cli_open_cache(const aoticache_cli *cli, bool create, aoticache_cache **ret_cache,
                                          aoticache_error *ret_error)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = cli->directory;
    options.allow_shared = cli->allow_shared;
    options.must_exist = !create;
    options.logger = aoticache_cli_logger(cli);
    return aoticache_cache_open(&options, ret_cache, ret_error);
}

void aoticache_cli_directory(const aoticache_cli *cli, char ret_path[PATH_MAX])
{
    if (cli->directory != NULL)
        snprintf(ret_path, PATH_MAX, "%s", cli->directory);
    else if (aoticache_cache_default_directory(ret_path, PATH_MAX, NULL) != AOTICACHE_OK)
        snprintf(ret_path, PATH_MAX, "(no directory: neither AOTICACHE_DIR nor XDG_CACHE_HOME nor HOME is set)");
}

int aoticache_cli_open_or_say(const aoticache_cli *cli, bool create, aoticache_cache **ret_cache)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cli_open_cache(cli, create, ret_cache, &error);
    if (status == AOTICACHE_OK)
        return AOTICACHE_CLI_EXIT_OK;
    if (status != AOTICACHE_NOT_FOUND || create)
        return aoticache_cli_fail(cli, status, &error);
    char path[PATH_MAX];
    aoticache_cli_directory(cli, path);
    aoticache_cli_error(cli, "there is no cache at %s: nothing was stored there yet", path);
    return AOTICACHE_CLI_EXIT_NOT_FOUND;
}
