/*
 * runtime/named_operators: operators of PyTorch's that have no C function, in a process without PyTorch. Compiled code
 * calls them by name, through a proxy executor (runtime/proxy_executor.h): the shim has some of them, and the executor of a
 * package looks here for what nobody has registered.
 *
 * Private to the shim and to eager/package/.
 */
#ifndef AOTICACHE_RUNTIME_NAMED_OPERATORS_H
#define AOTICACHE_RUNTIME_NAMED_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/abi.h"

/* An argument, in the order of the schema. What its type does not have is zero. */
typedef struct aoticache_named_argument {
    bool is_given;           /* it is not None */
    AtenTensorHandle tensor; /* borrowed */
    int64_t integer;         /* of a bool, a Scalar that is one, and the number of a dtype or memory format */
    double number;           /* of a float or Scalar */
    const char *text;
    const int64_t *integers;
    size_t count;
} aoticache_named_argument;

typedef struct aoticache_named_operator {
    const char *schema; /* PyTorch's: "aten::cholesky(Tensor self, bool upper=False) -> Tensor" */
    /* ret_results: a new handle for each result, which are the caller's; untouched on failure. */
    AOTITorchError (*call)(const aoticache_named_argument *arguments, AtenTensorHandle *ret_results);
} aoticache_named_operator;

/* Of the most results that one of them has. */
enum { AOTICACHE_NAMED_MAX_RESULTS = 4 };

/* What the shim exports under this name. The list ends with a schema that is NULL. */
typedef const aoticache_named_operator *(*aoticache_named_operators_fn)(void);
#define AOTICACHE_NAMED_OPERATORS_SYMBOL "torch_aoticache_named_operators"

#endif
