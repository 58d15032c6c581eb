/*
 * eager/package/internal: what storing and loading packages share: the package file and its digest, the request that a
 * model of it stands for, what its code requires, and the way of a model into the cache.
 *
 * Private to package/.
 */
#ifndef AOTICACHE_EAGER_PACKAGE_INTERNAL_H
#define AOTICACHE_EAGER_PACKAGE_INTERNAL_H

#include <sys/stat.h>

#include "eager/package/executor.h"
#include "eager/package/package.h"
#include "loader/package/package.h"

#define AOTICACHE_PACKAGE_OP "aoticache::package"

/* A package file. It is hashed when it is opened, and read as an archive only when somebody asks for its models. */
typedef struct aoticache_package_source {
    const char *path; /* borrowed */
    int fd;
    struct stat found; /* to notice that the file changes meanwhile */
    char digest[AOTICACHE_DIGEST_HEX_BYTES];
    uint64_t digest_ns;
    aoticache_package *package; /* NULL until aoticache_package_source_read() */
} aoticache_package_source;

/* Returns: OK, NOT_FOUND (no such file, with a message), INVALID (not a regular file), DENIED, IO, NO_MEMORY. */
aoticache_status aoticache_package_source_open(aoticache_cache *cache, const char *path,
                                               aoticache_package_source *ret_source, aoticache_error *ret_error);
void aoticache_package_source_close(aoticache_package_source *source);
/* Reads the archive's directory, unless that was done. Returns: as aoticache_package_open_fd(). */
aoticache_status aoticache_package_source_read(aoticache_package_source *source, aoticache_error *ret_error);
/* IO where the file is not as it was when it was hashed. */
aoticache_status aoticache_package_source_check(const aoticache_package_source *source, aoticache_error *ret_error);

/*
 * What is asked for: this model of the package of this digest (hexadecimal), on a kind of device.
 * machine: "" for this one. Returns: OK, INVALID, NO_MEMORY.
 */
aoticache_status aoticache_package_request_create(const char *digest, const char *model, int32_t device_type,
                                                  const char *machine, aoticache_request **ret_request,
                                                  aoticache_error *ret_error);
/* The request of a model; UNSUPPORTED for a kind of device that is not known. */
aoticache_status aoticache_package_request_of(const aoticache_package_source *source,
                                              const aoticache_package_model *model, aoticache_request **ret_request,
                                              aoticache_error *ret_error);

/* A model's metadata as one line of JSON; the caller's, by free(). NULL: it has none, or there is no memory. */
char *aoticache_package_metadata_format(const aoticache_package_source *source, const aoticache_package_model *model);

/* ---- inputs.c ---- */

/* The metadata that are ours: the check that inputs must pass, and the positions of results that are numbers ("1,4"). */
#define AOTICACHE_PACKAGE_INPUTS "aoticache.inputs"
#define AOTICACHE_PACKAGE_NUMBERS "aoticache.numbers"

/*
 * Returns the check that a model's inputs must pass, as text that the caller frees with free(); NULL: the package does not have
 * the source of its wrapper, or that says something unknown. ret_numbers: the second of the metadata above.
 */
char *aoticache_package_describe_inputs(const aoticache_package_source *source, const aoticache_package_model *model,
                                        char *ret_numbers, size_t size);

/* The same of the source's text, which is changed. */
char *aoticache_package_inputs_parse(char *text, char *ret_numbers, size_t size);

/* Whether the model's code is for this machine's architecture. */
bool aoticache_package_is_for_this_machine(const aoticache_package_model *model);
/*
 * What the code of a model requires of the CPU (docs/packages.md has the table). Nothing for another architecture.
 * Returns: OK, UNSUPPORTED (a word that is not known).
 */
aoticache_status aoticache_package_requirements(const aoticache_package_model *model,
                                                aoticache_cpu_features *ret_requirements, aoticache_error *ret_error);

/* Gets the model from the cache, unpacking and storing it where it is not there. report: all but load_ns is filled. */
aoticache_status aoticache_package_obtain(aoticache_cache *cache, aoticache_package_source *source,
                                          const aoticache_package_model *model, const aoticache_request *request,
                                          const aoticache_cpu_features *requirements, aoticache_artifact **ret_artifact,
                                          aoticache_package_report *report, aoticache_error *ret_error);
