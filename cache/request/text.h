/*
 * cache/request/text: requests as text, as JSON and as canonical bytes.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_REQUEST_TEXT_H
#define AOTICACHE_CACHE_REQUEST_TEXT_H

#include "cache/request/request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the pair number `position`, borrowed until the next change of the request. Returns false if there is none. */
AOTICACHE_API bool aoticache_request_environment_at(const aoticache_request *request, size_t position,
                                                    const char **ret_name, const char **ret_value);

/* Creates a request from its canonical bytes (docs/formats/key.md): accepts every valid encoding and nothing else. Its
 * constants have no data. Returns: OK, INVALID, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_request_decode(const uint8_t *bytes, size_t size,
                                                        aoticache_request **ret_request, aoticache_error *ret_error);

/*
 * Writes one human-readable line: "aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu". A tensor is its dtype
 * and sizes, then, if they differ from the default: strides that are not contiguous "{1, 2}", the beginning of a
 * constant's digest "#1a2b3c4d", a device that is not the request's "@cuda:1", a layout that is not strided,
 * "requires_grad". The environment and dispatch key sets are left out. UTF-8, without control characters, the same in every
 * locale. Like snprintf: returns the length of the whole text, terminates it, and truncates it to the buffer.
 */
AOTICACHE_API size_t aoticache_request_format(const aoticache_request *request, char *ret_text, size_t size);

typedef enum aoticache_request_form {
    /*
     * The line of aoticache_request_format(), as in lists of requests (docs/warm.md): " key_sets 0x10001" follows if tensors
     * have dispatch key sets (one for all, or one for each tensor in their order).
     */
    AOTICACHE_REQUEST_TEXT = 0,
    /*
     * One line of JSON, without a newline: {"operator": ..., "device": ..., "arguments": [...]}, in the form that
     * docs/hooks.md describes. A tensor with a dispatch key set has "dispatch_key_set": "0x8001", a constant the
     * "data_digest" of its data.
     */
    AOTICACHE_REQUEST_JSON = 1,
} aoticache_request_form;

/*
 * Writes the request as a line from which aoticache_request_parse() restores it. The environment is left out.
 *
 * ret_line: the caller frees it with free().
 * Returns: OK, INVALID (a list is still open), NO_MEMORY; UNSUPPORTED (TEXT: a constant, because its data would be needed;
 * JSON: a dtype, layout or memory format that has no name).
 */
AOTICACHE_API aoticache_status aoticache_request_write(const aoticache_request *request, aoticache_request_form form,
                                                       char **ret_line, aoticache_error *ret_error);

/*
 * Parses such a line. Environment: that of a new request.
 *
 * TEXT: also the output of aoticache_request_format(). Blanks may be anywhere between words; "on DEVICE" may be left out for
 *     the CPU. Key sets that are not given are 0.
 * JSON: these members may be left out, and then mean: "device" the CPU; in a tensor, "strides" contiguous, "device" the
 *     request's, "layout" strided, "requires_grad" false, "dispatch_key_set" 0; in an argument, "name" positional. Other
 *     members are refused.
 *
 * Returns: OK; INVALID (a constant is refused: its data is not in the line; ret_error begins with "column N: ", counted in
 * bytes from 1, and names what was expected, except for a line of JSON with wrong members); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_request_parse(const char *line, aoticache_request_form form,
                                                       aoticache_request **ret_request, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
