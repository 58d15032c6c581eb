/*
 * eager/schema/internal: what the files of the schema parser share: the structure itself, the memory it is built
 * in, the tokens of its text, and the grammar's parts.
 *
 * Private to eager/schema/, except for aoticache_schema_nearest_type(). A schema is one block of memory: everything it points to lies behind it, or is
 * static. Text is parsed twice, first into scratch memory to learn how large that block is, then into the block.
 */
#ifndef AOTICACHE_EAGER_SCHEMA_INTERNAL_H
#define AOTICACHE_EAGER_SCHEMA_INTERNAL_H

#include "base/base.h"
#include "eager/schema/schema.h"

#define SCHEMA_MAX_BYTES (64u << 10)
#define SCHEMA_MAX_DEPTH 32u
/* Items that "int[N] x=1" stands for, in one schema: a short text must not ask for gigabytes. */
#define SCHEMA_MAX_REPEATED (64u << 10)

struct aoticache_schema {
    const char *name, *overload, *full_name;
    const aoticache_schema_argument *arguments, *returns;
    size_t argument_count, return_count;
    bool has_signature, is_vararg, is_varret, is_mutable, has_aliasing;
};

/* ---- lexer.c: memory ---- */

typedef struct schema_chunk {
    struct schema_chunk *next;
} schema_chunk;

/* Memory that only grows. With `chunks_allowed` it takes more from the heap when `memory` is used up. */
typedef struct schema_arena {
    char *memory;
    size_t capacity, used; /* of the current piece */
    size_t total;          /* of all pieces */
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
    TOKEN_RESERVED, /* a keyword or an operator of Python's that schemas have no use for */
    TOKEN_UNKNOWN,  /* no token begins here */
} schema_token_kind;

typedef struct schema_token {
    int kind;
    uint32_t begin, length; /* in the text */
} schema_token;

typedef struct schema_lexer {
    const char *text;
    uint32_t position;
    uint32_t nesting; /* of brackets: inside them newlines are blanks */
} schema_lexer;

schema_token aoticache_schema_lexer_next(schema_lexer *lexer);

/* strtod() and snprintf("%.17g") of the C locale, whatever the caller's is. */
double aoticache_schema_number_parse(const char *text, char **ret_end);
void aoticache_schema_number_format(double number, char *ret_text, size_t size);

/* ---- lexer.c: taking and refusing tokens ---- */

typedef struct schema_parser {
    schema_lexer lexer;
    schema_token token; /* the next one to be used */
    schema_arena *arena;
    bool is_definition;         /* of an operator: no type variables */
    const char *namespace_name; /* for a name that has none; NULL: it stays without */
    uint32_t depth;             /* of types in types */
    uint32_t fresh_names;       /* "Tensor!" is "Tensor($0! -> )" */
    size_t repeated;            /* items that repeated defaults have taken */
    aoticache_status status;
    aoticache_error *error;
} schema_parser;

/* These return false where the parse has failed; then parser->status and ->error say why. */
void aoticache_schema_advance(schema_parser *parser);
bool aoticache_schema_accept(schema_parser *parser, int kind);
bool aoticache_schema_expect(schema_parser *parser, int kind, const char *expected);
bool aoticache_schema_refuse(schema_parser *parser, const char *expected);
bool aoticache_schema_refuse_at(schema_parser *parser, schema_token token, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);
bool aoticache_schema_out_of_memory(schema_parser *parser);
void *aoticache_schema_take(schema_parser *parser, size_t size);
bool aoticache_schema_token_is(const schema_parser *parser, schema_token token, const char *word);
/* A copy in the schema; NULL: out of memory. */
const char *aoticache_schema_copy(schema_parser *parser, const char *text, size_t size);
const char *aoticache_schema_copy_token(schema_parser *parser, schema_token token);

/* ---- types.c ---- */

/* What a type is annotated with: of a list itself, and of what it holds. */
typedef struct schema_annotation {
    const aoticache_alias *outer; /* of the type; where it is implied by that of the elements it has no names */
    const aoticache_alias *inner; /* of its elements */
} schema_annotation;

