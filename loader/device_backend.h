/*
 * loader/device_backend: kinds of devices by name. The public functions are in loader/runner/runner.h.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_DEVICE_BACKEND_H
#define AOTICACHE_LOADER_DEVICE_BACKEND_H

#include "loader/runner/runner.h"

/*
 * The backend for a device string, which lives as long as the process, and the index in the string, -1 without.
 * Returns: OK, INVALID (unknown, or no device string at all: those that are known are named).
 */
aoticache_status aoticache_device_backend_find(const char *device, const aoticache_device_backend **ret_backend,
                                               int32_t *ret_index, aoticache_error *ret_error);

#endif
