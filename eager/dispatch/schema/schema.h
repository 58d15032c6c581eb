/*
 * eager/dispatch/schema/schema: function schemas, as PyTorch writes them: "aten::add.Tensor(Tensor self, Tensor other, *,
 * Scalar alpha=1) -> Tensor". They are parsed into a structure, and printed as PyTorch prints them.
 *
 * Source: torch/csrc/jit/frontend/function_schema_parser.cpp, aten/src/ATen/core/function_schema.h (2.13). Depends on base/
 * alone. A schema never changes once parsed and may be read from any thread.
 *
 * Users include <aoticache/dispatch.h>.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_SCHEMA_SCHEMA_H
#define AOTICACHE_EAGER_DISPATCH_SCHEMA_SCHEMA_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The base of a type; lists, optionals and tuples are built around it. */
typedef enum aoticache_type_kind {
    AOTICACHE_TYPE_TENSOR = 0,
    AOTICACHE_TYPE_INT,     /* int */
    AOTICACHE_TYPE_SYM_INT, /* SymInt */
    AOTICACHE_TYPE_FLOAT,
    AOTICACHE_TYPE_SYM_FLOAT, /* never parsed: PyTorch's schemas have no word for it */
    AOTICACHE_TYPE_BOOL,
    AOTICACHE_TYPE_SYM_BOOL,
    AOTICACHE_TYPE_COMPLEX,
    AOTICACHE_TYPE_NUMBER, /* Scalar */
    AOTICACHE_TYPE_STRING, /* str */
    AOTICACHE_TYPE_DEVICE,
    AOTICACHE_TYPE_DTYPE, /* ScalarType */
    AOTICACHE_TYPE_LAYOUT,
    AOTICACHE_TYPE_MEMORY_FORMAT,
    AOTICACHE_TYPE_GENERATOR,
    AOTICACHE_TYPE_STORAGE,
    AOTICACHE_TYPE_STREAM,
    AOTICACHE_TYPE_QSCHEME,
    AOTICACHE_TYPE_DIMNAME, /* never parsed */
    AOTICACHE_TYPE_ANY,
    AOTICACHE_TYPE_NONE,     /* NoneType */
    AOTICACHE_TYPE_LIST,     /* element, fixed_size */
    AOTICACHE_TYPE_OPTIONAL, /* element */
    AOTICACHE_TYPE_TUPLE,    /* elements */
    AOTICACHE_TYPE_DICT,     /* elements: key and value */
    AOTICACHE_TYPE_FUTURE,
    AOTICACHE_TYPE_RREF,
    AOTICACHE_TYPE_AWAIT,    /* element */
    AOTICACHE_TYPE_UNION,    /* elements */
    AOTICACHE_TYPE_CLASS,    /* name: "__torch__.torch.classes.x.Y" */
    AOTICACHE_TYPE_VARIABLE, /* name: "t" */
    AOTICACHE_TYPE_OTHER,    /* name: another word that PyTorch knows ("AnyClassType", "Capsule") */
} aoticache_type_kind;

typedef struct aoticache_type {
    aoticache_type_kind kind;
    const char *name;   /* CLASS, VARIABLE, OTHER; otherwise NULL */
    int32_t fixed_size; /* LIST: 2 for "int[2]"; otherwise -1 */
    size_t element_count;
    const struct aoticache_type *const *elements;
} aoticache_type;

/* "(a)", "(a!)", "(a -> b|*)" */
typedef struct aoticache_alias {
    bool is_write;
    size_t before_count, after_count; /* names: "a", "*" for the wildcard */
    const char *const *before;
    const char *const *after;
} aoticache_alias;

/* A default value. */
typedef enum aoticache_default_kind {
    AOTICACHE_DEFAULT_ABSENT = 0, /* there is none */
    AOTICACHE_DEFAULT_NONE,       /* None */
    AOTICACHE_DEFAULT_INT,
    AOTICACHE_DEFAULT_FLOAT,
    AOTICACHE_DEFAULT_COMPLEX,
    AOTICACHE_DEFAULT_BOOL,
    AOTICACHE_DEFAULT_STRING, /* also of a Device: "cuda:1" */
    AOTICACHE_DEFAULT_LIST,   /* of INT, FLOAT, BOOL or COMPLEX */
} aoticache_default_kind;

typedef struct aoticache_default {
    aoticache_default_kind kind;
    /* also the number of a dtype, layout or memory format: "contiguous_format", "strided", as PyTorch reads them */
    int64_t int_value;
    double float_value, imaginary;
    bool bool_value;
    const char *string_value;
    size_t count;
    const struct aoticache_default *items;
} aoticache_default;

typedef struct aoticache_schema_argument {
    const char *name; /* "" if a return has none */
    const aoticache_type *type;
    const aoticache_alias *alias;      /* NULL: none. For a list: the annotation of its elements */
    const aoticache_alias *list_alias; /* of the list itself; NULL: none */
    aoticache_default default_value;
    bool keyword_only;
} aoticache_schema_argument;

/* A schema. Only the library creates schemas, and the caller does not change them. All pointers belong to the schema. */
typedef struct aoticache_schema {
    const char *full_name; /* "aten::add.Tensor" */
    const char *name;      /* "aten::add" */
    const char *overload;  /* "Tensor"; "" for none */
    size_t argument_count, return_count;
    const aoticache_schema_argument *arguments, *returns;
    bool has_signature; /* false: only a name, without arguments and returns */
    bool is_vararg;     /* "..." after the arguments */
    bool is_varret;     /* "..." after the returns */
    bool is_mutable;    /* an argument is written to: "(a!)" */
    bool has_aliasing;  /* an output shares memory with an argument: "(a)" on a return */
} aoticache_schema;

/*
 * Parses a schema. text: UTF-8, at most 64 KiB; read only during the call: the schema copies everything.
 * ret_schema: the caller frees it with aoticache_schema_free().
 * Returns: OK; INVALID ("schema, column 17: expected ',' or ')', found ';'"); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_schema_parse(const char *text, aoticache_schema **ret_schema,
                                                      aoticache_error *ret_error);
/* Frees a schema. NULL is allowed. */
AOTICACHE_API void aoticache_schema_free(aoticache_schema *schema);

/* Prints the schema as PyTorch does (str(FunctionSchema)). Returns the length, like snprintf. */
AOTICACHE_API size_t aoticache_schema_format(const aoticache_schema *schema, char *ret_text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
