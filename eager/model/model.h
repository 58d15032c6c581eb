/*
 * eager/model/model: whole models from the cache, by the name that they were stored under or by their key.
 *
 * Two kinds of entries (docs/models-cache.md). "aoticache::program" is a compiled program without weights: its key is made
 * of the exported graph. "aoticache::model" is a program with its weights under a name. Its artifact is the program's
 * library, a list of tensors (weights.list) and files of weights. A tensor of 64 KiB or more is an object of its own, so models
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
    /* A .safetensors file. Its tensors take the place of the stored ones of the same name. NULL: the stored weights alone.
     * The file is read into memory of this process (map_weights: mapped). */
    const char *weights;
    const char *framework; /* "pytorch 2.13.0": only what was compiled by it. NULL: by any */
    const char *device;    /* "cpu", "cuda", "cuda:1"; NULL: what the model was compiled for */
    size_t num_models;     /* how many runs may be under way at once; 0: 1 */
    AOTIProxyExecutorHandle
        proxy_executor; /* of a process with PyTorch: PyTorch's. NULL: as aoticache_package_load() */
    /* Weights that are neither stored nor in the file are left to the caller (aoticache_runner_update_constants()). false:
     * they are an error. */
    bool partial_weights;
    /* The file of weights is mapped, not copied: processes share its pages, and nothing is read ahead. The caller answers for
     * the file: it stays as it is while the runner lives. One that is made shorter ends the process (SIGBUS). */
    bool map_weights;
} aoticache_model_options;

#define AOTICACHE_MODEL_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_model_options)

typedef struct aoticache_model_report {
    aoticache_key key;
    char name[256];     /* of a named model; "" of a program */
    char framework[64]; /* what compiled it */
    char device[32];
    size_t tensors;        /* constants that the list of weights has */
    size_t missing;        /* of these, without a value (partial_weights) */
    uint64_t weight_bytes; /* of all tensors */
    uint64_t lookup_ns;    /* finding and verifying */
    uint64_t load_ns;      /* library, container */
    uint64_t weights_ns;   /* mapping weights and handing them over */
} aoticache_model_report;

/*
 * A runner for a stored model.
 *
 * name_or_key: the name of a model; else the key of a model or a program in hexadecimal, or its first digits (8 at least).
 *              Of several entries of one name (of several versions of PyTorch) the one that was stored last.
 * options, ret_report: may be NULL.
 * On the CPU weights are used where they are mapped. A model that writes to a buffer of its own gets private pages for it.
 *
 * Returns: OK; NOT_FOUND (the message lists the names that there are); INVALID (weights that do not fit: tensor and both
 * sides are named; not a .safetensors file; weights are missing: they are named); UNSUPPORTED (another architecture, CPU
 * features that this machine lacks, a device; operators without a kernel); CORRUPT; LOAD_FAILED; DENIED; IO; LOCKED; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_model_open(aoticache_cache *cache, const char *name_or_key,
                                                    const aoticache_model_options *options,
                                                    aoticache_runner **ret_runner, aoticache_model_report *ret_report,
                                                    aoticache_error *ret_error);
/*
 * Finds and verifies a stored model, without loading it: the first half of aoticache_model_open(). Of the report key, name,
 * framework, device and lookup_ns are filled. Returns: as there.
 */
AOTICACHE_API aoticache_status aoticache_model_lookup(aoticache_cache *cache, const char *name_or_key,
                                                      const aoticache_model_options *options,
                                                      aoticache_artifact **ret_artifact,
                                                      aoticache_model_report *ret_report, aoticache_error *ret_error);
/*
 * The other half: a runner from an artifact that the caller holds, found or just compiled. Its descriptors are closed.
 * name: for messages. Key, name and framework of the report stay as they are.
 */
AOTICACHE_API aoticache_status aoticache_model_open_artifact(aoticache_cache *cache, aoticache_artifact *artifact,
                                                             const char *name, const aoticache_model_options *options,
                                                             aoticache_runner **ret_runner,
                                                             aoticache_model_report *report,
                                                             aoticache_error *ret_error);

/* One constant of a stored model. Pointers are borrowed during the callback. */
typedef struct aoticache_model_tensor {
    const char *name;
    int32_t dtype;
    int64_t ndim;
    const int64_t *sizes, *strides; /* in elements */
    uint64_t bytes;                 /* from its first element to its last */
    bool is_stored;                 /* false: the caller has to bring it */
} aoticache_model_tensor;

/* Return false to stop. */
typedef bool (*aoticache_model_tensor_fn)(void *user, const aoticache_model_tensor *tensor);

/* Lists the constants of a stored model or program. Returns: as aoticache_model_open(). */
AOTICACHE_API aoticache_status aoticache_model_list_tensors(aoticache_cache *cache, const char *name_or_key,
                                                            aoticache_model_tensor_fn callback, void *user,
                                                            aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
