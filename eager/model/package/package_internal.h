/*
 * eager/model/package/package_internal: shared by storing and loading packages: the package file and its digest, the request
 * for one of its models, the requirements of its code, and storing a model in the cache.
 *
 * Private to package/. model_face.h has what model/ uses.
 */
#ifndef AOTICACHE_EAGER_MODEL_PACKAGE_INTERNAL_H
#define AOTICACHE_EAGER_MODEL_PACKAGE_INTERNAL_H

#include <sys/stat.h>

#include "eager/model/package/executor.h"
#include "eager/model/package/model_face.h"
#include "eager/model/package/package.h"
#include "loader/package/package.h"

#define AOTICACHE_PACKAGE_OP "aoticache::package"

/* A package file. It is hashed when it is opened, and read as an archive only when its models are needed. */
typedef struct aoticache_package_source {
    const char *path; /* borrowed */
    int fd;
    struct stat found; /* to detect changes of the file */
    char digest[AOTICACHE_DIGEST_HEX_BYTES];
    uint64_t digest_ns;
    aoticache_package *package; /* NULL until aoticache_package_source_read() */
} aoticache_package_source;

/*
 * Opens and hashes a package. Returns: OK, NOT_FOUND (no such file, with a message), INVALID (not a regular file), DENIED, IO,
 * NO_MEMORY.
 */
aoticache_status aoticache_package_source_open(aoticache_cache *cache, const char *path,
                                               aoticache_package_source *ret_source, aoticache_error *ret_error);
void aoticache_package_source_close(aoticache_package_source *source);
/* Reads the archive's directory, unless it was read before. Returns: as aoticache_package_open_fd(). */
aoticache_status aoticache_package_source_read(aoticache_package_source *source, aoticache_error *ret_error);
/* Returns IO if the file has changed since it was hashed. */
aoticache_status aoticache_package_source_check(const aoticache_package_source *source, aoticache_error *ret_error);

/*
 * Creates the request for this model of the package with this digest (hexadecimal), on a kind of device.
 * machine: "" for this one. Returns: OK, INVALID, NO_MEMORY.
 */
aoticache_status aoticache_package_request_create(const char *digest, const char *model, int32_t device_type,
                                                  const char *machine, aoticache_request **ret_request,
                                                  aoticache_error *ret_error);
/* Creates the request of a model; UNSUPPORTED for an unknown kind of device. */
aoticache_status aoticache_package_request_of(const aoticache_package_source *source,
                                              const aoticache_package_model *model, aoticache_request **ret_request,
                                              aoticache_error *ret_error);

/* Formats a model's metadata as one line of JSON; the caller frees it with free(). NULL: it has none, or out of memory. */
char *aoticache_package_metadata_format(const aoticache_package_source *source, const aoticache_package_model *model);

/* ---- inputs.c ---- */

/* Names of metadata that we add: the check that inputs must pass, and the positions of results that are numbers ("1,4"). */
#define AOTICACHE_PACKAGE_INPUTS "aoticache.inputs"
#define AOTICACHE_PACKAGE_NUMBERS "aoticache.numbers"

/*
 * Returns the check that a model's inputs must pass, as text that the caller frees with free(); NULL: the package lacks the
 * source of its wrapper, or that contains something unknown. ret_numbers: the second of the metadata above.
 */
char *aoticache_package_describe_inputs(const aoticache_package_source *source, const aoticache_package_model *model,
                                        char *ret_numbers, size_t size);

/* Does the same for the source's text, which is modified. */
char *aoticache_package_inputs_parse(char *text, char *ret_numbers, size_t size);

/* Returns whether the model's code is for this machine's architecture. */
bool aoticache_package_is_for_this_machine(const aoticache_package_model *model);
/*
 * Returns the CPU features that the code of a model requires (docs/packages.md has the table). None for another architecture.
 * Returns: OK, UNSUPPORTED (an unknown word).
 */
aoticache_status aoticache_package_requirements(const aoticache_package_model *model,
                                                aoticache_cpu_features *ret_requirements, aoticache_error *ret_error);

