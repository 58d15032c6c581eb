/*
 * loader/check/reader: the tokens of the text form of checks, and what is said where another one was expected.
 */
#include "loader/check/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool aoticache_check_reader_expected(const struct check_reader *reader, const char *what)
{
    char found[24];
    unsigned char byte = (unsigned char)*reader->cursor;
    if (byte == '\0')
        snprintf(found, sizeof found, "the end");
    else if (byte >= 0x20 && byte < 0x7f)
        snprintf(found, sizeof found, "'%c'", byte);
    else
        snprintf(found, sizeof found, "byte 0x%02x", byte);
    aoticache_error_set(reader->ret_error, AOTICACHE_INVALID, "position %zu: expected %s, found %s",
                        (size_t)(reader->cursor - reader->text) + 1, what, found);
    return false;
}

char aoticache_check_reader_peek(struct check_reader *reader)
{
    while (*reader->cursor == ' ' || *reader->cursor == '\t')
        reader->cursor++;
    return *reader->cursor;
}

bool aoticache_check_reader_accept(struct check_reader *reader, const char *token)
{
    size_t length = strlen(token);
    aoticache_check_reader_peek(reader);
    if (strncmp(reader->cursor, token, length) != 0)
        return false;
    reader->cursor += length;
    return true;
}

static bool is_word(char byte)
{
    return check_is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

bool aoticache_check_read_number(struct check_reader *reader, uint64_t most, const char *what, uint64_t *ret_number)
{
    uint64_t number = 0;
    aoticache_check_reader_peek(reader);
    const char *start = reader->cursor;
    if (!check_is_digit(*start))
        return aoticache_check_reader_expected(reader, what);
    for (; check_is_digit(*reader->cursor); reader->cursor++) {
        uint64_t digit = (uint64_t)(*reader->cursor - '0');
        if (digit > most || number > (most - digit) / 10) {
            char range[96];
            snprintf(range, sizeof range, "%.40s up to %llu", what, (unsigned long long)most);
            reader->cursor = start;
            return aoticache_check_reader_expected(reader, range);
        }
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

bool aoticache_check_read_int(struct check_reader *reader, const char *what, int64_t *ret_number)
{
    uint64_t number;
    if (!aoticache_check_read_number(reader, INT64_MAX, what, &number))
        return false;
    *ret_number = (int64_t)number;
    return true;
}

void aoticache_check_read_word(struct check_reader *reader, char ret_word[AOTICACHE_CHECK_WORD_BYTES])
{
    size_t length = 0;
    aoticache_check_reader_peek(reader);
    for (; is_word(*reader->cursor); reader->cursor++)
        if (length + 1 < AOTICACHE_CHECK_WORD_BYTES)
            ret_word[length++] = *reader->cursor;
    ret_word[length] = '\0';
}

bool aoticache_check_number_after(const char *word, const char *prefix, int32_t *ret_number)
{
    size_t length = strlen(prefix), digits = strlen(word);
    if (strncmp(word, prefix, length) != 0 || digits == length || digits > length + 9 ||
        strspn(word + length, "0123456789") != digits - length)
        return false;
    *ret_number = (int32_t)strtol(word + length, NULL, 10);
    return true;
}
