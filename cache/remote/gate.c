/*
 * cache/remote/gate: whether an entry that came from a remote may be taken in.
 */
#include "cache/remote/internal.h"

#include <stdio.h>
#include <string.h>

aoticache_status aoticache_remote_decide(aoticache_cache *cache, const aoticache_remote *remote,
                                         const aoticache_digest *artifact, const aoticache_manifest *manifest,
                                         const char *signatures, const aoticache_key *wanted, bool *ret_accepted,
                                         char ret_reason[512], aoticache_error *ret_error)
{
    (void)cache, (void)artifact, (void)signatures, (void)ret_error;
    *ret_accepted = remote->config.allow_unsigned && aoticache_digest_equal(&manifest->key, wanted);
    snprintf(ret_reason, 512, "no key that is trusted here signed it");
    return AOTICACHE_OK;
}

aoticache_status aoticache_remote_signatures(aoticache_cache *cache, const aoticache_digest *artifact, char **ret_text,
                                             aoticache_error *ret_error)
{
    (void)cache, (void)artifact;
    *ret_text = strdup("");
    return *ret_text != NULL ? AOTICACHE_OK : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
}
