/*
 * runtime/update: changing constants in a buffer.
 *
 * An update has three steps. Resolving and checking change nothing, and the list may still be refused. Preparing makes
 * memory and tensors next to the old ones. Committing copies bytes and exchanges tensors, which does not fail on the
 * CPU; no run is under way in the active buffer then. So a refused update changes nothing, and no run sees half of one.
 */
#include "runtime/update.h"

#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct planned_change {
    AtenTensorHandle source;      /* NULL: this constant does not change */
    AtenTensorHandle replacement; /* freed here until it is committed */
    bool keep;                    /* the source's own memory is used; nothing is copied */
    bool gather;                  /* copied element by element: its storage is larger than its slot */
    const void *from;
    void *to;
    size_t bytes;
    void *staged; /* a copy of `from`, if that is in a blob which is written to */
} planned_change;

typedef struct update_plan {
    aoticache_container *container;
    aoticache_buffer *target;
    unsigned flags;
    bool take;
    bool in_blob;            /* a source is in the target's blob */
    planned_change *changes; /* num_constants */
} update_plan;

typedef struct seen_tensor {
    int32_t device_type, dtype;
    int64_t ndim, offset, storage_bytes;
    int64_t *sizes, *strides;
    void *data;
} seen_tensor;

/* ---- resolving ---- */

