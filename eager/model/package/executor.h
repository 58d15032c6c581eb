/*
 * eager/model/package/executor: the proxy executor of a package in a process without PyTorch. AOTInductor leaves operators that
 * have no C function, mainly a user's own operators, to the host. The compiled code passes the number of a node, with tensors
 * and integers; a JSON file next to the library says which operator the node calls and what its other arguments are.
 * The operators are those of a dispatcher of this library (eager/dispatch/dispatcher.h).
 *
 * Sources: torch/_inductor/ir.py (ProxyExecutor Design Note), torch/_inductor/codegen/cpp_wrapper_cpu.py
 * (generate_extern_kernel_args_decl_if_needed), torch/_export/serde/schema.py, PyTorch 2.13.
 *
 * executor_nodes.c reads the nodes, executor.c finds the file and runs them, executor_named.c has the operators that the
 * shim provides. Private to package/.
 */
#ifndef AOTICACHE_EAGER_MODEL_PACKAGE_EXECUTOR_H
#define AOTICACHE_EAGER_MODEL_PACKAGE_EXECUTOR_H

#include <jansson.h>

#include "eager/dispatch/dispatcher.h"
#include "runtime/proxy_executor.h"

/* Maximum size of the JSON text; PyTorch writes about 400 bytes for a node. */
#define AOTICACHE_EXECUTOR_MAX_BYTES (2u << 20)
/* Maximum number of arguments or results of one operator; also PyTorch's limit. */
#define AOTICACHE_EXECUTOR_MAX_VALUES 64

/* Where the value of an argument comes from. */
typedef enum aoticache_executor_source {
    AOTICACHE_EXECUTOR_FIXED = 0, /* the node or the schema's default */
    AOTICACHE_EXECUTOR_INT,       /* the next of the integers that the compiled code passes */
    AOTICACHE_EXECUTOR_INTS,      /* the next `count` of them */
    AOTICACHE_EXECUTOR_TENSOR,    /* the next of the tensors */
    AOTICACHE_EXECUTOR_TENSORS,   /* the next tensor for each list element that is not absent */
} aoticache_executor_source;

typedef struct aoticache_executor_argument {
    aoticache_executor_source source;
    uint32_t count;        /* INTS, TENSORS: length of the list */
    bool *absent;          /* TENSORS: elements that are None; NULL: no element is */
    bool is_given;         /* true: from the node; false: the schema's default */
    aoticache_value value; /* FIXED; lists are in `items`, texts in the JSON tree or the schema */
    void *items;
} aoticache_executor_argument;

typedef struct aoticache_executor_output {
    bool is_list;
    uint32_t count; /* handles that the compiled code passes for it: 0 if it does not use the result */
} aoticache_executor_output;

typedef struct aoticache_executor_node {
    const aoticache_operator *op;
    aoticache_schema *schema;   /* a copy: the definition may be removed */
    aoticache_value *defaults;  /* of the copied schema */
    aoticache_key_set excluded; /* keys that the call skips */
    uint32_t argument_count, return_count, output_count;
    aoticache_executor_argument *arguments;      /* argument_count */
    aoticache_executor_output *outputs;          /* output_count <= return_count */
    uint32_t int_count, input_count, list_count; /* integers, input tensors, elements of all lists of tensors */
    uint32_t tensor_count;                       /* tensors including those of the outputs */
} aoticache_executor_node;

typedef struct aoticache_executor {
    struct AOTIProxyExecutorOpaque handle; /* must be first: its address is passed to the library */
    json_t *tree;
    size_t node_count;
    aoticache_executor_node *nodes;
} aoticache_executor;

/*
 * Reads the nodes and finds their operators. text: untrusted; read only during the call. The dispatcher must outlive the
 * executor. Any number of threads may run the executor concurrently.
 * Returns: OK; INVALID (JSON of another form: the node is named); UNSUPPORTED (operators that are not defined or have no
 * kernel: all are named; an argument or result of an unsupported kind: operator and argument are named); NO_MEMORY.
 */
aoticache_status aoticache_executor_create(aoticache_dispatcher *dispatcher, const char *text, size_t size,
                                           aoticache_executor **ret_executor, aoticache_error *ret_error);
/* Frees an executor. NULL is allowed. */
void aoticache_executor_free(aoticache_executor *executor);

/* executor_nodes.c: fills the executor's nodes from its tree. Returns: as aoticache_executor_create(). */
aoticache_status aoticache_executor_read_nodes(aoticache_executor *executor, aoticache_dispatcher *dispatcher,
                                               aoticache_error *ret_error);
void aoticache_executor_free_nodes(aoticache_executor *executor);
/*
 * executor_named.c: finds an operator that the shim provides by name and that nobody needs to register.
 * Returns: OK; NOT_FOUND (there is none, or PyTorch is in the process); NO_MEMORY.
 */
aoticache_status aoticache_executor_find_named(const char *name, aoticache_operator **ret_op);

#endif
