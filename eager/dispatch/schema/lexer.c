/*
 * eager/dispatch/schema/lexer: the base of all parts of the grammar: the words, numbers, strings and signs of a schema's
 * text, the memory that a parse fills, and taking or refusing the next token.
 *
 * Text is divided as in PyTorch's lexer (torch/csrc/jit/frontend/lexer.h): comments and lines continued by a backslash are
 * blanks, and so are newlines inside brackets.
 */
#include "eager/dispatch/schema/schema_internal.h"

#include <locale.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

double aoticache_schema_number_parse(const char *text, char **ret_end)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc's own object: costs nothing, cannot fail */
    double number = strtod_l(text, ret_end, c_locale);
    freelocale(c_locale);
    return number;
}

void aoticache_schema_number_format(double number, char *ret_text, size_t size)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(c_locale); /* of this thread only */
    snprintf(ret_text, size, "%.17g", number);
    uselocale(before);
    freelocale(c_locale);
}

static uint32_t number_length(const char *text)
{
    if (!is_digit(text[0]) && !(text[0] == '.' && is_digit(text[1])))
        return 0;
    uint32_t length = 0;
    while (is_digit(text[length]))
        length++;
    char after = text[length];
    if (after != '.' && after != 'e' && after != 'E' && after != 'x' && after != 'X')
        return length + (after == 'j'); /* almost all numbers; strtod() handles the rest */
    char *end;
    (void)aoticache_schema_number_parse(text, &end);
    return (uint32_t)(end - text) + (*end == 'j');
}

/* Returns the length of a string with its quotes, one or three; 0: it does not end. */
static uint32_t string_length(const char *text)
{
    char quote = text[0];
    uint32_t quotes = text[1] == quote && text[2] == quote ? 3 : 1;
    for (uint32_t at = quotes; text[at] != '\0'; at++) {
        if (text[at] == quote && (quotes == 1 || (text[at + 1] == quote && text[at + 2] == quote)))
            return at + quotes;
        if (text[at] == '\n' && quotes == 1)
            return 0;
        if (text[at] == '\\' && text[++at] == '\0')
            return 0;
    }
    return 0;
}

static int word_kind(const char *word, uint32_t length)
{
    static const char *const reserved[] = {"and",  "as",     "assert", "break", "class", "continue",
                                           "def",  "del",    "elif",   "else",  "for",   "global",
                                           "if",   "import", "in",     "is",    "not",   "or",
                                           "pass", "raise",  "return", "while", "with",  "Ellipsis"};
    static const struct {
        const char *word;
        int kind;
    } constants[] = {{"True", TOKEN_TRUE}, {"False", TOKEN_FALSE}, {"None", TOKEN_NONE}, {"NoneType", TOKEN_NONE_TYPE}};
    if (length > 8 || length < 2)
        return TOKEN_WORD;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (constants[i].word[0] == word[0] && strlen(constants[i].word) == length &&
            memcmp(constants[i].word, word, length) == 0)
            return constants[i].kind;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (reserved[i][0] == word[0] && strlen(reserved[i]) == length && memcmp(reserved[i], word, length) == 0)
            return TOKEN_RESERVED;
    return TOKEN_WORD;
}

/* Returns the length of a sign. Only two signs of several characters are used, but "x**" must not become "x * *". */
static uint32_t sign_length(const char *text, int *ret_kind)
{
    static const char *const signs[] = {"...", "**=", "<<=", ">>=", "<=>", "->", "**", "*=", "|=", "!=", "==",
                                        "-=",  "<=",  ">=",  "//",  "<<",  ">>", "+=", "/=", "%=", "&=", "^="};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (text[0] == signs[i][0] && strncmp(text, signs[i], strlen(signs[i])) == 0) {
            *ret_kind = text[0] == '.'                         ? TOKEN_DOTS
                        : signs[i][1] == '>' && text[0] == '-' ? TOKEN_ARROW
                                                               : TOKEN_RESERVED;
            return (uint32_t)strlen(signs[i]);
        }
    return 0;
}

/* Skips blanks; returns true if they contain a newline that counts. */
static bool skip_blanks(schema_lexer *lexer)
{
    const char *text = lexer->text;
    bool newline = false;
    for (;;) {
        char c = text[lexer->position];
        if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f')
            lexer->position++;
        else if (c == '#' && strncmp(text + lexer->position, "# type:", 7) != 0)
            lexer->position += (uint32_t)strcspn(text + lexer->position, "\n");
        else if (c == '\\' && text[lexer->position + 1] == '\n' && !newline)
            lexer->position += 2;
        else if (c == '\n') {
            lexer->position++;
            newline = newline || lexer->nesting == 0;
        } else
            return newline;
    }
}

static void count_nesting(schema_lexer *lexer, int kind)
{
    if (kind == '(' || kind == '[' || kind == '{')
        lexer->nesting++;
    else if (kind == ')' || kind == ']' || kind == '}')
        lexer->nesting--; /* an extra bracket makes it huge, as in PyTorch; the parse fails there anyway */
}