/* nested: inside a tuple, a dict, ...: there PyTorch keeps "int" of SymInt, ScalarType, Layout and MemoryFormat. */
bool aoticache_schema_parse_type(schema_parser *parser, bool nested, const aoticache_type **ret_type,
                                 schema_annotation *ret_annotation);
/* The "[2]" of "int[2](a)?", which may stand at the outermost level alone. */
bool aoticache_schema_parse_fixed_list(schema_parser *parser, const aoticache_type **type,
                                       schema_annotation *annotation);

/* ---- alias.c ---- */

/* ret_alias: NULL where none is written here. */
bool aoticache_schema_parse_alias(schema_parser *parser, const aoticache_alias **ret_alias);
/* The annotation of a list around what has `annotation`. */
bool aoticache_schema_wrap_alias(schema_parser *parser, schema_annotation *annotation);

/* ---- union.c ---- */

/* Union types as PyTorch keeps them: flat, in its order. items: count types, changed. */
bool aoticache_schema_make_union(schema_parser *parser, schema_token token, const aoticache_type **items, size_t count,
                                 const aoticache_type **ret_type);

/* ---- defaults.c ---- */

bool aoticache_schema_parse_default(schema_parser *parser, const aoticache_type *type, aoticache_default *ret_value);

/* ---- schema.c, alias.c ---- */

bool aoticache_schema_alias_has(const char *const *names, size_t count, const char *name);

/* Returns the type whose name is nearest, upper and lower case alike: Tensor for "tensor"; NULL if none is near. */
const char *aoticache_schema_nearest_type(const char *name);

/*
 * ---- beyond the public header ----
 *
 * AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export it.
 */

/*
 * As aoticache_schema_parse(), for a text that is to define an operator: without type variables, which schemas of
 * TorchScript alone have. "f(tensor x) -> tensor" has two there and is refused here (torch._C.parse_schema takes it,
 * torch.library's define does not).
 * namespace_name: of a name that is written without one; NULL: it stays without.
 */
AOTICACHE_API aoticache_status aoticache_schema_parse_definition(const char *text, const char *namespace_name,
                                                                 aoticache_schema **ret_schema,
                                                                 aoticache_error *ret_error);

/* Only a name: "aten::add.Tensor", no parentheses: a schema without arguments and returns whose has_signature is false. */
AOTICACHE_API aoticache_status aoticache_schema_parse_name(const char *text, aoticache_schema **ret_schema,
                                                           aoticache_error *ret_error);

/* "aten::add"; "Tensor", "" for none. Borrowed from the schema. */
AOTICACHE_API const char *aoticache_schema_name(const aoticache_schema *schema);
AOTICACHE_API const char *aoticache_schema_overload(const aoticache_schema *schema);

/* False of what aoticache_schema_parse_name() read. */
AOTICACHE_API bool aoticache_schema_has_signature(const aoticache_schema *schema);

/* "..." behind the arguments; behind the returns. */
AOTICACHE_API bool aoticache_schema_is_vararg(const aoticache_schema *schema);
AOTICACHE_API bool aoticache_schema_is_varret(const aoticache_schema *schema);

/* An argument is written to ("(a!)"); an output shares memory with an argument ("(a)" on a return). */
AOTICACHE_API bool aoticache_schema_is_mutable(const aoticache_schema *schema);
AOTICACHE_API bool aoticache_schema_has_aliasing(const aoticache_schema *schema);

/* As PyTorch prints a type. Like snprintf. */
AOTICACHE_API size_t aoticache_type_format(const aoticache_type *type, char *ret_text, size_t size);

/* The same name, arguments (names, types, defaults, annotations) and returns. */
AOTICACHE_API bool aoticache_schema_equal(const aoticache_schema *a, const aoticache_schema *b);
AOTICACHE_API bool aoticache_type_equal(const aoticache_type *a, const aoticache_type *b);

/*
 * Whether an implementation with schema `b` fits a definition `a`: the number and types of arguments and returns; where
 * not, MISMATCH and what differs (c10::checkFunctionSchema's counterpart). Returns: OK, MISMATCH, INVALID (one is a
 * name alone).
 */
AOTICACHE_API aoticache_status aoticache_schema_check_same(const aoticache_schema *a, const aoticache_schema *b,
                                                           aoticache_error *ret_error);

#endif
