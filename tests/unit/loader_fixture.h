/*
 * tests/unit/loader_fixture: kernel libraries, and a stand-in for libtorch, that the tests of loader/ compile
 * themselves. Each test runs in its own process, so a test may decide what the process has loaded.
 *
 * The kernel adds one (or -DADD=) to its first input and returns the sum as every output. It uses the bare C interface,
 * not runtime/: these tests are about the loader only.
 */
#ifndef AOTICACHE_TESTS_LOADER_FIXTURE_H
#define AOTICACHE_TESTS_LOADER_FIXTURE_H

#include "loader/runner/create.h"
#include "loader/runner/runner.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "own_directory.h"

#if defined(__GNUC__)
#define FIXTURE_FUNCTION static __attribute__((unused))
#endif

#ifndef FIXTURE_PATH_BYTES
#define FIXTURE_PATH_BYTES 512
#endif

static const char fixture_kernel_source[] =
    "#define _GNU_SOURCE\n"
    "#include <dlfcn.h>\n#include <fcntl.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
    "#include <stdlib.h>\n#include <unistd.h>\n"
    "#ifndef ADD\n#define ADD 1\n#endif\n"
    "#ifndef INPUTS\n#define INPUTS 1\n#endif\n"
    "#ifndef OUTPUTS\n#define OUTPUTS 1\n#endif\n"
    "typedef struct tensor *T;\n"
    "int aoti_torch_get_data_ptr(T, void **);\nint aoti_torch_get_numel(T, int64_t *);\n"
    "int aoti_torch_get_dim(T, int64_t *);\nint aoti_torch_get_sizes(T, int64_t **);\n"
    "int aoti_torch_get_strides(T, int64_t **);\nint aoti_torch_delete_tensor_object(T);\n"
    "int aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, T *);\n"
    "#ifdef MISSING\nint aoti_torch_made_up_one(void);\nint aoti_torch_made_up_two(void);\nint torch_made_up(void);\n"
    "int use(void) { return aoti_torch_made_up_one() + aoti_torch_made_up_two() + torch_made_up(); }\n#endif\n"
    "#ifdef PROXY\nint aoti_torch_proxy_executor_call_function(void);\n"
    "int use(void) { return aoti_torch_proxy_executor_call_function(); }\n"
    "const char *const named[] = {\"torch.ops.aten.cholesky.default\", \"a torch.ops.my_ops.sum.dim_IntList\",\n"
    "    \"torch.ops.aten.cholesky.default again\", \"torch.ops.\", \"torch.ops.aten.\"};\n#endif\n"
    "#ifdef OPERATORS\nint aoti_torch_cpu_made_up(void);\nint aoti_torch_cpu_made_up_too(void);\n"
    "int use(void) { return aoti_torch_cpu_made_up() + aoti_torch_cpu_made_up_too(); }\n#endif\n"
    "#ifdef CUDA_FUNCTION\nint aoti_torch_cuda_made_up(void);\n"
    "int use(void) { return aoti_torch_cuda_made_up(); }\n#endif\n"
    "#ifdef UNKNOWN\nint nobody_has_this(void);\nint use(void) { return nobody_has_this(); }\n#endif\n"
    "static T copy_plus(T in)\n{\n"
    "    float *from, *to; int64_t n, dim, *sizes, *strides; T out = NULL;\n"
    "    aoti_torch_get_dim(in, &dim); aoti_torch_get_sizes(in, &sizes); aoti_torch_get_strides(in, &strides);\n"
    "    aoti_torch_get_numel(in, &n); aoti_torch_get_data_ptr(in, (void **)&from);\n"
    "    aoti_torch_empty_strided(dim, sizes, strides, 6, 0, 0, &out); aoti_torch_get_data_ptr(out, (void **)&to);\n"
    "#ifdef PARALLEL\n#pragma omp parallel for num_threads(4) schedule(static, 1)\n#endif\n"
    "    for (int64_t i = 0; i < n; i++) to[i] = from[i] + ADD;\n"
    "    return out;\n}\n"
    "#ifdef OPEN_SELF\nstatic int opens_itself(void)\n{\n"
    "    Dl_info info; char *end = (char *)\"tail of the file\", got[17] = {0}; int fd;\n"
    "    if (!dladdr((void *)opens_itself, &info) || (fd = open(info.dli_fname, O_RDONLY)) < 0) return 0;\n"
    "    lseek(fd, -16, SEEK_END); int ok = read(fd, got, 16) == 16;\n"
    "    for (int i = 0; i < 16; i++) ok &= got[i] == end[i];\n"
    "    close(fd); return ok;\n}\n"
    "#else\nstatic int opens_itself(void) { return 1; }\n#endif\n"
    "static int create(void **ret) {\n"
    "#ifdef CREATE_FAILS\n    (void)ret; return 3;\n#endif\n"
    "    if (!opens_itself()) return 1;\n    *ret = malloc(1); return 0; }\n"
    "#ifndef BARE\n"
    "#ifndef OLD\n"
    "int AOTInductorModelContainerCreateWithDevice(void **ret, size_t n, const char *d, const char *c)\n"
    "{ (void)n; (void)d; (void)c; return create(ret); }\n"
    "int AOTInductorGetLastError(const char **ret) { *ret = \"the kernel's\\nown words\"; return 0; }\n#endif\n"
    "int AOTInductorModelContainerCreate(void **ret, size_t n, bool cpu, const char *c)\n"
    "{ (void)n; (void)c; return cpu ? create(ret) : 4; }\n"
    "int AOTInductorModelContainerDelete(void *c) { free(c); return 0; }\n"
    "int AOTInductorModelContainerGetNumInputs(void *c, size_t *ret) { (void)c; *ret = INPUTS; return 0; }\n"
    "int AOTInductorModelContainerGetNumOutputs(void *c, size_t *ret) { (void)c; *ret = OUTPUTS; return 0; }\n"
    "int AOTInductorModelContainerGetInputName(void *c, size_t i, const char **ret)\n"
    "{ (void)c; (void)i; *ret = \"first\"; return 0; }\n"
    "#endif\n"
    "int AOTInductorModelContainerRun(void *c, T *in, size_t ni, T *out, size_t no, void *stream, void *proxy)\n"
    "{\n    (void)c; (void)stream; (void)proxy;\n"
    "#ifdef FAIL_BEFORE\n    return 7;\n#endif\n"
    "    for (size_t i = 0; i < no; i++) out[i] = copy_plus(in[0]);\n"
    "    for (size_t i = 0; i < ni; i++) { aoti_torch_delete_tensor_object(in[i]); in[i] = NULL; }\n"
    "#ifdef FAIL_AFTER\n    return 8;\n#endif\n"
    "    return 0;\n}\n";