static AOTIRuntimeError read_tensor(const char *name, AtenTensorHandle tensor, seen_tensor *ret_seen)
{
    if (aoti_torch_get_device_type(tensor, &ret_seen->device_type) != 0 ||
        aoti_torch_get_dtype(tensor, &ret_seen->dtype) != 0 || aoti_torch_get_dim(tensor, &ret_seen->ndim) != 0 ||
        aoti_torch_get_sizes(tensor, &ret_seen->sizes) != 0 ||
        aoti_torch_get_strides(tensor, &ret_seen->strides) != 0 ||
        aoti_torch_get_storage_offset(tensor, &ret_seen->offset) != 0 ||
        aoti_torch_get_storage_size(tensor, &ret_seen->storage_bytes) != 0 ||
        aoti_torch_get_data_ptr(tensor, &ret_seen->data) != 0)
        return aoticache_kernel_fail_torch(NULL, name);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_sizes(const aoticache_kernel_constant *constant, const seen_tensor *seen)
{
    if (seen->ndim != constant->ndim)
        return aoticache_message_set("update_constant_buffer: constant '%s' has %lld dimensions but expected %d",
                                     constant->name, (long long)seen->ndim, (int)constant->ndim);
    for (int32_t d = 0; d < constant->ndim; d++)
        if (seen->sizes[d] != constant->sizes[d])
            return aoticache_message_set("update_constant_buffer: constant '%s' has size %lld in dimension %d but "
                                         "expected %lld",
                                         constant->name, (long long)seen->sizes[d], (int)d,
                                         (long long)constant->sizes[d]);
    return AOTICACHE_KERNEL_OK;
}

/* Refuses a tensor that reaches beyond its storage: a copy would read there. */
static AOTIRuntimeError check_storage(const aoticache_kernel_constant *constant, const seen_tensor *seen)
{
    int64_t extent, end, bytes;
    int64_t element = (int64_t)aoticache_description_dtype_bytes(constant->dtype);
    if (seen->offset < 0 || !aoticache_description_extent(seen->ndim, seen->sizes, seen->strides, &extent) ||
        __builtin_add_overflow(seen->offset, extent, &end) || __builtin_mul_overflow(end, element, &bytes))
        return aoticache_message_set("update_constant_buffer: constant '%s': its strides and offset are not valid",
                                     constant->name);
    if (extent > 0 && (bytes > seen->storage_bytes || seen->data == NULL))
        return aoticache_message_set("update_constant_buffer: constant '%s' has %lld bytes of storage but its strides "
                                     "and offset need %lld",
                                     constant->name, (long long)seen->storage_bytes, (long long)bytes);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_tensor(const update_plan *update, const aoticache_kernel_constant *constant,
                                     const seen_tensor *seen)
{
    int32_t wanted = update->container->device.type;
    bool from_cpu = (update->flags & AOTICACHE_UPDATE_FROM_CPU) != 0 && seen->device_type == AOTICACHE_DEVICE_TYPE_CPU;
    if (seen->device_type != wanted && !from_cpu)
        return aoticache_message_set("update_constant_buffer: constant '%s' is on device type %d but expected device "
                                     "type %d",
                                     constant->name, (int)seen->device_type, (int)wanted);
    if (seen->dtype != constant->dtype)
        return aoticache_message_set("update_constant_buffer: constant '%s' has dtype %d (%s) but expected dtype %d "
                                     "(%s)",
                                     constant->name, (int)seen->dtype, aoticache_description_dtype_name(seen->dtype),
                                     (int)constant->dtype, aoticache_description_dtype_name(constant->dtype));
    if (check_sizes(constant, seen) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return check_storage(constant, seen);
}

static bool lies_within(const void *memory, const void *block, size_t bytes)
{
    return block != NULL && (uintptr_t)memory >= (uintptr_t)block && (uintptr_t)memory - (uintptr_t)block < bytes;
}

/*
 * Chooses the source. Later updates write to memory of the container, so such memory is copied even in a user-managed
 * update.
 */
static void choose_source(update_plan *update, size_t position, AtenTensorHandle source, const seen_tensor *seen)
{
    const aoticache_container *container = update->container;
    const aoticache_kernel_constant *constant = &container->kernel->constants[position];
    planned_change *change = &update->changes[position];
    int64_t before = seen->offset * (int64_t)aoticache_description_dtype_bytes(constant->dtype);
    bool ours = false;
    for (int i = 0; i < 2; i++)
        ours |= lies_within(seen->data, container->buffers[i].blob, container->blob_bytes);
    change->source = source;
    change->keep = (update->flags & AOTICACHE_UPDATE_USER_MANAGED) != 0 && !ours;
    change->gather = (uint64_t)seen->storage_bytes > aoticache_description_slot_bytes(constant);
    change->from = seen->data != NULL ? (const uint8_t *)seen->data - before : NULL;
    change->bytes = (size_t)seen->storage_bytes;
    if (lies_within(seen->data, update->target->blob, container->blob_bytes))
        update->in_blob = true;
}

static AOTIRuntimeError resolve_source(update_plan *update, size_t position, AtenTensorHandle source)
{
    const aoticache_kernel_constant *constant = &update->container->kernel->constants[position];
    seen_tensor seen;
    if (source == NULL)
        return aoticache_message_set("update_constant_buffer: constant '%s': its tensor is NULL", constant->name);
    if (read_tensor(constant->name, source, &seen) != AOTICACHE_KERNEL_OK ||
        check_tensor(update, constant, &seen) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    choose_source(update, position, source, &seen);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError resolve_pairs(update_plan *update, const AOTInductorConstantMapEntry *pairs, size_t num_pairs)
{
    const aoticache_kernel *kernel = update->container->kernel;
    for (size_t i = 0; i < num_pairs; i++) {
        size_t position;
        if (pairs[i].name == NULL)
            return aoticache_message_set("update_constant_buffer: pair %zu of %zu has no name", i, num_pairs);
        if (!aoticache_description_find_constant(update->container, pairs[i].name, &position))
            return aoticache_message_set("update_constant_buffer: unknown constant '%s'; the kernel has %zu",
                                         pairs[i].name, kernel->num_constants);
        if (kernel->constants[position].from_folded || update->changes[position].source != NULL)
            continue;
        if (resolve_source(update, position, pairs[i].handle) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
    return AOTICACHE_KERNEL_OK;
}

/*
 * Returns whether a host may leave the constant out: constants that tracing made, buffers of the model, and empty
 * parameters.
 */
static bool may_be_missing(const aoticache_kernel_constant *constant)
{
    return constant->type == AOTICACHE_KERNEL_CONSTANT_TENSOR || constant->type == AOTICACHE_KERNEL_CONSTANT_BUFFER ||
           (constant->type == AOTICACHE_KERNEL_CONSTANT_PARAMETER && constant->data_size == 0);
}

/* Resolves the constants that the pairs do not name. */
static AOTIRuntimeError resolve_missing(update_plan *update)
{
    const aoticache_kernel *kernel = update->container->kernel;
    const aoticache_buffer *active = update->container->active;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        if (constant->from_folded || update->changes[i].source != NULL)
            continue;
        if ((update->flags & AOTICACHE_UPDATE_VALIDATE) != 0 && !may_be_missing(constant))
            return aoticache_message_set("Cannot find constants %s in constants_map!", constant->name);
        if (update->target != active && active->constants[i] != NULL && may_be_missing(constant)) {
            if (resolve_source(update, i, active->constants[i]) != AOTICACHE_KERNEL_OK)
                return AOTICACHE_KERNEL_FAILURE;
            update->changes[i].keep = false;
        }
    }
    return AOTICACHE_KERNEL_OK;
}

/* ---- preparing ---- */

static AOTIRuntimeError prepare_copy(const update_plan *update, size_t position)
{
    const aoticache_container *container = update->container;
    const aoticache_kernel_constant *constant = &container->kernel->constants[position];
    planned_change *change = &update->changes[position];
    int64_t *strides = (int64_t *)(uintptr_t)constant->strides, offset = constant->storage_offset;
    if (aoticache_buffer_need_blob(container, update->target) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    if (!change->gather && (aoti_torch_get_strides(change->source, &strides) != 0 ||
                            aoti_torch_get_storage_offset(change->source, &offset) != 0))
        return aoticache_kernel_fail_torch(NULL, constant->name);
    change->to = update->target->blob != NULL ? update->target->blob + container->offsets[position] : NULL;
    return aoticache_buffer_slot_tensor(container, update->target, position, strides, offset, &change->replacement);
}

/*
 * Makes a temporary copy of a source in the blob that will be written: it may be overwritten before it is copied.
 */
static AOTIRuntimeError stage_source(const update_plan *update, planned_change *change)
{
    const aoticache_device_functions *device = update->container->device.functions;
    if (!lies_within(change->from, update->target->blob, update->container->blob_bytes) || change->from == change->to ||
        change->bytes == 0)
        return AOTICACHE_KERNEL_OK;
    if (device->allocate(change->bytes, &change->staged) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return device->copy_in(change->staged, change->from, change->bytes);
}

static AOTIRuntimeError prepare_change(const update_plan *update, size_t position)
{
    planned_change *change = &update->changes[position];
    if (change->keep && update->take) {
        change->replacement = change->source;
        return AOTICACHE_KERNEL_OK;
    }
    if (change->keep) {
        if (aoti_torch_new_tensor_handle(change->source, &change->replacement) != 0)
            return aoticache_kernel_fail_torch(NULL, update->container->kernel->constants[position].name);
        return AOTICACHE_KERNEL_OK;
    }
    if (prepare_copy(update, position) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return update->in_blob ? stage_source(update, change) : AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError prepare_changes(const update_plan *update)
{
    for (size_t i = 0; i < update->container->kernel->num_constants; i++)
        if (update->changes[i].source != NULL && prepare_change(update, i) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    return AOTICACHE_KERNEL_OK;
}

/* ---- committing ---- */

static AOTIRuntimeError copy_constant(const update_plan *update, const planned_change *change, const char *name)
{
    if (change->keep || change->bytes == 0)
        return AOTICACHE_KERNEL_OK;
    if (change->gather)
        return aoti_torch_copy_(change->replacement, change->source, 0) == 0 ? AOTICACHE_KERNEL_OK
                                                                             : aoticache_kernel_fail_torch(NULL, name);
    return update->container->device.functions->copy_in(
        change->to, change->staged != NULL ? change->staged : change->from, change->bytes);
}

/*
 * Commits. A copy that fails, on a device, leaves the old tensors over bytes that may be new: the host must update
 * again.
 */
static AOTIRuntimeError commit_changes(const update_plan *update)
{
    const aoticache_kernel *kernel = update->container->kernel;
    update->target->state = AOTICACHE_BUFFER_INITIALIZED;
    for (size_t i = 0; i < kernel->num_constants; i++)
        if (update->changes[i].source != NULL &&
            copy_constant(update, &update->changes[i], kernel->constants[i].name) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        planned_change *change = &update->changes[i];
        if (change->source == NULL)
            continue;
        AtenTensorHandle before = update->target->constants[i];
        update->target->constants[i] = change->replacement;
        change->replacement = before;
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError commit_with_lock(const update_plan *update)
{
    bool active = update->target == update->container->active;
    if (active)
        aoticache_pool_lock_all(update->container->pool);
    AOTIRuntimeError status = commit_changes(update);
    if (active)
        aoticache_pool_unlock_all(update->container->pool);
    return status;
}

/*
 * Frees the memory of the changes. After a failure `replacement` is the prepared tensor; after success, the replaced
 * one.
 */
static void free_changes(const update_plan *update, bool committed)
{
    for (size_t i = 0; i < update->container->kernel->num_constants; i++) {
        planned_change *change = &update->changes[i];
        /* A taken handle is either still owned by the caller or in the buffer, in which it may have been already. */
        bool taken = (update->take || !committed) && change->replacement == change->source;
        if (change->replacement != NULL && !taken)
            aoti_torch_delete_tensor_object(change->replacement);
        if (change->staged != NULL)
            update->container->device.functions->free(change->staged);
    }
    free(update->changes);
}

/* Deletes taken handles that are not in the buffer: those that were copied or skipped, and second ones for a name. */
static void delete_unused_handles(const update_plan *update, const AOTInductorConstantMapEntry *pairs, size_t num_pairs)
{
    for (size_t i = 0; i < num_pairs; i++) {
        size_t position;
        if (pairs[i].handle != NULL &&
            aoticache_description_find_constant(update->container, pairs[i].name, &position) &&
            update->target->constants[position] != pairs[i].handle)
            aoti_torch_delete_tensor_object(pairs[i].handle);
    }
}

static AOTIRuntimeError apply_plan(update_plan *update, const AOTInductorConstantMapEntry *pairs, size_t num_pairs)
{
    update->target = (update->flags & AOTICACHE_UPDATE_INACTIVE) != 0 ? aoticache_container_inactive(update->container)
                                                                      : update->container->active;
    AOTIRuntimeError status = resolve_pairs(update, pairs, num_pairs);
    if (status == AOTICACHE_KERNEL_OK)
        status = resolve_missing(update);
    if (status == AOTICACHE_KERNEL_OK)
        status = prepare_changes(update);
    if (status == AOTICACHE_KERNEL_OK)
        status = commit_with_lock(update);
    free_changes(update, status == AOTICACHE_KERNEL_OK);
    if (status == AOTICACHE_KERNEL_OK && update->take)
        delete_unused_handles(update, pairs, num_pairs);
    return status;
}

AOTIRuntimeError aoticache_update_apply(aoticache_container *container, const AOTInductorConstantMapEntry *pairs,
                                        size_t num_pairs, unsigned flags, bool take)
{
    const unsigned both = AOTICACHE_UPDATE_FROM_CPU | AOTICACHE_UPDATE_USER_MANAGED;
    if (pairs == NULL && num_pairs > 0)
        return aoticache_message_set("update_constant_buffer: %zu pairs, but no list of them", num_pairs);
    if ((flags & both) == both)
        return aoticache_message_set("update_constant_buffer: allow_h2d_copy is not supported with user_managed");
    update_plan update = {.container = container, .flags = flags, .take = take};
    update.changes = calloc(container->kernel->num_constants + 1, sizeof *update.changes);
    if (update.changes == NULL)
        return aoticache_message_set("out of memory for %zu constants", container->kernel->num_constants);
    pthread_mutex_lock(&container->writers);
    AOTIRuntimeError status = apply_plan(&update, pairs, num_pairs);
    pthread_mutex_unlock(&container->writers);
    return status;
}

/* ---- all constants of the active buffer, from one blob in the host's memory ---- */

static AOTIRuntimeError create_blob_tensors(const aoticache_container *container, AtenTensorHandle *tensors)
{
    const aoticache_kernel *kernel = container->kernel;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        if (!constant->from_folded &&
            aoticache_buffer_slot_tensor(container, container->active, i, constant->strides, constant->storage_offset,
                                         &tensors[i]) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
    return AOTICACHE_KERNEL_OK;
}

/* Exchanges the tensors. The caller has taken all models. The old tensors are left in `tensors`. */
static AOTIRuntimeError exchange_all(aoticache_container *container, const uint8_t *weights, AtenTensorHandle *tensors)
{
    aoticache_buffer *buffer = container->active;
    buffer->state = AOTICACHE_BUFFER_INITIALIZED;
    if (container->blob_bytes > 0 &&
        container->device.functions->copy_in(buffer->blob, weights, container->blob_bytes) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    for (size_t i = 0; i < container->kernel->num_constants; i++) {
        AtenTensorHandle before = buffer->constants[i];
        if (tensors[i] == NULL)
            continue;
        buffer->constants[i] = tensors[i];
        tensors[i] = before;
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError replace_by_blob(aoticache_container *container, const uint8_t *weights,
                                        AtenTensorHandle *tensors)
{
    if (aoticache_buffer_need_blob(container, container->active) != AOTICACHE_KERNEL_OK ||
        create_blob_tensors(container, tensors) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    aoticache_pool_lock_all(container->pool);
    AOTIRuntimeError status = exchange_all(container, weights, tensors);
    aoticache_pool_unlock_all(container->pool);
    return status;
}

AOTIRuntimeError aoticache_update_from_blob(aoticache_container *container, const uint8_t *weights)
{
    size_t count = container->kernel->num_constants;
    if (weights == NULL)
        return aoticache_message_set("the blob of weights is NULL; expected %zu bytes", container->blob_bytes);
    AtenTensorHandle *tensors = calloc(count + 1, sizeof(AtenTensorHandle));
    if (tensors == NULL)
        return aoticache_message_set("out of memory for %zu constants", count);
    pthread_mutex_lock(&container->writers);
    AOTIRuntimeError status = replace_by_blob(container, weights, tensors);
    pthread_mutex_unlock(&container->writers);
    for (size_t i = 0; i < count; i++)
        if (tensors[i] != NULL)
            aoti_torch_delete_tensor_object(tensors[i]);
    free(tensors);
    return status;
}
