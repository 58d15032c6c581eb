/*
 * eager/model/model: loads whole models from the cache, by the name under which they were stored or by their key.
 *
 * Two kinds of entries (docs/models-cache.md). "aoticache::program" is a compiled program without weights: its key is made
 * of the exported graph. "aoticache::model" is a program with its weights under a name. Its artifact is the program's
 * library, a list of tensors (weights.list) and files of weights. A tensor of 64 KiB or more is a separate object, so models
 * share the tensors that they have in common, and all processes share the pages of each.
 *
 * Entries are made by the Python package (aoticache.compile()) and by `aoticache model compile`.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_MODEL_MODEL_H
#define AOTICACHE_EAGER_MODEL_MODEL_H

#include "cache/cache.h"
#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_model_options {
    size_t size;
    /* A .safetensors file. Its tensors replace the stored ones of the same name. NULL: only the stored weights.
     * The file is read into memory of this process, or mapped if map_weights is set. */
    const char *weights;
    const char *framework; /* "pytorch 2.13.0": only models compiled by it. NULL: by any */
    const char *device;    /* "cpu", "cuda", "cuda:1"; NULL: the device that the model was compiled for */
    size_t num_models;     /* how many runs may be active concurrently; 0: 1 */
    AOTIProxyExecutorHandle
        proxy_executor; /* in a process with PyTorch: that of PyTorch. NULL: as for aoticache_package_load() */
    /* true: the caller sets weights that are neither stored nor in the file (aoticache_runner_update_constants()). false:
     * missing weights are an error. */
    bool partial_weights;
    /* The file of weights is mapped, not copied: processes share its pages, and nothing is read in advance. The caller must keep
     * the file unchanged while the runner lives. If the file is truncated, the process is killed (SIGBUS). */
    bool map_weights;
} aoticache_model_options;

#define AOTICACHE_MODEL_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_model_options)

typedef struct aoticache_model_report {
    aoticache_key key;
    char name[256];     /* of a named model; "" for a program */
    char framework[64]; /* the framework that compiled it */
    char device[32];
    size_t tensors;        /* constants in the list of weights */
    size_t missing;        /* included in tensors: those without a value (partial_weights) */
    uint64_t weight_bytes; /* of all tensors */
    uint64_t lookup_ns;    /* finding and verifying */
    uint64_t load_ns;      /* loading the library, creating the container */
    uint64_t weights_ns;   /* mapping weights and passing them to the library */
} aoticache_model_report;

/*
 * Creates a runner for a stored model.
 *
 * name_or_key: the name of a model; otherwise the key of a model or a program in hexadecimal, or its first digits (at least 8).
 *              If several entries have the name (from several versions of PyTorch), the one that was stored last is used.
 * options, ret_report: may be NULL.
 * On the CPU, weights are used directly from their mapping. A model that writes to its own buffer gets private pages for it.
 *
 * Returns: OK; NOT_FOUND (the message lists the existing names); INVALID (weights that do not fit: tensor and both sides are
 * named; not a .safetensors file; weights are missing: they are named); UNSUPPORTED (another architecture, CPU features or a
 * device that this machine lacks; operators without a kernel); CORRUPT; LOAD_FAILED; DENIED; IO; LOCKED; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_model_open(aoticache_cache *cache, const char *name_or_key,
                                                    const aoticache_model_options *options,
                                                    aoticache_runner **ret_runner, aoticache_model_report *ret_report,
                                                    aoticache_error *ret_error);
/*
 * Finds and verifies a stored model without loading it: the first half of aoticache_model_open(). Fills only key, name,
 * framework, device and lookup_ns of the report. Returns: as aoticache_model_open().
 */
AOTICACHE_API aoticache_status aoticache_model_lookup(aoticache_cache *cache, const char *name_or_key,
                                                      const aoticache_model_options *options,
                                                      aoticache_artifact **ret_artifact,
                                                      aoticache_model_report *ret_report, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
