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
    const int64_t *integers; /* of a list of integers */
    const double *numbers;   /* of a list of floats */
    size_t count;            /* of either list */
} aoticache_named_argument;

typedef struct aoticache_named_operator {
    const char *schema; /* PyTorch's: "aten::cholesky(Tensor self, bool upper=False) -> Tensor" */
    /*
     * ret_results: a new handle for each result, which are the caller's; untouched on failure. Where the schema has one list of
     * tensors, a handle for each of its tensors: the first place that stays NULL ends the list.
     */
    AOTITorchError (*call)(const aoticache_named_argument *arguments, AtenTensorHandle *ret_results);
} aoticache_named_operator;

/* How many places ret_results has, all NULL before the call. */
enum { AOTICACHE_NAMED_MAX_RESULTS = 64 };

/* What the shim exports under this name. The list ends with a schema that is NULL. */
typedef const aoticache_named_operator *(*aoticache_named_operators_fn)(void);
#define AOTICACHE_NAMED_OPERATORS_SYMBOL "torch_aoticache_named_operators"

#endif
