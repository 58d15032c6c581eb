/*
 * loader/eager_face: the functions of libraries, GPUs, checks, runners and packages that eager/ uses beyond the public headers.
 *
 * Private to loader/ and eager/.
 */
#ifndef AOTICACHE_LOADER_EAGER_FACE_H
#define AOTICACHE_LOADER_EAGER_FACE_H

#include "loader/check/check.h"
#include "loader/cuda/cuda.h"
#include "loader/loader.h"
#include "loader/package/package.h"
#include "loader/runner/runner.h"

/*
 * Checks what a kernel library's file needs in every process: that it is an ELF shared library for the machine, and
 * that it exports the functions that every host needs. aoticache_library_load_fd() checks this too, and also what this
 * process lacks.
 *
 * other_arch: NULL: the library is for this machine; otherwise the name of another machine, such as "aarch64".
 * Returns: OK, INVALID (not an ELF shared library, or a truncated one), UNSUPPORTED (for another machine, or functions
 * are missing: all are named), IO, NO_MEMORY.
 */
aoticache_status aoticache_library_check_fd(int fd, const char *other_arch, aoticache_error *ret_error);

/*
 * Reads the properties of one GPU. index: -1 for the first.
 * Returns: OK; NOT_FOUND, with a message (no driver; no such device: the message has the number of devices);
 * UNSUPPORTED (the driver does not work, or cannot read this device); INVALID; NO_MEMORY.
 */
aoticache_status aoticache_cuda_device_read(int32_t index, aoticache_cuda_device *ret_device,
                                            aoticache_error *ret_error);

/*
 * Orders checks from special to general: negative if `a` comes before `b`, positive if it comes after, 0 if they are
 * equally special. Exact comes before symbolic before free, dependent symbols come before independent ones, narrow
 * ranges before wide ones. The order is a total preorder, fit for sorting.
 */
int aoticache_check_compare(const aoticache_check *a, const aoticache_check *b);

size_t aoticache_check_num_tensors(const aoticache_check *check);

/*
 * Attaches an owner, such as what the library was loaded from: the last unref calls release(owner) once, after the
 * container is gone and the library has been unloaded. A runner has one owner at most. On failure nothing is attached,
 * and release is not called.
 * Returns: OK, INVALID (NULL, or the runner has an owner already).
 */
aoticache_status aoticache_runner_attach(aoticache_runner *runner, void *owner, void (*release)(void *owner),
                                         aoticache_error *ret_error);

/*
 * Finds a model of a package by its name. name: NULL for the only model, or, if there are several, for the one called
 * "model", which is PyTorch's default name.
 * Returns: OK, NOT_FOUND (the message lists the models).
 */
aoticache_status aoticache_package_find_model(const aoticache_package *package, const char *name,
                                              const aoticache_package_model **ret_model, aoticache_error *ret_error);

#endif
