/*
 * eager/torch/stable: PyTorch's stable C ABI as the binding uses it: its functions, and how StableIValues represent the values
 * of a schema.
 *
 * Private. Source: torch/csrc/stable/c/shim.h, torch/csrc/stable/stableivalue_conversions.h (2.13).
 */
#ifndef AOTICACHE_EAGER_TORCH_STABLE_H
#define AOTICACHE_EAGER_TORCH_STABLE_H

#include "eager/schema/schema.h"
#include "eager/torch/bridge.h"
#include "eager/value.h"
#include "loader/loader.h"

#include <string.h>

typedef void (*aoticache_stable_fn)(uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs);

struct AOTICacheTorchLibrary; /* a TorchLibraryHandle */
struct AOTICacheTorchList;    /* a StableListHandle */
struct AOTICacheTorchString;  /* a StringHandle */

/* Result, name, parameters. 2.10 has all of them. */
#define AOTICACHE_STABLE_LIST(X)                                                                                      \
    X(AOTITorchError, aoti_torch_library_init_impl,                                                                   \
      (const char *ns, const char *key, const char *file, uint32_t line, struct AOTICacheTorchLibrary **ret_library)) \
    X(AOTITorchError, torch_library_impl,                                                                             \
      (struct AOTICacheTorchLibrary * library, const char *name, aoticache_stable_fn fn, uint64_t build_version))     \
    X(AOTITorchError, aoti_torch_delete_library_object, (struct AOTICacheTorchLibrary * library))                     \
    X(AOTITorchError, torch_call_dispatcher,                                                                          \
      (const char *name, const char *overload, uint64_t *stack, uint64_t build_version))                              \
    X(AOTITorchError, torch_list_size, (struct AOTICacheTorchList * list, size_t *ret_size))                          \
    X(AOTITorchError, torch_list_get_item, (struct AOTICacheTorchList * list, size_t index, uint64_t *ret_item))      \
    X(AOTITorchError, torch_delete_list, (struct AOTICacheTorchList * list))                                          \
    X(AOTITorchError, torch_delete_string, (struct AOTICacheTorchString * string))                                    \
    X(AOTITorchError, torch_string_length, (struct AOTICacheTorchString * string, size_t *ret_length))                \
    X(AOTITorchError, torch_string_c_str, (struct AOTICacheTorchString * string, const char **ret_text))              \
    X(void, aoti_torch_check,                                                                                         \
      (bool condition, const char *function, const char *file, uint32_t line, const char *message))

typedef struct aoticache_stable {
#define AOTICACHE_STABLE_MEMBER(result, name, parameters) result(*name) parameters;
    AOTICACHE_STABLE_LIST(AOTICACHE_STABLE_MEMBER)
#undef AOTICACHE_STABLE_MEMBER
    /* Frees optional values. NULL before 2.13: operator_delete is used. */
    AOTITorchError (*torch_delete_stable_ivalue)(uint64_t *value);
    void (*operator_delete)(void *memory);
    const char *(*torch_exception_get_what)(void);                  /* 2.13; NULL */
    AOTITorchError (*torch_get_num_threads)(uint32_t *ret_threads); /* 2.13; NULL */
    const aoticache_torch *torch;                                   /* for reading tensors */
    aoticache_bridge_settings settings;                             /* as in the bridge */
} aoticache_stable;

/*
 * Finds PyTorch's functions.
 * path: of libtorch_cpu.so or its replacement, which must be loaded; NULL: the loaded one.
 * Returns: OK; NOT_FOUND (it is not in this process); UNSUPPORTED (it lacks functions: older than 2.10).
 */
aoticache_status aoticache_stable_bind(const char *path, const aoticache_torch *torch, aoticache_stable *ret_stable,
                                       aoticache_error *ret_error);

/* ---- values ---- */

/* The maximum number of arguments and of results of a call. */
#define AOTICACHE_STABLE_MAX_ARGUMENTS 32

/* How one argument is represented. */
typedef struct aoticache_stable_form {
    uint8_t kind;    /* aoticache_value_kind */
    uint8_t element; /* of a list: the kind of its items */
    bool is_optional;
    bool has_gaps; /* a list of optional tensors */
} aoticache_stable_form;

/* How the arguments of a schema are represented. */
typedef struct aoticache_stable_plan {
    size_t count;
    bool has_lists;
    bool is_plain; /* tensors and numbers only, none of them optional */
    aoticache_stable_form forms[];
} aoticache_stable_plan;

/* Creates a plan. Returns: OK; UNSUPPORTED (an argument that this ABI cannot represent: named; too many); NO_MEMORY. */
aoticache_status aoticache_stable_plan_create(const aoticache_schema *schema, aoticache_stable_plan **ret_plan,
                                              aoticache_error *ret_error);
void aoticache_stable_plan_free(aoticache_stable_plan *plan);

/* The arguments of one call as values, and their storage. Only lists need allocated memory. */
typedef struct aoticache_stable_arguments {
    size_t count;
    uint64_t wrapped; /* bit i: argument i may be a wrapped number */
    aoticache_value values[AOTICACHE_STABLE_MAX_ARGUMENTS];
    aoticache_tensor_view views[AOTICACHE_STABLE_MAX_ARGUMENTS];
    void *lists[AOTICACHE_STABLE_MAX_ARGUMENTS]; /* memory of a list, or NULL; set if the plan has lists */
} aoticache_stable_arguments;

