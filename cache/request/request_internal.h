/*
 * cache/request/request_internal: types and functions shared by the files of cache/request/: the members of a request, its
 * limits, the validation of parts, the sizes of encoded parts, and the parser of a line of text. Reading and writing manifests
 * uses the limits, too.
 *
 * docs/formats/key.md has the rules for the limits; changing one changes which encodings are valid, so it needs a new
 * version of the encoding.
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
#define REQUEST_MAX_DEVICE_INDEX 9999 /* as many digits as the text form of a device allows */
#define REQUEST_MAX_ENCODED_BYTES (16u << 20)

#define REQUEST_ENCODING_MAGIC "aoticache key" /* its terminator is part of the encoding */
#define REQUEST_ENCODING_VERSION 1

struct environment_pair {
    char *name;
    char *value;
};

/* Arguments, or the items of a list. Callers get the array as it is. */
struct argument_vector {
    aoticache_argument *views; /* they own what they point to, except the data of constants */
    size_t count, capacity;
};

struct aoticache_request {
    aoticache_request_info info;          /* owns the operator's name */
    struct environment_pair *environment; /* sorted by name */
    size_t environment_capacity;
    struct argument_vector arguments;
    size_t item_count;    /* arguments and items of lists, including the open one */
    size_t keyword_count; /* the last arguments */
    size_t encoded_size;  /* of the whole encoding, kept up to date so that the call that exceeds a limit fails */
    bool list_open;
    char *list_name; /* of the open list */
    struct argument_vector list;
};

/* ---- request.c ---- */

/* Frees what an argument owns, except a list's items. */
void aoticache_request_argument_clear(aoticache_argument *view);
/* Makes space for one more; returns false if memory is short. */
bool aoticache_request_vector_reserve(struct argument_vector *vector);
/* Frees all arguments, with the items of lists. */
void aoticache_request_vector_clear(struct argument_vector *vector);

/* ---- check.c: validation of parts. Each function writes one line to `ret_reason` if it returns false. ---- */

#define REQUEST_REASON_BYTES 512

bool aoticache_request_check_op(const char *op, char ret_reason[REQUEST_REASON_BYTES]);
bool aoticache_request_check_keyword(const char *name, char ret_reason[REQUEST_REASON_BYTES]);
bool aoticache_request_check_environment(const char *name, const char *value, char ret_reason[REQUEST_REASON_BYTES]);
bool aoticache_request_check_string(const char *value, char ret_reason[REQUEST_REASON_BYTES]);
/* Checks a device. Also converts it to its canonical form: "cpu:0" is "cpu". */
bool aoticache_request_check_device(aoticache_device *device, char ret_reason[REQUEST_REASON_BYTES]);
/* Checks metadata with or without strides; makes its device canonical. */
bool aoticache_request_check_metadata(aoticache_tensor_metadata *metadata, char ret_reason[REQUEST_REASON_BYTES]);
/* Writes row-major strides of valid sizes: an element of size 0 or 1 counts as 1. */
void aoticache_request_contiguous_strides(uint32_t ndim, const int64_t *sizes, int64_t *ret_strides);
/* Returns whether `size` bytes are well-formed UTF-8 (no overlong forms, no surrogates) without a zero byte. */
bool aoticache_request_is_utf8(const char *text, size_t size);

/* ---- encode.c ---- */

/* Return the bytes that one argument, one item of a list, one pair, and a request without arguments take. */
size_t aoticache_request_encoded_argument_size(const aoticache_argument *argument);
size_t aoticache_request_encoded_item_size(const aoticache_argument *item);
size_t aoticache_request_encoded_pair_size(const char *name, const char *value);
size_t aoticache_request_encoded_base_size(const char *op);
/* Returns the number, or the one NaN that is encoded for every NaN. */
double aoticache_request_canonical_double(double value);

/* ---- environment.c ---- */

void aoticache_request_environment_clear(aoticache_request *request);

/* ---- text.c parses a line of text, text_scan.c its small parts. Functions that return a status write the reason to
 * parser->error. ---- */

struct text_parser {
    const char *text, *at;
    const char *close; /* the ')' that ends the arguments */
    aoticache_request *request;
    aoticache_device device;
    uint64_t *key_sets; /* none, one for all tensors, or one for each */
    size_t key_set_count, key_set_capacity, tensor_count;
    locale_t locale; /* "C": numbers look the same in every locale */
    aoticache_error *error;
};

struct text_number {
    bool is_int;
    int64_t int_value;
    double double_value; /* also of an int */
};

/* Returns INVALID, with the column of `at` in the message. */
aoticache_status aoticache_text_refuse(const struct text_parser *parser, const char *at, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);
/* Does the same: something else was expected after the following blanks. */
aoticache_status aoticache_text_expected(const struct text_parser *parser, const char *what);
/* Adds the column of `at` to the message of a function of the request about the part that begins there. */
aoticache_status aoticache_text_located(const struct text_parser *parser, const char *at, aoticache_status status,
                                        const aoticache_error *error);

void aoticache_text_skip_blanks(struct text_parser *parser);
/* Skip blanks and take the character, or the word; return false if it is not there. */
bool aoticache_text_accept(struct text_parser *parser, char wanted);
bool aoticache_text_accept_word(struct text_parser *parser, const char *word);

/* Returns the number of letters, digits and '_' at the start of `text`. */
size_t aoticache_text_word_length(const char *text);
bool aoticache_text_is_word(const char *text, const char *word);
/* Copies the next `length` bytes; returns false if they are too many for a name. */
bool aoticache_text_copy_name(const struct text_parser *parser, size_t length,
                              char ret_name[REQUEST_MAX_NAME_BYTES + 1]);

/* Returns the length of "12", "-1.5", "1e+22", "inf" or "nan" at the start of `text`; 0 if there is no number. */
size_t aoticache_text_number_length(const char *text, bool *ret_is_int);
aoticache_status aoticache_text_read_number(struct text_parser *parser, struct text_number *ret_number);

/* Append an int, a double or "RE+IMj"; a string from its opening quote on. */
aoticache_status aoticache_text_add_number(struct text_parser *parser, const char *name);
aoticache_status aoticache_text_add_string(struct text_parser *parser, const char *name);

/* ---- line.c, json.c, text.c: the forms of aoticache_request_write() and aoticache_request_parse(). Nothing is NULL. ---- */

aoticache_status aoticache_request_write_json(const aoticache_request *request, char **ret_line,
                                              aoticache_error *ret_error);
aoticache_status aoticache_request_parse_text(const char *line, aoticache_request **ret_request,
                                              aoticache_error *ret_error);
aoticache_status aoticache_request_parse_json(const char *line, aoticache_request **ret_request,
                                              aoticache_error *ret_error);

#endif
