/*
 * eager/hook/protocol: the JSON that hooks speak (docs/hooks.md): a request becomes a line, the answer becomes a product.
 *
 * Private. Answers are untrusted: sizes, types, names and files are checked here. Whatever is wrong with them is
 * CORRUPT, naming the hook: nothing more should then be asked of that process. Callers of hooks see it as
 * COMPILE_FAILED.
 */
#ifndef AOTICACHE_EAGER_HOOK_PROTOCOL_H
#define AOTICACHE_EAGER_HOOK_PROTOCOL_H

#include "cache/cache.h"

#include <jansson.h>

#define AOTICACHE_PROTOCOL_VERSION 1
/* Of one answer. A request is not bounded: it comes from ourselves. */
#define AOTICACHE_PROTOCOL_LINE_BYTES (1024 * 1024)
#define AOTICACHE_PROTOCOL_MAX_FILES 256

/*
 * The request as one line of JSON with its newline; *ret_line is the caller's, by free(), and terminated.
 * cpu_features: what the code may use, NULL for all this machine has. directory: private, absolute.
 * Returns: OK, UNSUPPORTED (a kind of argument that JSON has no place for), INVALID, NO_MEMORY.
 */
aoticache_status aoticache_protocol_write_request(const aoticache_request *request, uint64_t id,
                                                  const char *cpu_features, const char *directory, char **ret_line,
                                                  size_t *ret_size, aoticache_error *ret_error);

/*
 * Writes the data of constant arguments to the files that the request names, in `directory`.
 * Returns: OK, INVALID (a constant came without data), IO, DENIED.
 */
aoticache_status aoticache_protocol_write_constants(const aoticache_request *request, const char *directory,
                                                    aoticache_error *ret_error);

/* What a hook answered. All strings belong to it. */
typedef struct aoticache_answer {
    aoticache_product product; /* compile_ns is 0 where the hook did not say */
    json_t *json;
    aoticache_file *files;
    char **paths;
    char *output; /* what the compiler said; NULL: nothing */
} aoticache_answer;

/*
 * Reads an answer and checks everything in it, the files too: each must be a regular file, not a symbolic link, and
 * belong to this user.
 *
 * hook: for messages. directory: that relative paths start from.
 * Returns: OK; COMPILE_FAILED, UNSUPPORTED (the hook says so); CORRUPT (the answer is wrong); NO_MEMORY.
 */
aoticache_status aoticache_protocol_read_answer(const char *bytes, size_t size, uint64_t id, const char *hook,
                                                const char *directory, aoticache_answer *ret_answer,
                                                aoticache_error *ret_error);
void aoticache_answer_free(aoticache_answer *answer);

/* What a worker says when it has started. Borrowed strings live as long as `json`, which the caller releases. */
typedef struct aoticache_hello {
    json_t *json;
    const char *producer;
    const char *python;
} aoticache_hello;

/* Returns: OK, COMPILE_FAILED (it says why it cannot work), CORRUPT (it says something else altogether). */
aoticache_status aoticache_protocol_read_hello(const char *bytes, size_t size, const char *hook,
                                               aoticache_hello *ret_hello, aoticache_error *ret_error);

#endif
