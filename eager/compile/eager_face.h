/*
 * eager/compile/eager_face: functions of compile hooks that other subdirectories of eager/ need in addition to compile.h.
 *
 * Private to eager/. torch/ also uses process.h.
 */
#ifndef AOTICACHE_EAGER_COMPILE_EAGER_FACE_H
#define AOTICACHE_EAGER_COMPILE_EAGER_FACE_H

#include "eager/compile/compile.h"

/*
 * Sets "gpu_arch" of a request for a CUDA device to the architecture of its device, unless it is set already (by a caller
 * that asks for a GPU of another machine). Machine code for a GPU depends on the architecture; without this pair, machines
 * with different GPUs would share keys. Part of aoticache_hook_set_environment(); call it for requests that no hook
 * completes.
 * Returns: OK, UNSUPPORTED (no such device here), NO_MEMORY.
 */
aoticache_status aoticache_hook_set_gpu_arch(aoticache_request *request, aoticache_error *ret_error);

/* Increased whenever the worker generates different code for the same request; part of the pair "worker" (worker.c). */
#define AOTICACHE_WORKER_REVISION "3"

/* Returns whether the hook compiles dynamic libraries (docs/hooks.md). The worker does, and callbacks with `dynamic`. */
bool aoticache_hook_is_dynamic(const aoticache_hook *hook);

/* Returns whether the hook compiles libraries that take numbers at run time ("numbers", docs/hooks.md). Likewise. */
bool aoticache_hook_takes_numbers(const aoticache_hook *hook);

#endif
