/*
 * tools/aoticache/arguments/arguments: the arguments of an operator on the command line, the tensors and the request made
 * from them, and the compile hook that serves it.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_ARGUMENTS_H
#define AOTICACHE_TOOLS_AOTICACHE_ARGUMENTS_H

#include "aoticache/admin.h"
#include "tools/cli/cli.h"

/* ---- elements of tensors ---- */

typedef enum aoticache_element_kind {
    AOTICACHE_ELEMENT_INT,
    AOTICACHE_ELEMENT_UINT, /* uint64 */
    AOTICACHE_ELEMENT_BOOL,
    AOTICACHE_ELEMENT_REAL,
    AOTICACHE_ELEMENT_COMPLEX,
    AOTICACHE_ELEMENT_BITS, /* a dtype without values of its own: displayed as bytes */
} aoticache_element_kind;

typedef struct aoticache_element {
    aoticache_element_kind kind;
    int64_t int_value;   /* INT, BOOL */
    uint64_t uint_value; /* UINT, BITS */
    double real, imaginary;
} aoticache_element;

aoticache_element_kind aoticache_element_kind_of(int32_t dtype);
aoticache_element aoticache_element_read(int32_t dtype, const void *place);
/* Writes a value of any kind: rounded to the nearest that the dtype has; integers wrap. */
void aoticache_element_write(int32_t dtype, void *place, const aoticache_element *element);
/* Returns whether the integer dtype can represent the value. */
bool aoticache_element_int_fits(int32_t dtype, int64_t value);

/* ---- tensors from the command line ---- */

/* DTYPE:DIMxDIM...[@STRIDExSTRIDE...][=FILL] */
typedef struct aoticache_tensor_spec {
    int32_t dtype;
    uint32_t ndim;
    int64_t sizes[AOTICACHE_MAX_DIMS];
    int64_t strides[AOTICACHE_MAX_DIMS];
    bool contiguous;
    uint64_t numel;
    uint64_t span;    /* number of elements from the first to the last in memory */
    const char *fill; /* borrowed from the text; NULL for the default */
} aoticache_tensor_spec;

/* Returns INVALID with a message if the text is not a tensor. */
aoticache_status aoticache_tensor_spec_parse(const char *text, aoticache_tensor_spec *ret_spec,
                                             aoticache_error *ret_error);

/* Makes the data in row-major order; the caller frees it with free(). random: the state of the generator, which is advanced. */
aoticache_status aoticache_tensor_fill(const aoticache_tensor_spec *spec, uint64_t *random, void **ret_data,
                                       aoticache_error *ret_error);
/* Copies row-major data to the layout with the spec's strides; the caller frees it with free(). */
aoticache_status aoticache_tensor_lay_out(const aoticache_tensor_spec *spec, const void *data, void **ret_data,
                                          aoticache_error *ret_error);

/* Prints a tensor with its dtype and sizes; the middle of a large tensor is left out. */
void aoticache_tensor_print(const aoticache_cli *cli, const char *name, const aoticache_tensor_view *view);
/* Converts a tensor to JSON. values: a flat list in row-major order of at most `limit` elements. */
json_t *aoticache_tensor_to_json(const aoticache_tensor_view *view, uint64_t limit);

/* ---- the options of run and compile ---- */

/* The options that are arguments: their order on the command line is that of the operator's schema. */
enum aoticache_kernel_option {
    AOTICACHE_KERNEL_INPUT,
    AOTICACHE_KERNEL_INPUTS,
    AOTICACHE_KERNEL_WEIGHT,
    AOTICACHE_KERNEL_SCALAR,
    AOTICACHE_KERNEL_INT,
    AOTICACHE_KERNEL_DOUBLE,
    AOTICACHE_KERNEL_BOOL,
    AOTICACHE_KERNEL_COMPLEX,
    AOTICACHE_KERNEL_STRING,
    AOTICACHE_KERNEL_NONE,
    AOTICACHE_KERNEL_LIST,
    AOTICACHE_KERNEL_DTYPE,
    AOTICACHE_KERNEL_LAYOUT,
    AOTICACHE_KERNEL_MEMORY_FORMAT,
    AOTICACHE_KERNEL_DEVICE_ARGUMENT,
};

/* The options of `run`, `compile` and `why`, and the hook's options among them, as tables to include in the commands'
 * tables. */
extern const aoticache_cli_option aoticache_kernel_option_table[]; /* of aoticache_kernel_options */
extern const aoticache_cli_option aoticache_hook_option_table[];   /* of aoticache_kernel_options */

/* Reads --hook into an aoticache_kernel_options; for rows of tables. */
int aoticache_hook_kind_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                             void *member);
/* Reads the name of a device into a const char *, after checking it. */
int aoticache_device_name_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                               void *member);
/* Reads the operand of commands that take one operator, into a const char *. */
int aoticache_operator_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                            void *member);

