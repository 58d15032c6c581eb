/*
 * eager/package/package: .pt2 packages in the cache: stored once, loaded from there.
 *
 * The key of a model is made of the digest of the whole package file and the model's name, so a package that changed
 * is another one. Its library, weights and side files become objects; sources are left out. Loading extracts nothing
 * when the package is in the cache already, leaves no temporary files, and maps weights that have a file of their own
 * from the object, which processes share.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_PACKAGE_PACKAGE_H
#define AOTICACHE_EAGER_PACKAGE_PACKAGE_H

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
    bool added;         /* by this call; else it was there */
    bool stored;        /* false: it could not be, and runs from a temporary copy, gone with the runner */
    uint64_t bytes;     /* of all its files */
    uint64_t digest_ns; /* hashing the package */
    uint64_t add_ns;    /* reading, unpacking, storing; 0 where it was there */
    uint64_t load_ns;   /* lookup, library, container, weights */
} aoticache_package_report;

/* Return false to stop. */
typedef bool (*aoticache_package_fn)(void *user, const aoticache_package_report *report);

/*
 * Stores a model of a package (all where model is NULL); what is there already stays as it is. callback may be NULL.
 * What this machine cannot run is stored too, for others; where the cache cannot store, this fails (a load would go on).
 *
 * Requirements: a kernel library needs the CPU features that its compiler used; packages tell only the vector extensions
 * (AOTI_CPU_ISA), so the level of x86-64 that goes with them is required (docs/packages.md). requirements: replaces
 * that; may be NULL.
 *
 * Returns: OK, NOT_FOUND (no such file or model), INVALID, CORRUPT, UNSUPPORTED, DENIED, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_package_add(aoticache_cache *cache, const char *path, const char *model,
                                                     const aoticache_cpu_features *requirements,
                                                     aoticache_package_fn callback, void *user,
                                                     aoticache_error *ret_error);

typedef struct aoticache_package_options {
    size_t size;
    const char *model;  /* NULL: the only one, or, of several, the one called "model" */
    const char *device; /* NULL: what its metadata says ("cpu", "cuda") */
    size_t num_models;  /* 0: 1 */
    AOTIProxyExecutorHandle
        proxy_executor; /* of a process with PyTorch: PyTorch's; NULL: see aoticache_package_load() */
    /* A .safetensors file. Its tensors take the place of the model's constants whose FQN is their name; other constants keep
     * the package's values. NULL: the package's own weights. On the CPU they are used where they lie: in memory that the file
     * was read into, or (map_weights) in a mapping of the file, whose pages processes share. */
    const char *weights;
    bool map_weights; /* the caller answers for the file: one that is made shorter ends the process (SIGBUS) */
    /* Tensors of the file that are no constants of the model are left alone. false: they are an error, as in PyTorch: Inductor
     * writes numbers and short vectors among the weights into the code, and folds others, and no file changes those. */
    bool ignore_unknown_weights;
} aoticache_package_options;

#define AOTICACHE_PACKAGE_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_package_options)

/*
 * A runner for a model of the package at `path`, from the cache, where it is put if it is not there. options and
 * ret_report may be NULL. The counterpart of torch._inductor.aoti_load_package. Runs compare their inputs with what the package
 * says of them (docs/packages.md, "What inputs must be like").
 * In a process without PyTorch operators that the model calls by name are those of aoticache_dispatcher_get(), which must
 * be registered now and as long as the runner runs (docs/packages.md, "Operators of your own").
 * Returns: as aoticache_package_add(), and LOAD_FAILED; UNSUPPORTED also where this machine, CPU or device is not what
 * the model was compiled for (named), and for operators that have no kernel here, or arguments of theirs that are not
 * supported (all named). Of options.weights: NOT_FOUND, INVALID (not a .safetensors file; a tensor that is no constant of the
 * model, or has another dtype, size or stride: named, with both sides).
 */
AOTICACHE_API aoticache_status aoticache_package_load(aoticache_cache *cache, const char *path,
                                                      const aoticache_package_options *options,
                                                      aoticache_runner **ret_runner,
                                                      aoticache_package_report *ret_report, aoticache_error *ret_error);
/* The same by the key that add reported: the package file itself is neither needed nor hashed. NOT_FOUND. */
AOTICACHE_API aoticache_status aoticache_package_load_key(aoticache_cache *cache, const aoticache_key *key,
                                                          const aoticache_package_options *options,
                                                          aoticache_runner **ret_runner,
                                                          aoticache_package_report *ret_report,
                                                          aoticache_error *ret_error);

/*
 * The pairs of a stored model's metadata (the user's too), by the key that add or load reported: what
 * aoticache_package_list_metadata() tells of the package, without it. Two more are ours, if the package says it: the check that
 * every run's inputs must pass ("aoticache.inputs", docs/checks.md), and the positions of results that are numbers
 * ("aoticache.numbers").
 * Source: AOTIModelPackageLoader::get_metadata, torch/csrc/inductor/aoti_package/model_package_loader.h.
 * Returns: OK, also where the callback stopped; NOT_FOUND (ret_error is written, too); INVALID, CORRUPT, DENIED, IO,
 * LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_package_read_metadata(aoticache_cache *cache, const aoticache_key *key,
                                                               aoticache_metadata_fn callback, void *user,
                                                               aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
