/*
 * tools/aoticache/entries/asked: a cache from which to get the keys that this user trusts, even if there is none yet.
 */
#include "tools/aoticache/entries/entries.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>

aoticache_status aoticache_asked_open(const aoticache_cli *cli, aoticache_asked *asked, aoticache_error *ret_error)
{
    const char *parent = getenv("TMPDIR");
    aoticache_cache_options options = aoticache_cli_cache_options(cli);
    *asked = (aoticache_asked){.cache = NULL};
    options.must_exist = true;
    options.read_only = true;
    aoticache_status status = aoticache_cache_open(&options, &asked->cache, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    snprintf(asked->stand_in, sizeof asked->stand_in, "%s/aoticache-empty-XXXXXX",
             parent != NULL && parent[0] == '/' && strlen(parent) < 32 ? parent : "/tmp");
    if (mkdtemp(asked->stand_in) == NULL) {
        asked->stand_in[0] = '\0';
        return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot make a temporary directory; set TMPDIR");
    }
    options.directory = asked->stand_in;
    options.must_exist = options.read_only = false;
    return aoticache_cache_open(&options, &asked->cache, ret_error);
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

void aoticache_asked_close(aoticache_asked *asked)
{
    aoticache_cache_close(asked->cache);
    if (asked->stand_in[0] != '\0')
        nftw(asked->stand_in, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
