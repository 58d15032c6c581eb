/*
 * loader/runner/device_backend: the registry of kinds of devices. It is a list to which entries are only ever added, at
 * its head: removing sets a flag and frees nothing. So no lock is needed, runners may point into it, and a child after
 * a fork finds it intact.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"
#include "base/options.h"

#include "loader/cuda/cuda_internal.h"
#include "loader/runner/backend.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 32 };

typedef struct registration {
    aoticache_device_backend backend; /* its name points to the array below */
    char name[NAME_BYTES];
    atomic_bool active;
    struct registration *older;
} registration;

static _Atomic(registration *) newest;

static const aoticache_device_backend cpu_backend = {
    .size = sizeof cpu_backend, .name = "cpu", .device_type = AOTICACHE_DEVICE_TYPE_CPU};

/* Returns the built-in backend at position 0 or 1, NULL for other positions. */
static const aoticache_device_backend *builtin(size_t position)
{
    return position == 0 ? &cpu_backend : position == 1 ? aoticache_cuda_backend() : NULL;
}

static registration *find_registered(const char *name)
{
    registration *one = atomic_load_explicit(&newest, memory_order_acquire);
    while (one != NULL && (!atomic_load_explicit(&one->active, memory_order_acquire) || strcmp(one->name, name) != 0))
        one = one->older;
    return one;
}

static const aoticache_device_backend *find_backend(const char *name)
{
    const registration *registered = find_registered(name);
    if (registered != NULL)
        return &registered->backend;
    const aoticache_device_backend *backend;
    for (size_t i = 0; (backend = builtin(i)) != NULL; i++)
        if (strcmp(backend->name, name) == 0)
            return backend;
    return NULL;
}

/* Lists the known devices: "cpu", "cuda", then those that callers registered, each once. */
static void format_known(char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; builtin(i) != NULL && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s\"%s\"", i > 0 ? ", " : "", builtin(i)->name);
    for (registration *one = atomic_load_explicit(&newest, memory_order_acquire); one != NULL && used < size;
         one = one->older)
        if (find_backend(one->name) == &one->backend && strcmp(one->name, "cpu") != 0 && strcmp(one->name, "cuda") != 0)
            used += (size_t)snprintf(ret_text + used, size - used, ", \"%s\"", one->name);
}

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t length = strspn(name, allowed);
    return length > 0 && length < NAME_BYTES && name[length] == '\0';
}

/* Splits "cuda:1" into its name and index. An index has up to four digits. */
static bool split_device(const char *device, char ret_name[NAME_BYTES], int32_t *ret_index)
{
    size_t length = strcspn(device, ":");
    if (length >= NAME_BYTES)
        return false;
    memcpy(ret_name, device, length);
    ret_name[length] = '\0';
    *ret_index = -1;
    if (device[length] == ':') {
        const char *digits = device + length + 1;
        size_t count = strspn(digits, "0123456789");
        if (count == 0 || count > 4 || digits[count] != '\0')
            return false;
        *ret_index = atoi(digits);
    }
    return is_name(ret_name);
}

aoticache_status aoticache_device_backend_find(const char *device, const aoticache_device_backend **ret_backend,
                                               int32_t *ret_index, aoticache_error *ret_error)
{
    char name[NAME_BYTES], known[256];
    int32_t index;
    const aoticache_device_backend *backend = split_device(device, name, &index) ? find_backend(name) : NULL;
    if (backend == NULL) {
        format_known(known, sizeof known);
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "unknown device \"%.40s\"; known are %s", device,
                                   known);
    }
    *ret_backend = backend;
    *ret_index = index;
    return AOTICACHE_OK;
}

static aoticache_status read_backend(const aoticache_device_backend *backend, aoticache_device_backend *ret_backend,
                                     aoticache_error *ret_error)
{
    if (backend == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_device_backend_register", ret_error, backend);
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_device_backend, AOTICACHE_DEVICE_BACKEND_INIT, backend,
                                                     ret_backend, ret_error);
    if (status == AOTICACHE_OK && (ret_backend->name == NULL || !is_name(ret_backend->name)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "\"%.40s\" is not a valid device name: use letters, digits and '_', at most %d",
                                   ret_backend->name != NULL ? ret_backend->name : "", NAME_BYTES - 1);
    return status;
}

aoticache_status aoticache_device_backend_register(const aoticache_device_backend *backend, aoticache_error *ret_error)
{
    aoticache_device_backend known;
    aoticache_status status = read_backend(backend, &known, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    registration *one = calloc(1, sizeof *one);
    if (one == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for device backend \"%s\"",
                                   known.name);
    one->backend = known;
    memcpy(one->name, known.name, strlen(known.name) + 1);
    one->backend.name = one->name;
    atomic_init(&one->active, true);
    one->older = atomic_load_explicit(&newest, memory_order_relaxed);
    while (
        !atomic_compare_exchange_weak_explicit(&newest, &one->older, one, memory_order_acq_rel, memory_order_relaxed))
        continue;
    return AOTICACHE_OK;
}

aoticache_status aoticache_device_backend_unregister(const char *name, aoticache_error *ret_error)
{
    if (name == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, name);
    registration *one;
    while ((one = find_registered(name)) != NULL)
        if (atomic_exchange_explicit(&one->active, false, memory_order_acq_rel))
            return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "no device backend \"%.40s\" is registered", name);
}
