/*
 * eager/dispatch/key_parse: parses dispatch keys: their names, and names of devices. Unknown names are refused, and the nearest
 * known name is suggested.
 */
#include "base/arguments.h"
#include "base/text/name_distance.h"
#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/keys.h"

#include <string.h>

#define IN_LIST(name, number) [number] = true,
#define IN_BLOCK(name, backend, first, parsed) [(first) + 1 + (backend)] = ((parsed) >> (backend) & 1) != 0,
#define BLOCK_IN_LIST(functionality, number, prefix, first, parsed, a) \
    AOTICACHE_DISPATCH_BACKEND_LIST(IN_BLOCK, first, parsed)

/* Keys that PyTorch accepts by name. */
static const bool is_parsed[AOTICACHE_DISPATCH_KEY_COUNT] = {AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(
    IN_LIST) AOTICACHE_DISPATCH_BLOCK_LIST(BLOCK_IN_LIST, unused) AOTICACHE_DISPATCH_ALIAS_LIST(IN_LIST)};

/* Finds the nearest name, ignoring case; NULL if none is near. */
static const char *nearest_name(const char *name)
{
    size_t least = strnlen(name, AOTICACHE_NAME_DISTANCE_LONGEST) / 3 + 1;
    const char *nearest = NULL;
    for (int32_t key = 0; key < AOTICACHE_DISPATCH_KEY_COUNT; key++) {
        const char *candidate = aoticache_dispatch_key_name(key);
        size_t found = is_parsed[key] ? aoticache_name_distance(name, candidate, least, true) : SIZE_MAX;
        if (found < least) {
            least = found;
            nearest = candidate;
        }
    }
    return nearest;
}

#define SHOWN_BYTES 64

/* Copies the beginning of a text in printable ASCII, for messages of one line. */
static void make_printable(const char *text, char ret_shown[SHOWN_BYTES + 4])
{
    size_t length = strnlen(text, SHOWN_BYTES + 1), shown = length > SHOWN_BYTES ? SHOWN_BYTES : length;
    for (size_t i = 0; i < shown; i++)
        ret_shown[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    memcpy(ret_shown + shown, length > shown ? "..." : "", length > shown ? 4 : 1);
}

static aoticache_status refuse_key(const char *name, bool is_key, aoticache_error *ret_error)
{
    const char *nearest = nearest_name(name);
    char shown[SHOWN_BYTES + 4];
    make_printable(name, shown);
    if (is_key)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "dispatch key %s: PyTorch accepts no kernels for it",
                                   shown);
    if (nearest == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "unknown dispatch key '%s'", shown);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "unknown dispatch key '%s'; did you mean %s?", shown,
                               nearest);
}

aoticache_status aoticache_dispatch_key_parse(const char *name, aoticache_dispatch_key *ret_key,
                                              aoticache_error *ret_error)
{
    if (name == NULL || ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, name, ret_key);
    bool is_key = false;
    for (int32_t key = 0; key < AOTICACHE_DISPATCH_KEY_COUNT; key++) {
        if (strcmp(aoticache_dispatch_key_name(key), name) != 0)
            continue;
        if (is_parsed[key]) {
            *ret_key = key;
            return AOTICACHE_OK;
        }
        is_key = is_key || aoticache_dispatch_key_is_runtime(key);
    }
    return refuse_key(name, is_key, ret_error);
}

struct device_key {
    const char *device;
    aoticache_dispatch_key key;
};

/* Every device that PyTorch reads from text; those that were Caffe2's have no key. */
static const struct device_key devices[] = {
    {"cpu", AOTICACHE_DISPATCH_KEY_CPU},
    {"cuda", AOTICACHE_DISPATCH_KEY_CUDA},
    {"hip", AOTICACHE_DISPATCH_KEY_HIP},
    {"xla", AOTICACHE_DISPATCH_KEY_XLA},
    {"mps", AOTICACHE_DISPATCH_KEY_MPS},
    {"ipu", AOTICACHE_DISPATCH_KEY_IPU},
    {"xpu", AOTICACHE_DISPATCH_KEY_XPU},
    {"hpu", AOTICACHE_DISPATCH_KEY_HPU},
    {"ve", AOTICACHE_DISPATCH_KEY_VE},
    {"lazy", AOTICACHE_DISPATCH_KEY_Lazy},
    {"meta", AOTICACHE_DISPATCH_KEY_Meta},
    {"mtia", AOTICACHE_DISPATCH_KEY_MTIA},
    {"maia", AOTICACHE_DISPATCH_KEY_MAIA},
    {"privateuseone", AOTICACHE_DISPATCH_KEY_PrivateUse1},
    {"fpga", AOTICACHE_DISPATCH_KEY_FPGA},
    {"vulkan", AOTICACHE_DISPATCH_KEY_Vulkan},
    {"mkldnn", AOTICACHE_DISPATCH_KEY_Undefined},
    {"opengl", AOTICACHE_DISPATCH_KEY_Undefined},
    {"opencl", AOTICACHE_DISPATCH_KEY_Undefined},
    {"ideep", AOTICACHE_DISPATCH_KEY_Undefined},
};

aoticache_status aoticache_dispatch_key_for_device(const char *device, aoticache_dispatch_key *ret_key,
                                                   aoticache_error *ret_error)
{
    if (device == NULL || ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, device, ret_key);
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        if (strcmp(devices[i].device, device) != 0)
            continue;
        if (devices[i].key == AOTICACHE_DISPATCH_KEY_Undefined)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "device type %s has no dispatch key", device);
        *ret_key = devices[i].key;
        return AOTICACHE_OK;
    }
    char shown[SHOWN_BYTES + 4];
    make_printable(device, shown);
    if (strchr(device, ':') != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "device type '%s': expected one without an index, such as \"cuda\"", shown);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "device type '%s': expected one of cpu, cuda, xpu, mps, meta, privateuseone, hip, "
                               "xla, ipu, hpu, ve, lazy, mtia, maia, fpga, vulkan",
                               shown);
}