/* Finds the kind and length of the token at `text`, which is not a blank. */
static uint32_t scan_token(const char *text, int *ret_kind)
{
    uint32_t length = 1;
    if (text[0] == '\0') {
        *ret_kind = TOKEN_END;
        return 0;
    }
    if (is_letter(text[0])) {
        while (is_letter(text[length]) || is_digit(text[length]))
            length++;
        *ret_kind = word_kind(text, length);
        return length;
    }
    *ret_kind = TOKEN_NUMBER;
    if ((length = number_length(text)) > 0)
        return length;
    *ret_kind = TOKEN_STRING;
    if ((text[0] == '"' || text[0] == '\'') && (length = string_length(text)) > 0)
        return length;
    if ((length = sign_length(text, ret_kind)) > 0)
        return length;
    *ret_kind = strchr("+-*/%@()[]:,={}><.?!&^|~", text[0]) != NULL ? text[0] : TOKEN_UNKNOWN;
    return 1;
}

schema_token aoticache_schema_lexer_next(schema_lexer *lexer)
{
    uint32_t start = lexer->position;
    if (skip_blanks(lexer) && start > 0)
        return (schema_token){TOKEN_NEWLINE, start, lexer->position - start};
    schema_token token = {.begin = lexer->position};
    token.length = scan_token(lexer->text + lexer->position, &token.kind);
    lexer->position += token.length;
    count_nesting(lexer, token.kind);
    return token;
}

/* ---- memory: one block of known size, which becomes the schema, or chunks of the heap that are freed ---- */

#define ALIGNMENT alignof(max_align_t)
#define HEADER ((sizeof(schema_chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)
#define CHUNK_BYTES ((size_t)32 << 10)

static bool add_chunk(schema_arena *arena, size_t size)
{
    size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
    schema_chunk *chunk = arena->chunks_allowed ? malloc(HEADER + capacity) : NULL;
    if (chunk == NULL)
        return false;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->memory = (char *)chunk + HEADER;
    arena->capacity = capacity;
    arena->used = 0;
    return true;
}

/* Allocates memory aligned for any of the structures; NULL: out of memory. */
static void *schema_arena_take(schema_arena *arena, size_t size)
{
    size = (size + 7) / 8 * 8;
    if (size > arena->capacity - arena->used && !add_chunk(arena, size))
        return NULL;
    void *taken = arena->memory + arena->used;
    arena->used += size;
    arena->total += size;
    return taken;
}

void aoticache_schema_arena_release(schema_arena *arena)
{
    while (arena->chunks != NULL) {
        schema_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}

/* ---- taking and refusing tokens ---- */

void aoticache_schema_advance(schema_parser *parser)
{
    parser->token = aoticache_schema_lexer_next(&parser->lexer);
}

bool aoticache_schema_accept(schema_parser *parser, int kind)
{
    if (parser->token.kind != kind)
        return false;
    aoticache_schema_advance(parser);
    return true;
}

bool aoticache_schema_token_is(const schema_parser *parser, schema_token token, const char *word)
{
    return token.kind == TOKEN_WORD && strlen(word) == token.length &&
           memcmp(parser->lexer.text + token.begin, word, token.length) == 0;
}

bool aoticache_schema_out_of_memory(schema_parser *parser)
{
    parser->status = aoticache_error_set(parser->error, AOTICACHE_NO_MEMORY, "schema: out of memory");
    return false;
}

void *aoticache_schema_take(schema_parser *parser, size_t size)
{
    void *taken = schema_arena_take(parser->arena, size);
    if (taken == NULL)
        aoticache_schema_out_of_memory(parser);
    return taken;
}

const char *aoticache_schema_copy(schema_parser *parser, const char *text, size_t size)
{
    char *copy = aoticache_schema_take(parser, size + 1);
    if (copy != NULL) {
        memcpy(copy, text, size);
        copy[size] = '\0';
    }
    return copy;
}

const char *aoticache_schema_copy_token(schema_parser *parser, schema_token token)
{
    return aoticache_schema_copy(parser, parser->lexer.text + token.begin, token.length);
}

bool aoticache_schema_refuse_at(schema_parser *parser, schema_token token, const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    parser->status =
        aoticache_error_set(parser->error, AOTICACHE_INVALID, "schema, column %u: %s", token.begin + 1, what);
    return false;
}

/* Describes a token for a message: quoted, shortened, without characters that would break the line. */
static void describe_token(const schema_parser *parser, char *ret_text, size_t size)
{
    schema_token token = parser->token;
    const char *text = parser->lexer.text + token.begin;
    size_t length = token.length;
    if (token.kind == TOKEN_END || token.kind == TOKEN_NEWLINE) {
        snprintf(ret_text, size, "%s", token.kind == TOKEN_END ? "the end" : "a new line");
        return;
    }
    if ((unsigned char)text[0] < ' ' || text[0] == 0x7f ||
        ((unsigned char)text[0] >= 0x80 && token.kind == TOKEN_UNKNOWN)) {
        snprintf(ret_text, size, "byte 0x%02x", (unsigned)(unsigned char)text[0]);
        return;
    }
    for (length = 0; length < token.length && length < 40; length++)
        if ((unsigned char)text[length] < ' ' || (unsigned char)text[length] >= 0x7f)
            break;
    snprintf(ret_text, size, "'%.*s%s'", (int)length, text, length < token.length ? "..." : "");
}

bool aoticache_schema_refuse(schema_parser *parser, const char *expected)
{
    char found[64];
    describe_token(parser, found, sizeof found);
    return aoticache_schema_refuse_at(parser, parser->token, "expected %s, found %s", expected, found);
}

bool aoticache_schema_expect(schema_parser *parser, int kind, const char *expected)
{
    return aoticache_schema_accept(parser, kind) || aoticache_schema_refuse(parser, expected);
}
