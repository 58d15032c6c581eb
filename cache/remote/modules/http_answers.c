/*
 * cache/remote/modules/http_answers: interprets the status of an answer, with one table. docs/remotes.md describes it;
 * tests/cli/remotes/test_remote_answers.sh tests each row.
 *
 * Sources: RFC 9110 (HTTP), section 15; RFC 4918 (WebDAV), sections 9.7.1 and 11; "Error responses" of the Amazon S3 API
 * Reference; "GetObject" there, for 403; the source of nginx (ngx_http_dav_put_handler), for 500 without create_full_put_path.
 */
#include "cache/remote/modules/http.h"

#include <string.h>

/* The requests to which a row applies. */
enum { GETS = 1 << HTTP_GET, HEADS = 1 << HTTP_HEAD, READS = GETS | HEADS, PUTS = 1 << HTTP_PUT, ALL = 0xff };

#define NO_DIRECTORY "the server has no directory for it"
#define MAKE_DIRECTORY "create it there, or let the server create directories (nginx: create_full_put_path on)"

static const struct row {
    long code;
    unsigned methods;
    aoticache_status status;
    const char *words; /* "": no message. The status decides what to do */
    const char *remedy;
} rows[] = {
    {400, HEADS, AOTICACHE_NOT_FOUND, "", NULL},
    {401, ALL, AOTICACHE_DENIED, "authentication failed", "check user= and secret-file= or secret-env="},
    {403, READS, AOTICACHE_NOT_FOUND, "not found, or this user may not read it",
     "for S3, the permission s3:ListBucket distinguishes the two"},
    {403, ALL, AOTICACHE_DENIED, "the server denies access", "this user may not write"},
    {404, READS, AOTICACHE_NOT_FOUND, "", NULL},
    {404, PUTS, AOTICACHE_DENIED, NO_DIRECTORY, MAKE_DIRECTORY},
    {404, ALL, AOTICACHE_NOT_FOUND, "", NULL},
    {405, HEADS, AOTICACHE_NOT_FOUND, "the server does not support HEAD", NULL},
    {405, ALL, AOTICACHE_DENIED, "the server does not allow this kind of request", NULL},
    {407, ALL, AOTICACHE_DENIED, "the proxy requires authentication", NULL},
    {409, PUTS, AOTICACHE_DENIED, NO_DIRECTORY, MAKE_DIRECTORY},
    {410, ALL, AOTICACHE_NOT_FOUND, "", NULL},
    {411, ALL, AOTICACHE_DENIED, "the server requires the length of the request", NULL},
    {412, PUTS, AOTICACHE_LOCKED, "it was changed there by another machine", NULL},
    {413, PUTS, AOTICACHE_UNSUPPORTED, "the server does not accept objects of this size", NULL},
    {429, ALL, AOTICACHE_IO, "the server is overloaded", NULL},
    {500, PUTS, AOTICACHE_DENIED, "internal error of the server",
     "nginx fails like this if create_full_put_path is off"},
    {500, ALL, AOTICACHE_DENIED, "internal error of the server", NULL},
    {501, HEADS, AOTICACHE_NOT_FOUND, "the server does not support HEAD", NULL},
    {501, ALL, AOTICACHE_DENIED, "the server does not support this", NULL},
    {502, ALL, AOTICACHE_IO, "the server behind the proxy does not respond", NULL},
    {503, ALL, AOTICACHE_IO, "the server is overloaded", NULL},
    {504, ALL, AOTICACHE_IO, "the server behind the proxy does not respond in time", NULL},
    {507, PUTS, AOTICACHE_DENIED, "the server has no space left", NULL},
};

/* Error codes of S3 that are more specific than the status. */
static const struct code {
    const char *name;
    aoticache_status status;
    const char *words;
} codes[] = {
    {"AccessDenied", AOTICACHE_OK, NULL}, /* as the table's row */
    {"AuthorizationHeaderMalformed", AOTICACHE_DENIED, "the region of the URL is not that of the bucket"},
    {"ConditionalRequestConflict", AOTICACHE_LOCKED, "it is being changed there"},
    {"EntityTooLarge", AOTICACHE_UNSUPPORTED, "the server does not accept objects of this size"},
    {"ExpiredToken", AOTICACHE_DENIED, "the session's token has expired"},
    {"InvalidAccessKeyId", AOTICACHE_DENIED, "the server does not know this access key"},
    {"NoSuchBucket", AOTICACHE_DENIED, "the bucket does not exist"},
    {"PermanentRedirect", AOTICACHE_DENIED, "the region or the endpoint of the URL is not that of the bucket"},
    {"RequestTimeTooSkewed", AOTICACHE_DENIED, "the clocks of this machine and the server differ too much"},
    {"SignatureDoesNotMatch", AOTICACHE_DENIED,
     "the secret key does not belong to the access key, or the region is wrong"},
};

/* Returns the row of a code in the page of S3's answer, or NULL. */
static const struct code *find_code(const http_connection *connection, const http_answer *answer)
{
    static const char tag[] = "<Code>";
    const char *begin = connection->sigv4 != NULL ? strstr(answer->page, tag) : NULL;
    if (begin == NULL)
        return NULL;
    begin += sizeof tag - 1;
    const size_t length = strcspn(begin, "<");
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (strlen(codes[i].name) == length && strncmp(codes[i].name, begin, length) == 0)
            return &codes[i];
    return NULL;
}

/* Returns whether the row applies. S3 has no directories: its 409 means concurrent requests. */
static bool fits(const struct row *row, const http_connection *connection, http_method method, long code)
{
    return row->code == code && (row->methods & 1U << method) != 0 && !(code == 409 && connection->sigv4 != NULL);
}

aoticache_status http_judge(const http_connection *connection, http_method method, const http_body *body,
                            const http_answer *answer, aoticache_error *ret_error)
{
    const struct code *code = find_code(connection, answer);
    if (answer->code >= 200 && answer->code < 300)
        return AOTICACHE_OK;
    if (code != NULL && code->status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, code->status, "%s (%s)", code->words, code->name);
    if (answer->code == 409 && body->condition != NULL && connection->sigv4 != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "it is being changed there");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!fits(&rows[i], connection, method, answer->code))
            continue;
        if (rows[i].words[0] == '\0')
            return rows[i].status;
        return aoticache_error_set(ret_error, rows[i].status, "%s (HTTP status %ld)%s%s", rows[i].words, answer->code,
                                   rows[i].remedy != NULL ? ": " : "", rows[i].remedy != NULL ? rows[i].remedy : "");
    }
    return answer->code >= 300 && answer->code < 400 && answer->code != 304
               ? aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                     "the server redirects (HTTP status %ld), and redirects are not followed",
                                     answer->code)
               : aoticache_error_set(ret_error, AOTICACHE_DENIED, "unexpected HTTP status %ld", answer->code);
}