/* Gets the model from the cache; unpacks and stores it if it is missing. report: everything except load_ns is filled in. */
aoticache_status aoticache_package_obtain(aoticache_cache *cache, aoticache_package_source *source,
                                          const aoticache_package_model *model, const aoticache_request *request,
                                          const aoticache_cpu_features *requirements, aoticache_artifact **ret_artifact,
                                          aoticache_package_report *report, aoticache_error *ret_error);
/* Fills in key, model and device of the report from the request. Returns: OK, NO_MEMORY, UNSUPPORTED. */
aoticache_status aoticache_package_report_begin(const aoticache_request *request, aoticache_package_report *report,
                                                aoticache_error *ret_error);
/* Fills in stored, added and bytes of the report from the artifact. */
void aoticache_package_report_artifact(const aoticache_artifact *artifact, aoticache_package_report *report);

/* ---- loading ---- */

/* Reads the caller's options; NULL gives the defaults. Returns: OK, INVALID. */
aoticache_status aoticache_package_read_options(const aoticache_package_options *options,
                                                aoticache_package_options *ret_options, aoticache_error *ret_error);
/* Looks up a request and fills in the report. Returns: as aoticache_cache_lookup(). */
aoticache_status aoticache_package_look_up(aoticache_cache *cache, const aoticache_request *request,
                                           aoticache_artifact **ret_artifact, aoticache_package_report *report,
                                           aoticache_error *ret_error);
/* Returns UNSUPPORTED, with the features that this CPU lacks. */
aoticache_status aoticache_package_refuse_cpu(const char *where, const char *model,
                                              const aoticache_cpu_features *requirements, aoticache_error *ret_error);

/*
 * Makes the runner compare its inputs with the package's description of them, if there is one.
 * Returns: OK, NO_MEMORY, INVALID (the stored check cannot be read).
 */
aoticache_status aoticache_package_expect_inputs(aoticache_cache *cache, const aoticache_artifact *artifact,
                                                 aoticache_runner *runner, aoticache_error *ret_error);

/* ---- weights_override.c: weights from a .safetensors file ---- */

typedef struct aoticache_package_given aoticache_package_given;

/*
 * Opens options->weights and passes its tensors to the runner, which must not run meanwhile, and must be freed before the file
 * is closed.
 * Returns: as aoticache_safetensors_open() and aoticache_runner_update_constants(); INVALID for a tensor that is not a constant
 * or, if these are to be ignored, if no tensor is a constant.
 */
aoticache_status aoticache_package_given_open(const aoticache_package_options *options, aoticache_runner *runner,
                                              aoticache_package_given **ret_given, aoticache_error *ret_error);
/* Closes the file. NULL is allowed. */
void aoticache_package_given_close(aoticache_package_given *given);

/* ---- executor.c ---- */

/*
 * Creates the executor for operators that the model calls by name (executor.h). NULL: the library calls none, there is no such
 * file next to it, or the process has PyTorch. name: for messages.
 * Returns: as aoticache_executor_create(), and IO, DENIED.
 */
aoticache_status aoticache_package_executor_open(const aoticache_artifact *artifact, const char *name,
                                                 aoticache_executor **ret_executor, aoticache_error *ret_error);

/* ---- weights.c: weights of a package that are in a separate file, as the constants of a runner ---- */

typedef struct aoticache_package_weights {
    void *bytes; /* the mapped file; NULL if there is none */
    size_t size;
    AtenTensorHandle *tensors; /* for the mapping: the constants of the runner */
    size_t tensor_count;
} aoticache_package_weights;

/* Maps the weights next to the library. Returns: OK (also if there are none), UNSUPPORTED (two files), IO, DENIED. */
aoticache_status aoticache_package_weights_map(const aoticache_artifact *artifact,
                                               aoticache_package_weights *ret_weights, aoticache_error *ret_error);
/*
 * Passes the tensors to the runner, before its first run. The runner uses them as long as it exists.
 * Returns: as aoticache_runner_update_constants_from_blob().
 */
aoticache_status aoticache_package_weights_give(aoticache_package_weights *weights, aoticache_runner *runner,
                                                aoticache_error *ret_error);
/* Unmaps the weights, after the runner was freed. */
void aoticache_package_weights_unmap(aoticache_package_weights *weights);

#endif