/*
 * Reads the arguments. The stack keeps ownership of them, also of the handles of tensors in lists.
 * Returns false for an argument that only PyTorch's kernel can serve; nothing needs to be dropped then.
 */
bool aoticache_stable_read(const aoticache_stable *stable, const aoticache_stable_plan *plan, const uint64_t *stack,
                           aoticache_stable_arguments *ret_arguments);
/* Frees what reading allocated, but not the stack's values. */
void aoticache_stable_drop(const aoticache_stable_plan *plan, aoticache_stable_arguments *arguments);
/* Frees the stack's values; with `consumed` the handles of tensors are already consumed and are not freed. */
void aoticache_stable_release(const aoticache_stable *stable, const aoticache_stable_plan *plan, uint64_t *stack,
                              bool consumed);

/* ---- inline, for hits ---- */

static inline void *aoticache_stable_pointer(uint64_t bits)
{
    return (void *)(uintptr_t)bits;
}

/*
 * Fills in the metadata by which a kernel is chosen; does not read the data pointer and the number of elements. Returns false
 * for complex tensors, too: they may be lazily conjugated, which this ABI does not show.
 */
static inline bool aoticache_stable_read_tensor(const aoticache_torch *torch, AtenTensorHandle tensor,
                                                aoticache_tensor_view *view)
{
    int64_t *sizes, *strides;
    if (__builtin_expect(tensor == NULL, 0))
        return false;
    if (__builtin_expect((torch->aoti_torch_get_dtype(tensor, &view->dtype) |
                          torch->aoti_torch_get_device_type(tensor, &view->device.type) |
                          torch->aoti_torch_get_dim(tensor, &view->ndim) | torch->aoti_torch_get_sizes(tensor, &sizes) |
                          torch->aoti_torch_get_strides(tensor, &strides)) != 0,
                         0))
        return false;
    view->device.index = -1;
    if (view->device.type != AOTICACHE_DEVICE_TYPE_CPU &&
        torch->aoti_torch_get_device_index(tensor, &view->device.index) != 0)
        return false;
    view->data = NULL;
    view->numel = 0;
    view->sizes = sizes;
    view->strides = strides;
    view->layout = AOTICACHE_LAYOUT_STRIDED;
    view->requires_grad = false;
    view->dispatch_key_set = 0;
    view->handle = tensor;
    return view->dtype < AOTICACHE_DTYPE_COMPLEX32 || view->dtype > AOTICACHE_DTYPE_COMPLEX128;
}

/* Checks for the dtypes of Python's numbers, except complex; a wrapped bool promotes like any other bool tensor. */
static inline bool aoticache_stable_may_be_wrapped(const aoticache_tensor_view *view)
{
    return view->ndim == 0 && view->device.type == AOTICACHE_DEVICE_TYPE_CPU &&
           (view->dtype == AOTICACHE_DTYPE_FLOAT64 || view->dtype == AOTICACHE_DTYPE_INT64);
}

static inline bool aoticache_stable_read_argument_tensor(const aoticache_stable *stable, uint64_t bits, size_t i,
                                                         aoticache_stable_arguments *arguments)
{
    aoticache_tensor_view *view = &arguments->views[i];
    arguments->values[i].kind = AOTICACHE_VALUE_TENSOR;
    arguments->values[i].as.tensor = view;
    if (__builtin_expect(!aoticache_stable_read_tensor(stable->torch, aoticache_stable_pointer(bits), view), 0))
        return false;
    if (__builtin_expect(aoticache_stable_may_be_wrapped(view), 0))
        arguments->wrapped |= UINT64_C(1) << i;
    return true;
}

static inline void aoticache_stable_read_number(const aoticache_stable_form *form, uint64_t bits,
                                                aoticache_value *value)
{
    value->kind = form->kind;
    switch (form->kind) {
    case AOTICACHE_VALUE_BOOL:
        value->as.bool_value = (bits & 0xff) != 0;
        break;
    case AOTICACHE_VALUE_DTYPE:
    case AOTICACHE_VALUE_LAYOUT:
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        value->as.int_value = (int32_t)(uint32_t)bits;
        break;
    case AOTICACHE_VALUE_DEVICE:
        value->as.device = (aoticache_device){.type = (int32_t)(bits >> 32), .index = (int32_t)(uint32_t)bits};
        break;
    default: /* an int, or the bits of a double */
        memcpy(&value->as.int_value, &bits, sizeof bits);
        break;
    }
}

/* Reads as aoticache_stable_read() does, for a plain plan; nothing needs to be dropped. */
static inline bool aoticache_stable_read_plainly(const aoticache_stable *stable, const aoticache_stable_plan *plan,
                                                 const uint64_t *stack, aoticache_stable_arguments *ret_arguments)
{
    ret_arguments->count = plan->count;
    ret_arguments->wrapped = 0;
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->forms[i].kind != AOTICACHE_VALUE_TENSOR)
            aoticache_stable_read_number(&plan->forms[i], stack[i], &ret_arguments->values[i]);
        else if (__builtin_expect(!aoticache_stable_read_argument_tensor(stable, stack[i], i, ret_arguments), 0))
            return false;
    }
    return true;
}

#endif