/* The stand-in. It counts its handles, so that a test sees whether each was freed exactly once. */
static const char fixture_torch_source[] =
    "#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "typedef struct { float *data; int64_t dim, sizes[8], strides[8]; int32_t dtype; int owns; } *T;\n"
    "long fixture_live_handles;\n"
    "uint64_t aoti_torch_abi_version(void) { return 1; }\n"
    "static T new(void) { fixture_live_handles++; return calloc(1, sizeof(*(T)0)); }\n"
    "int aoti_torch_create_tensor_from_blob(void *data, int64_t dim, const int64_t *sizes, const int64_t *strides,\n"
    "    int64_t offset, int32_t dtype, int32_t type, int32_t index, T *ret)\n"
    "{ (void)offset; (void)type; (void)index; T t = new(); t->data = data; t->dim = dim; t->dtype = dtype;\n"
    "  memcpy(t->sizes, sizes, dim * 8); memcpy(t->strides, strides, dim * 8); *ret = t; return 0; }\n"
    "int aoti_torch_empty_strided(int64_t dim, const int64_t *sizes, const int64_t *strides, int32_t dtype,\n"
    "    int32_t type, int32_t index, T *ret)\n"
    "{ int64_t n = 1; for (int64_t i = 0; i < dim; i++) n *= sizes[i];\n"
    "  aoti_torch_create_tensor_from_blob(calloc(n + 1, 8), dim, sizes, strides, 0, dtype, type, index, ret);\n"
    "  (*ret)->owns = 1; return 0; }\n"
    "int aoti_torch_new_tensor_handle(T t, T *ret)\n"
    "{ if (fixture_live_handles > 900) return 1; *ret = new(); **ret = *t; (*ret)->owns = 0; return 0; }\n"
    "int aoti_torch_delete_tensor_object(T t)\n"
    "{ if (t->owns) free(t->data); free(t); fixture_live_handles--; return 0; }\n"
    "int aoti_torch_get_data_ptr(T t, void **r) { *r = t->data; return 0; }\n"
    "int aoti_torch_get_dim(T t, int64_t *r) { *r = t->dim; return 0; }\n"
    "int aoti_torch_get_sizes(T t, int64_t **r) { *r = t->sizes; return 0; }\n"
    "int aoti_torch_get_strides(T t, int64_t **r) { *r = t->strides; return 0; }\n"
    "int aoti_torch_get_dtype(T t, int32_t *r) { *r = t->dtype; return 0; }\n"
    "int aoti_torch_get_numel(T t, int64_t *r)\n"
    "{ *r = 1; for (int64_t i = 0; i < t->dim; i++) *r *= t->sizes[i]; return 0; }\n"
    "int aoti_torch_get_storage_offset(T t, int64_t *r) { (void)t; *r = 0; return 0; }\n"
    "int aoti_torch_get_device_type(T t, int32_t *r) { (void)t; *r = 0; return 0; }\n"
    "int aoti_torch_get_device_index(T t, int32_t *r) { (void)t; *r = -1; return 0; }\n";

