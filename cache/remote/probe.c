/*
 * cache/remote/probe: the file `probe` of a remote: when its health was last checked, with signatures.
 *
 * It is a text: the line PROBE_HEAD, a line with the time, in nanoseconds since 1970, and a signature on each further line.
 * The signatures are of a statement without an entry: key and manifest are all zeros.
 */
#include "cache/remote/remote_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cache/trust/trust_internal.h"

#define PROBE_HEAD "aoticache probe 1\n"
#define PRODUCER "aoticache doctor"
#define MAX_BYTES (AOTICACHE_SIGNATURE_FILE_BYTES + 128)

static aoticache_statement statement_of(int64_t created_ns)
{
    aoticache_statement statement = AOTICACHE_STATEMENT_INIT;
    statement.producer = PRODUCER;
    statement.created_ns = created_ns;
    return statement;
}

static aoticache_status sign(const aoticache_statement *statement, const aoticache_secret_key *const *signers,
                             size_t count, char **ret_text, aoticache_error *ret_error)
{
    aoticache_signature_list list = {.count = 0};
    aoticache_signature one;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        status = aoticache_statement_sign(statement, signers[i], &one, ret_error);
        if (status == AOTICACHE_OK)
            aoticache_signature_list_add(&list, &one);
    }
    if (status == AOTICACHE_OK && (*ret_text = aoticache_signature_list_format(&list)) == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    return status;
}

aoticache_status aoticache_remote_write_probe(aoticache_remote *remote, const aoticache_secret_key *const *signers,
                                              size_t signer_count, aoticache_error *ret_error)
{
    char *signatures = NULL, *text = NULL;
    const aoticache_statement statement = statement_of(aoticache_wall_ns());
    aoticache_status status = sign(&statement, signers, signer_count, &signatures, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    int size = asprintf(&text, PROBE_HEAD "%lld\n%s", (long long)statement.created_ns, signatures);
    free(signatures);
    if (size < 0)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    status = aoticache_remote_put_text(remote, AOTICACHE_REMOTE_PROBE, text, (size_t)size, NULL, ret_error);
    free(text);
    return status;
}

/* Splits the text into its time and the signatures, of which there must be some. */
static bool parse(const char *text, aoticache_statement *ret_statement, const char **ret_signatures)
{
    aoticache_signature_list list;
    char *end = NULL;
    if (strncmp(text, PROBE_HEAD, strlen(PROBE_HEAD)) != 0)
        return false;
    *ret_statement = statement_of(strtoll(text + strlen(PROBE_HEAD), &end, 10));
    if (*end != '\n' || aoticache_signature_list_parse(end + 1, &list, NULL) != AOTICACHE_OK)
        return false;
    *ret_signatures = end + 1;
    return true;
}

aoticache_status aoticache_remote_read_probe(aoticache_remote *remote, aoticache_remote_probe *ret_probe,
                                             aoticache_error *ret_error)
{
    size_t size = 0;
    char *text = NULL;
    aoticache_status status = aoticache_remote_get_text(remote, AOTICACHE_REMOTE_READ, AOTICACHE_REMOTE_PROBE,
                                                        MAX_BYTES, &text, &size, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!parse(text, &ret_probe->statement, &ret_probe->signatures)) {
        free(text);
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "remote %s: %s was not written by aoticache",
                                   remote->config.url, AOTICACHE_REMOTE_PROBE);
    }
    ret_probe->text = text;
    return AOTICACHE_OK;
}
