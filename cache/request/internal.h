/*
 * cache/request/internal: what the files of the request share: its members, its limits, the validation of parts, the
 * sizes of encoded parts, and the parser of a line of text. Reading and writing manifests uses the limits, too.
 *
 * The rules behind the limits are in docs/key.md; changing one changes which encodings are
 * valid, so it needs a new version of the encoding.
 */
#ifndef AOTICACHE_CACHE_REQUEST_INTERNAL_H
#define AOTICACHE_CACHE_REQUEST_INTERNAL_H

#include <locale.h>

#include "cache/request/request.h"

#define REQUEST_MAX_OP_BYTES 255
#define REQUEST_MAX_NAME_BYTES 255     /* of a keyword */
#define REQUEST_MAX_STRING_BYTES 65536 /* of a STRING argument */
#define REQUEST_MAX_ARGUMENTS 65535    /* arguments and items of lists together */
#define REQUEST_MAX_KEYWORDS 255       /* no schema has more; keeps the search for duplicates short */
#define REQUEST_MAX_ENVIRONMENT 255
#define REQUEST_MAX_ENVIRONMENT_NAME_BYTES 63
#define REQUEST_MAX_ENVIRONMENT_VALUE_BYTES 255
#define REQUEST_MAX_DEVICE_INDEX 9999 /* as many digits as the text form of a device takes */
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
/* Makes room for one more; false if memory is short. */
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
/* Returns whether `size` bytes are well-formed UTF-8 (no overlong forms, no surrogates) without a zero byte. */
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

/* ---- text.c knows a line of text, text_scan.c its small parts. Functions that return a status have said in parser->error
 * what is wrong. ---- */

struct text_parser {
    const char *text, *at;
    const char *close; /* the ')' that ends the arguments */
    aoticache_request *request;
    aoticache_device device;
    uint64_t *key_sets; /* none, one for all tensors, or one for each */
    size_t key_set_count, key_set_capacity, tensor_count;
    locale_t locale; /* "C": a number looks the same everywhere */
    aoticache_error *error;
};

struct text_number {
    bool is_int;
    int64_t int_value;
    double double_value; /* also of an int */
};

/* INVALID, with the column of `at`. */
aoticache_status aoticache_text_refuse(const struct text_parser *parser, const char *at, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);
/* The same: something else was expected behind the blanks that come next. */
aoticache_status aoticache_text_expected(const struct text_parser *parser, const char *what);
/* What a function of the request said about the part that begins at `at`. */
aoticache_status aoticache_text_located(const struct text_parser *parser, const char *at, aoticache_status status,
                                        const aoticache_error *error);

void aoticache_text_skip_blanks(struct text_parser *parser);
/* Take the character, or the word, behind blanks; false if it is not there. */
bool aoticache_text_accept(struct text_parser *parser, char wanted);
bool aoticache_text_accept_word(struct text_parser *parser, const char *word);

/* Letters, digits and '_' at the start of `text`. */
size_t aoticache_text_word_length(const char *text);
bool aoticache_text_is_word(const char *text, const char *word);
/* A copy of the next `length` bytes; false if they are too many to be a name. */
bool aoticache_text_copy_name(const struct text_parser *parser, size_t length,
                              char ret_name[REQUEST_MAX_NAME_BYTES + 1]);

/* Length of "12", "-1.5", "1e+22", "inf" or "nan" at the start of `text`; 0 if there is no number. */
size_t aoticache_text_number_length(const char *text, bool *ret_is_int);
aoticache_status aoticache_text_read_number(struct text_parser *parser, struct text_number *ret_number);

/* Append an int, a double or "RE+IMj"; a string from its opening quote on. */
aoticache_status aoticache_text_add_number(struct text_parser *parser, const char *name);
aoticache_status aoticache_text_add_string(struct text_parser *parser, const char *name);

/* The data handed to add_constant for an item of kind CONSTANT of the list at `position`, or NULL. */
const void *aoticache_request_constant_item_data(const aoticache_request *request, size_t position, size_t item);

#endif