static char fixture_directory[FIXTURE_PATH_BYTES / 4];

FIXTURE_FUNCTION int fixture_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
FIXTURE_FUNCTION int fixture_run(const char *format, ...)
{
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return length > 0 && (size_t)length < sizeof command ? system(command) : -1;
}

FIXTURE_FUNCTION void fixture_teardown(void)
{
    if (fixture_directory[0] != '\0')
        own_directory_remove(fixture_directory);
}

/* Sets up a directory, the shim of this build, and a compiler; without a compiler the test is skipped. */
FIXTURE_FUNCTION void fixture_setup(void)
{
    char program[PATH_MAX] = "";
    if (getenv("AOTICACHE_HOME") == NULL && readlink("/proc/self/exe", program, sizeof program - 1) > 0) {
        for (int level = 0; level < 3; level++) /* BUILD/tests/unit/test_x */
            if (strrchr(program, '/') != NULL)
                *strrchr(program, '/') = '\0';
        setenv("AOTICACHE_HOME", program, 1);
    }
    own_directory_make(fixture_directory, sizeof fixture_directory);
    if (system("cc --version >/dev/null 2>&1") != 0)
        cr_skip_test("no C compiler (cc) to make kernel libraries with");
}

FIXTURE_FUNCTION void fixture_path(const char *name, char ret_path[FIXTURE_PATH_BYTES])
{
    snprintf(ret_path, FIXTURE_PATH_BYTES, "%s/%s", fixture_directory, name);
}

/* Compiles C text into NAME in the test's directory. Returns whether the compiler (NULL: cc) succeeded. */
FIXTURE_FUNCTION bool fixture_compile_with(const char *compiler, const char *source, const char *name,
                                           const char *flags)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("source.c", path);
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    fputs(source, file);
    fclose(file);
    return fixture_run("cd '%s' && %s -w -shared -fPIC -O1 source.c -o %s %s 2>/dev/null", fixture_directory,
                       compiler != NULL ? compiler : "cc", name, flags) == 0;
}

FIXTURE_FUNCTION void fixture_compile(const char *source, const char *name, const char *flags)
{
    cr_assert(fixture_compile_with(NULL, source, name, flags), "cc cannot make %s with %s", name, flags);
}

/* Makes an empty library with this soname, to be linked against; never loaded. */
FIXTURE_FUNCTION void fixture_stub(const char *name)
{
    char flags[128];
    snprintf(flags, sizeof flags, "-nostdlib -Wl,-soname,%s", name);
    fixture_compile("", name, flags);
}

