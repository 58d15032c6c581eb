/*
 * eager/dispatch/schema/schema_internal: shared by the files of the schema parser: the memory that a schema is built in, the
 * tokens of its text, and the parts of the grammar.
 *
 * Private to eager/dispatch/schema/. A schema is one block of memory: everything it points to is in that block, or is static.
 * Text is parsed twice, first into scratch memory to find the size of that block, then into the block.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_SCHEMA_INTERNAL_H
#define AOTICACHE_EAGER_DISPATCH_SCHEMA_INTERNAL_H

#include "base/base.h"
#include "eager/dispatch/schema/eager_face.h"
#include "eager/dispatch/schema/schema.h"

#define SCHEMA_MAX_BYTES (64u << 10)
#define SCHEMA_MAX_DEPTH 32u
/* Maximum number of items of repeated defaults ("int[N] x=1") in one schema: a short text must not allocate gigabytes. */
#define SCHEMA_MAX_REPEATED (64u << 10)

/* ---- lexer.c: memory ---- */

typedef struct schema_chunk {
    struct schema_chunk *next;
} schema_chunk;

/* Memory that only grows. With `chunks_allowed` it allocates more when `memory` is used up. */
typedef struct schema_arena {
    char *memory;
    size_t capacity, used; /* of the current chunk */
    size_t total;          /* of all chunks */
    bool chunks_allowed;
    schema_chunk *chunks;
} schema_arena;

void aoticache_schema_arena_release(schema_arena *arena);

/* ---- lexer.c: tokens ---- */

/* Single characters are their own kind. */
typedef enum schema_token_kind {
    TOKEN_END = 256,
    TOKEN_NEWLINE, /* outside of brackets */
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_WORD,
    TOKEN_TRUE,
    TOKEN_FALSE,
    TOKEN_NONE,
    TOKEN_NONE_TYPE,
    TOKEN_ARROW,
    TOKEN_DOTS,
    TOKEN_RESERVED, /* a keyword or an operator of Python that schemas do not use */
    TOKEN_UNKNOWN,  /* no token begins here */
} schema_token_kind;

typedef struct schema_token {
    int kind;
    uint32_t begin, length; /* position in the text */
} schema_token;

typedef struct schema_lexer {
    const char *text;
    uint32_t position;
    uint32_t nesting; /* depth of brackets, inside which newlines are blanks */
} schema_lexer;

schema_token aoticache_schema_lexer_next(schema_lexer *lexer);

/* Work as strtod() and snprintf("%.17g") in the C locale, independent of the caller's. */
double aoticache_schema_number_parse(const char *text, char **ret_end);
void aoticache_schema_number_format(double number, char *ret_text, size_t size);

/* ---- lexer.c: taking and refusing tokens ---- */

typedef struct schema_parser {
    schema_lexer lexer;
    schema_token token; /* the next token */
    schema_arena *arena;
    bool is_definition;         /* the text defines an operator: no type variables */
    const char *namespace_name; /* for a name without a namespace; NULL: it stays without */
    uint32_t depth;             /* nesting of types */
    uint32_t fresh_names;       /* "Tensor!" is "Tensor($0! -> )" */
    size_t repeated;            /* items of repeated defaults until now */
    aoticache_status status;
    aoticache_error *error;
} schema_parser;

/* These return false if the parse has failed; parser->status and ->error then have the reason. */
void aoticache_schema_advance(schema_parser *parser);
bool aoticache_schema_accept(schema_parser *parser, int kind);
bool aoticache_schema_expect(schema_parser *parser, int kind, const char *expected);
bool aoticache_schema_refuse(schema_parser *parser, const char *expected);
bool aoticache_schema_refuse_at(schema_parser *parser, schema_token token, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);
bool aoticache_schema_out_of_memory(schema_parser *parser);
void *aoticache_schema_take(schema_parser *parser, size_t size);
bool aoticache_schema_token_is(const schema_parser *parser, schema_token token, const char *word);
/* Copies text into the schema; NULL: out of memory. */
const char *aoticache_schema_copy(schema_parser *parser, const char *text, size_t size);
const char *aoticache_schema_copy_token(schema_parser *parser, schema_token token);

/* ---- types.c ---- */

/* The annotations of a type: of a list itself, and of its elements. */
typedef struct schema_annotation {
    const aoticache_alias *outer; /* of the type itself; without names if the elements' annotation implies it */
    const aoticache_alias *inner; /* of its elements */
} schema_annotation;

/* Parses a type. nested: inside a tuple, a dict, ...: there PyTorch makes SymInt, ScalarType, Layout and MemoryFormat "int". */
bool aoticache_schema_parse_type(schema_parser *parser, bool nested, const aoticache_type **ret_type,
                                 schema_annotation *ret_annotation);
/* Parses the "[2]" of "int[2](a)?", which is allowed at the outermost level only. */
bool aoticache_schema_parse_fixed_list(schema_parser *parser, const aoticache_type **type,
                                       schema_annotation *annotation);

/* ---- alias.c ---- */

/* Parses an annotation. ret_alias: NULL if there is none. */
bool aoticache_schema_parse_alias(schema_parser *parser, const aoticache_alias **ret_alias);
/* Turns the annotation of a type into that of a list of the type. */
bool aoticache_schema_wrap_alias(schema_parser *parser, schema_annotation *annotation);

/* ---- union.c ---- */

/* Makes a union type as PyTorch does: flat, in its order. items: count types, changed. */
bool aoticache_schema_make_union(schema_parser *parser, schema_token token, const aoticache_type **items, size_t count,
                                 const aoticache_type **ret_type);

/* ---- defaults.c ---- */

bool aoticache_schema_parse_default(schema_parser *parser, const aoticache_type *type, aoticache_default *ret_value);

/* ---- schema.c, alias.c ---- */

bool aoticache_schema_alias_has(const char *const *names, size_t count, const char *name);

/*
 * ---- comparing schemas ----
 *
 * AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export it.
 */

/* Returns whether both have the same name, arguments (names, types, defaults, annotations) and returns. */
AOTICACHE_API bool aoticache_schema_equal(const aoticache_schema *a, const aoticache_schema *b);
AOTICACHE_API bool aoticache_type_equal(const aoticache_type *a, const aoticache_type *b);

/*
 * Checks whether an implementation with schema `b` fits a definition `a`: number and types of arguments and returns
 * (c10::checkFunctionSchema's counterpart). Returns: OK, MISMATCH (the difference is named), INVALID (one of them is only a
 * name).
 */
AOTICACHE_API aoticache_status aoticache_schema_check_same(const aoticache_schema *a, const aoticache_schema *b,
                                                           aoticache_error *ret_error);

#endif
