/*
 * runtime/named_operators: PyTorch operators that have no C function, in a process without PyTorch. Compiled code calls
 * them by name, through a proxy executor (runtime/proxy_executor.h): the shim has some of them, and the executor of a
 * package uses them for operators that the host has not registered.
 *
 * Private to the shim and to eager/model/package/.
 */
#ifndef AOTICACHE_RUNTIME_NAMED_OPERATORS_H
#define AOTICACHE_RUNTIME_NAMED_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/abi.h"

/* An argument, in the order of the schema. Fields that its type does not use are zero. */
typedef struct aoticache_named_argument {
    bool is_given;           /* the argument is not None */
    AtenTensorHandle tensor; /* borrowed */
    int64_t integer;         /* for an int, bool or Scalar, and the number of a dtype or memory format */
    double number;           /* for a float or Scalar */
    const char *text;
    const int64_t *integers; /* for a list of integers */
    const double *numbers;   /* for a list of floats */
    size_t count;            /* of either list */
} aoticache_named_argument;

typedef struct aoticache_named_operator {
    const char *schema; /* PyTorch's: "aten::cholesky(Tensor self, bool upper=False) -> Tensor" */
    /*
     * Calls the operator. ret_results: a new handle for each result, which the caller frees; untouched on failure. If
     * the result is one list of tensors, a handle for each of its tensors: the first NULL ends the list.
     */
    AOTITorchError (*call)(const aoticache_named_argument *arguments, AtenTensorHandle *ret_results);
} aoticache_named_operator;

/* The number of elements of ret_results, all NULL before the call. */
enum { AOTICACHE_NAMED_MAX_RESULTS = 64 };

/* Returns the operators; the shim exports such a function under this name. The list ends with a NULL schema. */
typedef const aoticache_named_operator *(*aoticache_named_operators_fn)(void);
#define AOTICACHE_NAMED_OPERATORS_SYMBOL "torch_aoticache_named_operators"

#endif