/* Makes a kernel that needs libtorch_cpu.so, like those of PyTorch; returns an open descriptor of it. */
FIXTURE_FUNCTION int fixture_kernel(const char *name, const char *flags)
{
    char all_flags[1024], path[FIXTURE_PATH_BYTES];
    fixture_stub("libtorch_cpu.so");
    snprintf(all_flags, sizeof all_flags, "%s -Wl,--no-as-needed -L. -l:libtorch_cpu.so", flags);
    fixture_compile(fixture_kernel_source, name, all_flags);
    fixture_path(name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

/* Loads the stand-in for libtorch into this process, as an import of PyTorch would. `soname` may have a version. */
FIXTURE_FUNCTION void *fixture_import_torch(const char *soname)
{
    char flags[128], path[FIXTURE_PATH_BYTES];
    char name[160];
    snprintf(name, sizeof name, "torch/%s", soname);
    snprintf(flags, sizeof flags, "-Wl,-soname,%s", soname);
    cr_assert_eq(fixture_run("mkdir '%s/torch'", fixture_directory), 0);
    fixture_compile(fixture_torch_source, name, flags);
    fixture_path(name, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle);
    return handle;
}

FIXTURE_FUNCTION aoticache_library *fixture_load(int fd)
{
    aoticache_library *library = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_load_fd(fd, "kernel", NULL, &library, &error), AOTICACHE_OK, "%s", error.message);
    return library;
}

/* Checks that loading is refused with this status and a message that has both texts; closes the descriptor. */
FIXTURE_FUNCTION void fixture_expect_refused(int fd, aoticache_status expected, const char *first, const char *second)
{
    aoticache_library *library = NULL;
    aoticache_error error = {0};
    aoticache_status status = aoticache_library_load_fd(fd, "abc123", NULL, &library, &error);
    cr_assert_eq(status, expected, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_eq(error.status, expected);
    cr_assert_not_null(strstr(error.message, "abc123"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, first), "%s", error.message);
    cr_assert_not_null(strstr(error.message, second), "%s", error.message);
    cr_assert_null(library);
    close(fd);
}

FIXTURE_FUNCTION int fixture_count_torch(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    if (strstr(info->dlpi_name, "libtorch") != NULL || strstr(info->dlpi_name, "libc10") != NULL)
        ++*(int *)user;
    return 0;
}

/* Returns the number of PyTorch's libraries in the process. */
FIXTURE_FUNCTION int fixture_torch_libraries(void)
{
    int count = 0;
    dl_iterate_phdr(fixture_count_torch, &count);
    return count;
}

/* Runs with steal_inputs. */
FIXTURE_FUNCTION aoticache_status run_stealing(aoticache_runner *runner, AtenTensorHandle *inputs, size_t num_inputs,
                                               AtenTensorHandle *outputs, size_t num_outputs,
                                               aoticache_error *ret_error)
{
    aoticache_run_options options = AOTICACHE_RUN_OPTIONS_INIT;
    options.steal_inputs = true;
    return aoticache_runner_run_with(runner, &options, inputs, num_inputs, outputs, num_outputs, ret_error);
}

/* Creates a runner, runs it on {1, 2} and returns the first element of the first output. */
FIXTURE_FUNCTION float fixture_first_result(aoticache_library *library)
{
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    float data[2] = {1, 2};
    AtenTensorHandle input = NULL, output = NULL;
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, (int64_t[]){2}, NULL, &input, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_get_view(output, &view, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(view.numel, 2);
    float first = ((float *)view.data)[0];
    aoticache_tensor_free(output);
    aoticache_tensor_free(input);
    aoticache_runner_unref(runner);
    return first;
}

#if defined(__SANITIZE_ADDRESS__)
#define FIXTURE_SANITIZE "-fsanitize=address,undefined"
#elif defined(__SANITIZE_THREAD__)
#define FIXTURE_SANITIZE "-fsanitize=thread"
#else
#define FIXTURE_SANITIZE ""
#endif

/*
 * Makes a kernel library with runtime/ from a C file of the tree, with all functions of the interface. It needs
 * libstdc++, as PyTorch's libraries do. hide: a version script's text that leaves functions out, or NULL.
 */
FIXTURE_FUNCTION int fixture_runtime_kernel(const char *source, const char *name, const char *flags, const char *hide)
{
    char path[FIXTURE_PATH_BYTES], build[PATH_MAX] = "", script[FIXTURE_PATH_BYTES + 32] = "";
    cr_assert_not_null(getenv("AOTICACHE_HOME"));
    snprintf(build, sizeof build, "%s", getenv("AOTICACHE_HOME"));
    fixture_stub("libtorch_cpu.so");
    if (hide != NULL) {
        fixture_path("hide.map", path);
        FILE *file = fopen(path, "we");
        cr_assert_not_null(file);
        fputs(hide, file);
        fclose(file);
        snprintf(script, sizeof script, "-Wl,--version-script=%s", path);
    }
    fixture_path(name, path);
    cr_assert_eq(fixture_run("cc -std=gnu11 -O1 -g -w -shared -fPIC -fvisibility=hidden " FIXTURE_SANITIZE
                             " %s -I. '%s' '%s/lib/libaoticache_runtime.a' %s -Wl,--no-as-needed '%s/libtorch_cpu.so' "
                             "-lstdc++ -Wl,--as-needed -o '%s'",
                             flags, source, build, script, fixture_directory, path),
                 0, "cc cannot make %s", source);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

/*
 * Returns a version script that exports only the functions that libraries of PyTorch 2.6 export, and `more` ("name;
 * name;").
 */
FIXTURE_FUNCTION const char *fixture_version_script_26(const char *more)
{
    static char text[8192];
#define FIXTURE_KEEP(name, parameters) " " #name ";"
    snprintf(text, sizeof text, "{ global:%s %s local: *; };", AOTICACHE_ABI_BASE_LIST(FIXTURE_KEEP), more);
#undef FIXTURE_KEEP
    return text;
}

#endif
