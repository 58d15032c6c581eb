/*
 * loader/check/reader: the tokens of the text form of checks.
 *
 * Private. Spaces and tabs before a token are skipped. What returns false has not found it; functions that are named
 * read_ have then said so in ret_error.
 */
#ifndef AOTICACHE_LOADER_CHECK_READER_H
#define AOTICACHE_LOADER_CHECK_READER_H

#include "base/base.h"

struct check_reader {
    const char *text, *cursor; /* terminated */
    aoticache_error *ret_error;
};

/* No name is longer than this, with its terminator. */
#define AOTICACHE_CHECK_WORD_BYTES 32

static inline bool check_is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Sets "position 9: expected a size, found 'x'", at the cursor. Returns false. */
bool aoticache_check_reader_expected(const struct check_reader *reader, const char *what);

/* The next character that is no space; 0 at the end. */
char aoticache_check_reader_peek(struct check_reader *reader);

/* Takes `token` if it is next. */
bool aoticache_check_reader_accept(struct check_reader *reader, const char *token);

/* Decimal digits, up to `most`. */
bool aoticache_check_read_number(struct check_reader *reader, uint64_t most, const char *what, uint64_t *ret_number);
bool aoticache_check_read_int(struct check_reader *reader, const char *what, int64_t *ret_number);

/* A name, empty where there is none; one that is too long is cut off and so known to nobody. */
void aoticache_check_read_word(struct check_reader *reader, char ret_word[AOTICACHE_CHECK_WORD_BYTES]);

/* "dtype12" for what has no name. */
bool aoticache_check_number_after(const char *word, const char *prefix, int32_t *ret_number);

#endif
