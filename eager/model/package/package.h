/*
 * eager/model/package/package: stores .pt2 packages in the cache, and loads them from there.
 *
 * The key of a model consists of the digest of the whole package file and the model's name, so a package that changed is a
 * different one. Its library, weights and side files become objects; sources are left out. If the package is in the cache,
 * loading extracts nothing. Loading leaves no temporary files. Weights that have their own file are mapped from the object,
 * so processes share their pages.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_EAGER_MODEL_PACKAGE_PACKAGE_H
#define AOTICACHE_EAGER_MODEL_PACKAGE_PACKAGE_H

#include "cache/cache.h"
#include "loader/package/package.h"
#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_package_report {
    aoticache_key key;
    char model[256];
    char device[32];
    bool added;         /* true: stored by this call; false: it was in the cache already */
    bool stored;        /* false: it could not be, and runs from a temporary copy, deleted with the runner */
    uint64_t bytes;     /* of all its files */
    uint64_t digest_ns; /* hashing the package */
    uint64_t add_ns;    /* reading, unpacking, storing; 0 if it was in the cache */
    uint64_t load_ns;   /* lookup, library, container, weights */
} aoticache_package_report;

/* Return false to stop. */
typedef bool (*aoticache_package_fn)(void *user, const aoticache_package_report *report);

/*
 * Stores a model of a package, or all models if model is NULL. Models that are in the cache already are left unchanged.
 * callback may be NULL. Models that this machine cannot run are stored too, for other machines. If the cache cannot store,
 * this function fails (a load would continue).
 *
 * Requirements: a kernel library needs the CPU features that its compiler used. Packages name only the vector extensions
 * (AOTI_CPU_ISA), so the x86-64 level that goes with them is required (docs/packages.md). requirements: used instead of
 * that level; may be NULL.
 *
 * Returns: OK, NOT_FOUND (no such file or model), INVALID, CORRUPT, UNSUPPORTED, DENIED, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_package_add(aoticache_cache *cache, const char *path, const char *model,
                                                     const aoticache_cpu_features *requirements,
                                                     aoticache_package_fn callback, void *user,
                                                     aoticache_error *ret_error);

typedef struct aoticache_package_options {
    size_t size;
    const char *model;  /* NULL: the only one or, if there are several, the one named "model" */
    const char *device; /* NULL: that of its metadata ("cpu", "cuda") */
    size_t num_models;  /* 0: 1 */
    AOTIProxyExecutorHandle
        proxy_executor; /* in a process with PyTorch: that of PyTorch; NULL: see aoticache_package_load() */
    /* A .safetensors file. Its tensors replace the model's constants whose FQN is their name; other constants keep the
     * package's values. NULL: the package's own weights. On the CPU the tensors are used without a copy: from the memory that
     * the file was read into, or (map_weights) from a mapping of the file, whose pages processes share. */
    const char *weights;
    bool map_weights; /* the caller must keep the file unchanged: if it is truncated, the process is killed (SIGBUS) */
    /* true: tensors of the file that are not constants of the model are ignored. false: they are an error, as in PyTorch:
     * Inductor writes numbers and short vectors among the weights into the code and folds others, and no file changes those. */
    bool ignore_unknown_weights;
} aoticache_package_options;

#define AOTICACHE_PACKAGE_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_package_options)

/*
 * Creates a runner for a model of the package at `path`. The model is loaded from the cache, and stored there first if it is
 * missing. options and ret_report may be NULL. The counterpart of torch._inductor.aoti_load_package. Runs compare their inputs
 * with the package's description of them (docs/packages.md, "What inputs must be like").
 * In a process without PyTorch, operators that the model calls by name are those of aoticache_dispatcher_get(). They must be
 * registered before this call and as long as the runner is used (docs/packages.md, "Operators of your own").
 * Returns: as aoticache_package_add(), and LOAD_FAILED; UNSUPPORTED also if the model was not compiled for this machine, CPU or
 * device (named), and for operators that have no kernel here or whose arguments are not supported (all named). For
 * options.weights: NOT_FOUND, INVALID (not a .safetensors file; a tensor that is not a constant of the model, or has another
 * dtype, size or stride: named, with both sides).
 */
AOTICACHE_API aoticache_status aoticache_package_load(aoticache_cache *cache, const char *path,
                                                      const aoticache_package_options *options,
                                                      aoticache_runner **ret_runner,
                                                      aoticache_package_report *ret_report, aoticache_error *ret_error);
/* Does the same by the key that aoticache_package_add() reported; the package file is neither needed nor hashed.
 * Returns also NOT_FOUND. */
AOTICACHE_API aoticache_status aoticache_package_load_key(aoticache_cache *cache, const aoticache_key *key,
                                                          const aoticache_package_options *options,
                                                          aoticache_runner **ret_runner,
                                                          aoticache_package_report *ret_report,
                                                          aoticache_error *ret_error);

/*
 * Lists the pairs of a stored model's metadata (also the user's), by the key that adding or loading it reported. They
 * are the pairs that aoticache_package_list_metadata() lists, but the package file is not needed. Up to two pairs are
 * added, if the package has that information: the check that the inputs of every run must pass ("aoticache.inputs",
 * docs/formats/checks.md), and the positions of results that are numbers ("aoticache.numbers").
 * Source: AOTIModelPackageLoader::get_metadata, torch/csrc/inductor/aoti_package/model_package_loader.h.
 * Returns: OK, also if the callback stopped; NOT_FOUND (ret_error is written, too); INVALID, CORRUPT, DENIED, IO, LOCKED,
 * NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_package_read_metadata(aoticache_cache *cache, const aoticache_key *key,
                                                               aoticache_metadata_fn callback, void *user,
                                                               aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
