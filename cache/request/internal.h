/*
 * cache/request/internal: what the files of the request share: its members, its limits, the validation of parts, the
 * encoding of one argument, and a small writer of text.
 *
 * Private to cache/request/. The rules behind the limits are in docs/key.md; changing one changes which encodings are
 * valid, so it needs a new version of the encoding.
 */
#ifndef AOTICACHE_CACHE_REQUEST_INTERNAL_H
#define AOTICACHE_CACHE_REQUEST_INTERNAL_H

#include "cache/request/request.h"

#define REQUEST_MAX_OP_BYTES 255
#define REQUEST_MAX_NAME_BYTES 255        /* of a keyword */
#define REQUEST_MAX_STRING_BYTES 65536    /* of a STRING argument */
#define REQUEST_MAX_ARGUMENTS 65535       /* arguments and items of lists together */
#define REQUEST_MAX_KEYWORDS 255          /* no schema has more; keeps the search for duplicates short */
#define REQUEST_MAX_ENVIRONMENT 255
#define REQUEST_MAX_ENVIRONMENT_NAME_BYTES 63
#define REQUEST_MAX_ENVIRONMENT_VALUE_BYTES 255
#define REQUEST_MAX_DEVICE_INDEX 9999     /* as many digits as the text form of a device takes */
#define REQUEST_MAX_ENCODED_BYTES (16u << 20)

#define REQUEST_ENCODING_MAGIC "aoticache key" /* its terminator belongs to the encoding */
#define REQUEST_ENCODING_VERSION 1

struct environment_pair {
    char *name;
    char *value;
};

/* The data of a CONSTANT, or of the items of a LIST: what the public view of an argument does not show. */
struct argument_data {
    const void *bytes;           /* borrowed from whoever added the constant */
    struct argument_data *items; /* owned; one for each item */
};

/* Arguments, or the items of a list. Two arrays, because callers see the first one as it is. */
struct argument_vector {
    aoticache_argument *views; /* they own what they point to */
    struct argument_data *data;
    size_t count, capacity;
};

struct aoticache_request {
    char *op;
    aoticache_device device;
    struct environment_pair *environment; /* sorted by name */
    size_t environment_count, environment_capacity;
    struct argument_vector arguments;
    size_t item_count;    /* arguments and items of lists, the open one included */
    size_t keyword_count; /* they are the last ones */
    size_t encoded_size;  /* of the whole encoding, kept up to date so that a limit is found by who exceeds it */
    bool list_open;
    char *list_name; /* of the open list */
    struct argument_vector list;
};

/* ---- request.c ---- */

/* Frees what an argument owns; a list's items apart. */
void aoticache_request_argument_clear(aoticache_argument *view);
/* Frees all arguments, their items, and the arrays. */
void aoticache_request_vector_clear(struct argument_vector *vector);
/* Makes room for one more; false where memory is short. */
bool aoticache_request_vector_reserve(struct argument_vector *vector);
void aoticache_request_vector_push(struct argument_vector *vector, aoticache_argument view, struct argument_data data);

/* ---- check.c: is this part valid? Each writes one line to `ret_reason` where it returns false. ---- */

#define REQUEST_REASON_BYTES 512

bool aoticache_request_check_op(const char *op, char ret_reason[REQUEST_REASON_BYTES]);
bool aoticache_request_check_keyword(const char *name, char ret_reason[REQUEST_REASON_BYTES]);
bool aoticache_request_check_environment(const char *name, const char *value, char ret_reason[REQUEST_REASON_BYTES]);
bool aoticache_request_check_string(const char *value, char ret_reason[REQUEST_REASON_BYTES]);
/* Also gives it its canonical form: "cpu:0" is "cpu". */
bool aoticache_request_check_device(aoticache_device *device, char ret_reason[REQUEST_REASON_BYTES]);
/* metadata with or without strides; its device is made canonical. */
bool aoticache_request_check_metadata(aoticache_tensor_metadata *metadata, char ret_reason[REQUEST_REASON_BYTES]);
/* Row-major strides of valid sizes: an element of size 0 or 1 counts as 1. */
void aoticache_request_contiguous_strides(uint32_t ndim, const int64_t *sizes, int64_t *ret_strides);
/* Whether `size` bytes are well-formed UTF-8 (no overlong forms, no surrogates) without a zero byte. */
bool aoticache_request_is_utf8(const char *text, size_t size);

/* ---- encode.c ---- */

/* Bytes that one argument, one item of a list, one pair, and a request without arguments take. */
size_t aoticache_request_encoded_argument_size(const aoticache_argument *argument);
size_t aoticache_request_encoded_item_size(const aoticache_argument *item);
size_t aoticache_request_encoded_pair_size(const char *name, const char *value);
size_t aoticache_request_encoded_base_size(const char *op);
/* Every NaN becomes the one that is encoded. */
double aoticache_request_canonical_double(double value);

/* ---- environment.c ---- */

void aoticache_request_environment_clear(aoticache_request *request);

#endif
