/*
 * eager/package/executor: the proxy executor of a package in a process without PyTorch. AOTInductor leaves operators that
 * have no C function, a user's own first of all, to the host: the compiled code passes a node's number with tensors and
 * integers, and a JSON file beside the library says which operator the node is and what its other arguments are.
 * The operators are those of a dispatcher of this library (eager/dispatch/dispatcher.h).
 *
 * Sources: torch/_inductor/ir.py (ProxyExecutor Design Note), torch/_inductor/codegen/cpp_wrapper_cpu.py
 * (generate_extern_kernel_args_decl_if_needed), torch/_export/serde/schema.py, PyTorch 2.13.
 *
 * executor_nodes.c reads the nodes, executor.c finds the file and runs them, executor_named.c has the operators that the
 * shim brings. Private to package/.
 */
#ifndef AOTICACHE_EAGER_PACKAGE_EXECUTOR_H
#define AOTICACHE_EAGER_PACKAGE_EXECUTOR_H

#include <jansson.h>

#include "eager/dispatch/dispatcher.h"
#include "runtime/proxy_executor.h"

/* Of the JSON text; PyTorch writes some 400 bytes for a node. */
#define AOTICACHE_EXECUTOR_MAX_BYTES (2u << 20)
/* Arguments or results of one operator; PyTorch's limit, too. */
#define AOTICACHE_EXECUTOR_MAX_VALUES 64

/* Where the value of an argument comes from. */
typedef enum aoticache_executor_source {
    AOTICACHE_EXECUTOR_FIXED = 0, /* the node or the schema's default */
    AOTICACHE_EXECUTOR_INT,       /* the next of the integers that the compiled code passes */
    AOTICACHE_EXECUTOR_INTS,      /* the next `count` of them */
    AOTICACHE_EXECUTOR_TENSOR,    /* the next of the tensors */
    AOTICACHE_EXECUTOR_TENSORS,   /* the next of them for each place that is not absent */
} aoticache_executor_source;

typedef struct aoticache_executor_argument {
    aoticache_executor_source source;
    uint32_t count;        /* INTS, TENSORS: of the list */
    bool *absent;          /* TENSORS: places that are None; NULL: none is */
    bool is_given;         /* the node has it, else the schema's default */
    aoticache_value value; /* FIXED; lists are in `items`, texts in the JSON tree or the schema */
    void *items;
} aoticache_executor_argument;

typedef struct aoticache_executor_output {
    bool is_list;
    uint32_t count; /* handles that the compiled code passes for it: 0 of one that it does not use */
} aoticache_executor_output;

typedef struct aoticache_executor_node {
    const aoticache_operator *op;
    aoticache_schema *schema;   /* a copy: the definition may be taken back */
    aoticache_value *defaults;  /* of the copy */
    aoticache_key_set excluded; /* keys that the call skips */
    uint32_t argument_count, return_count, output_count;
    aoticache_executor_argument *arguments;      /* argument_count */
    aoticache_executor_output *outputs;          /* output_count <= return_count */
    uint32_t int_count, input_count, list_count; /* integers, tensors that go in, places of all lists of tensors */
    uint32_t tensor_count;                       /* with those of the outputs */
} aoticache_executor_node;

typedef struct aoticache_executor {
    struct AOTIProxyExecutorOpaque handle; /* first: the library is given its address */
    json_t *tree;
    size_t node_count;
    aoticache_executor_node *nodes;
} aoticache_executor;

/*
 * Reads the nodes and finds their operators. text: untrusted, read during the call alone. The dispatcher has to outlive
 * the executor, which may run from any threads at a time.
 * Returns: OK; INVALID (not such JSON: the node is named); UNSUPPORTED (operators that are not defined or have no kernel:
 * all are named; an argument or result of a kind that is not supported: operator and argument are named); NO_MEMORY.
 */
aoticache_status aoticache_executor_create(aoticache_dispatcher *dispatcher, const char *text, size_t size,
                                           aoticache_executor **ret_executor, aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_executor_free(aoticache_executor *executor);

/* executor_nodes.c: fills the executor's nodes from its tree. Returns: as aoticache_executor_create(). */
aoticache_status aoticache_executor_read_nodes(aoticache_executor *executor, aoticache_dispatcher *dispatcher,
                                               aoticache_error *ret_error);
void aoticache_executor_free_nodes(aoticache_executor *executor);
/*
 * executor_named.c: an operator that the shim has by name, which nobody needs to register.
 * Returns: OK; NOT_FOUND (there is none, or PyTorch is in the process); NO_MEMORY.
 */
aoticache_status aoticache_executor_find_named(const char *name, aoticache_operator **ret_op);

#endif