/* key, model and device of the report, from the request. Returns: OK, NO_MEMORY, UNSUPPORTED. */
aoticache_status aoticache_package_report_begin(const aoticache_request *request, aoticache_package_report *report,
                                                aoticache_error *ret_error);
/* stored, added and bytes of the report, from the artifact. */
void aoticache_package_report_artifact(const aoticache_artifact *artifact, aoticache_package_report *report);

/* ---- loading ---- */

/* Reads the caller's options; NULL gives the defaults. Returns: OK, INVALID. */
aoticache_status aoticache_package_read_options(const aoticache_package_options *options,
                                                aoticache_package_options *ret_options, aoticache_error *ret_error);
/* A lookup that fills the report. Returns: as aoticache_cache_lookup(). */
aoticache_status aoticache_package_look_up(aoticache_cache *cache, const aoticache_request *request,
                                           aoticache_artifact **ret_artifact, aoticache_package_report *report,
                                           aoticache_error *ret_error);
/* UNSUPPORTED, with the features that this CPU lacks. */
aoticache_status aoticache_package_refuse_cpu(const char *where, const char *model,
                                              const aoticache_cpu_features *requirements, aoticache_error *ret_error);

/*
 * A runner that holds the artifact. name: for messages. device: where the options name none. The artifact's descriptors
 * are closed then. owned: released when the runner is gone, on failure at once; NULL where there is nothing.
 * Returns: as aoticache_library_load_fd() and aoticache_runner_create().
 */
aoticache_status aoticache_package_make_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                               const aoticache_package_options *options, void *owned,
                                               void (*release)(void *owned), aoticache_runner **ret_runner,
                                               aoticache_error *ret_error);

/*
 * Makes the runner compare its inputs with what the package says of them, if that is known.
 * Returns: OK, NO_MEMORY, INVALID (the stored check cannot be read).
 */
aoticache_status aoticache_package_expect_inputs(aoticache_cache *cache, const aoticache_artifact *artifact,
                                                 aoticache_runner *runner, aoticache_error *ret_error);

/* ---- weights_override.c: weights from a .safetensors file ---- */

typedef struct aoticache_package_given aoticache_package_given;

/*
 * Opens options->weights, and gives its tensors to the runner, which must not run meanwhile and must be gone before it is
 * closed.
 * Returns: as aoticache_safetensors_open() and aoticache_runner_update_constants(); INVALID for a tensor that is no constant,
 * unless those are to be ignored, and then where none is one.
 */
aoticache_status aoticache_package_given_open(const aoticache_package_options *options, aoticache_runner *runner,
                                              aoticache_package_given **ret_given, aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_package_given_close(aoticache_package_given *given);

/* ---- executor.c ---- */

/*
 * The executor for operators that the model calls by name (executor.h). NULL: the library calls none, there is no file of
 * them beside it, or the process has PyTorch. name: for messages.
 * Returns: as aoticache_executor_create(), and IO, DENIED.
 */
aoticache_status aoticache_package_executor_open(const aoticache_artifact *artifact, const char *name,
                                                 aoticache_executor **ret_executor, aoticache_error *ret_error);

/* ---- weights.c: weights of a package that have a file of their own, as the constants of a runner ---- */

typedef struct aoticache_package_weights {
    void *bytes; /* the file as it is mapped; NULL where there is none */
    size_t size;
    AtenTensorHandle *tensors; /* over the mapping: the constants of the runner */
    size_t tensor_count;
} aoticache_package_weights;

/* Maps what lies beside the library. Returns: OK (also where there is nothing), UNSUPPORTED (two files), IO, DENIED. */
aoticache_status aoticache_package_weights_map(const aoticache_artifact *artifact,
                                               aoticache_package_weights *ret_weights, aoticache_error *ret_error);
/*
 * Gives them to the runner, which uses them until it is gone; before its first run.
 * Returns: as aoticache_runner_update_constants_from_blob().
 */
aoticache_status aoticache_package_weights_give(aoticache_package_weights *weights, aoticache_runner *runner,
                                                aoticache_error *ret_error);
/* When the runner is gone. */
void aoticache_package_weights_unmap(aoticache_package_weights *weights);

#endif