/* The part of the help shared by run and compile. */
#define AOTICACHE_KERNEL_DETAILS                                                                                   \
    "Arguments are those of the operator's schema, in the order given; NAME= before a value passes it by\n"        \
    "keyword: --scalar alpha=2, --none=NAME. An empty NAME means no keyword: --string '=a=b' is the text a=b.\n\n" \
    "SPEC is DTYPE:SIZExSIZE...[@STRIDExSTRIDE...][=FILL]\n"                                                       \
    "  float32:2x3          random from 0 to 1, integers from 0 to 9; see --seed\n"                                \
    "  float32:2x3=arange   0, 1, 2, ...; also zeros, ones, rand, randn, or a number\n"                            \
    "  float32:2x3=@FILE    the bytes of a file, row-major\n"                                                      \
    "  float32:4x4@1x4      with strides, in elements: here a transposed matrix\n"                                 \
    "  float32:             a zero-dimensional tensor\n\n"                                                         \
    "--hook selects what compiles on a miss:\n"                                                                    \
    "  worker           PyTorch, in a Python process\n"                                                            \
    "  c                the C compiler, with C kernels\n"                                                          \
    "  command:PROGRAM  this program\n"                                                                            \
    "  auto             worker if there is a Python with PyTorch, otherwise c\n"                                   \
    "  none             nothing; any kernel for these arguments is used, from any\n"                               \
    "                   producer; the exit code is 3 if there is none"

typedef struct aoticache_input_tensor {
    aoticache_tensor_spec spec;
    bool constant;
    void *row_major; /* constants: the data that is compiled in, and from which the digest is computed */
    void *data;      /* inputs: laid out */
} aoticache_input_tensor;

/* An argument as the command line gives it. */
typedef struct aoticache_kernel_word {
    const aoticache_cli_option *option; /* its id says which kind */
    char *name;                         /* keyword, or NULL */
    const char *value;
} aoticache_kernel_word;

typedef struct aoticache_kernel_options {
    const char *op; /* first member: functions that read an option receive the whole struct by its address */
    aoticache_device device;
    uint64_t seed;
    const char *hook;
    aoticache_hook_options hook_options;
    aoticache_cli_list kernel_directories; /* of hook_options, after aoticache_kernel_choose_hook() */
    const char *python, *cc;               /* one of them becomes hook_options.program when the kind of hook is known */
    bool retry;
    aoticache_kernel_word *words;
    size_t word_count;
    aoticache_input_tensor *tensors; /* filled by aoticache_kernel_make_tensors() */
    size_t tensor_count;
} aoticache_kernel_options;

void aoticache_kernel_options_begin(aoticache_kernel_options *options, const aoticache_cli *cli);
void aoticache_kernel_options_free(aoticache_kernel_options *options);

/* Parses and fills all tensors of the arguments. Call it once, before requests are made. */
int aoticache_kernel_make_tensors(aoticache_kernel_options *options, const aoticache_cli *cli);
/* Gives the hook that --hook names, NULL for none. Prints errors; returns an exit status. */
int aoticache_kernel_choose_hook(aoticache_kernel_options *options, const aoticache_cli *cli,
                                 aoticache_hook **ret_hook);
/* Makes a request from these arguments; constants borrow from `options`. */
int aoticache_kernel_make_request(const aoticache_kernel_options *options, const aoticache_cli *cli,
                                  aoticache_request **ret_request);
/* Parses a line of a list: JSON, or text as `aoticache ls` prints it. Returns the library's status. */
aoticache_status aoticache_kernel_parse_line(const char *line, aoticache_request **ret_request,
                                             aoticache_error *ret_error);
/* Returns the text of aoticache_request_format(); the caller frees it with free(). */
char *aoticache_kernel_describe(const aoticache_request *request);

/* ---- hooks ---- */

/*
 * Prepares a lookup: tensors, the hook that --hook names (NULL for none), the cache, and the request with the environment of
 * the hook; without a hook, with that of the newest entry in the cache that has these arguments
 * (AOTICACHE_CLI_EXIT_NOT_FOUND if there is none). After a failure the caller must free what was made before it.
 */
int aoticache_kernel_prepare(aoticache_kernel_options *options, const aoticache_cli *cli, aoticache_hook **ret_hook,
                             aoticache_cache **ret_cache, aoticache_request **ret_request);

/* Makes SIGINT, SIGTERM and SIGHUP end the compilers that this process started, and then this process. */
void aoticache_interruption_prepare(void);

/* Returns "index", "compiled", "waited": machine-readable. */
const char *aoticache_source_word(aoticache_source source);
/* Returns "compiled by pytorch 2.13.0, not stored": human-readable. producer: of the entry or the hook; may be NULL. */
char *aoticache_source_text(aoticache_source source, bool stored, const char *producer);

/* Writes one human-readable line about the value of an argument, truncated to `size`. */
void aoticache_argument_format(const aoticache_argument *argument, char *ret_text, size_t size);

#endif
