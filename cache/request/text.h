/*
 * cache/request/text: what the two files of the parser share: text.c knows the line, text_scan.c its
 * small parts.
 *
 * Private to them. Functions that return a status have said in parser->error what is wrong.
 */
#ifndef AOTICACHE_CACHE_REQUEST_TEXT_H
#define AOTICACHE_CACHE_REQUEST_TEXT_H

#include "cache/request/internal.h"

#include <locale.h>

struct text_parser {
    const char *text, *at;
    const char *close; /* the ')' that ends the arguments */
    aoticache_request *request;
    aoticache_device device;
    uint64_t *key_sets; /* none, one for all tensors, or one for each */
    size_t key_set_count, tensor_count;
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
/* Take the character, or the word, behind blanks; false where it is not there. */
bool aoticache_text_accept(struct text_parser *parser, char wanted);
bool aoticache_text_accept_word(struct text_parser *parser, const char *word);

/* Letters, digits and '_' at the start of `text`. */
size_t aoticache_text_word_length(const char *text);
bool aoticache_text_is_word(const char *text, const char *word);
/* A copy of the next `length` bytes; false where they are too many to be a name. */
bool aoticache_text_copy_name(const struct text_parser *parser, size_t length,
                              char ret_name[REQUEST_MAX_NAME_BYTES + 1]);

/* Length of "12", "-1.5", "1e+22", "inf" or "nan" at the start of `text`; 0 where there is no number. */
size_t aoticache_text_number_length(const char *text, bool *ret_is_int);
aoticache_status aoticache_text_read_number(struct text_parser *parser, struct text_number *ret_number);

/* Append an int, a double or "RE+IMj"; a string from its opening quote on. */
aoticache_status aoticache_text_add_number(struct text_parser *parser, const char *name);
aoticache_status aoticache_text_add_string(struct text_parser *parser, const char *name);

#endif
