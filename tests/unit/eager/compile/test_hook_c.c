/* Unit tests of eager/compile/c_source.c, eager/compile/request_macros.c, and of the kernels in eager/compile/kernels. */
#include "base/names.h"
#include "cache/request/cpu_detect.h"
#include "eager/compile/hook_internal.h"
#include "eager/holder/call.h"
#include "loader/tensor.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <fcntl.h>
#include <math.h>

TestSuite(hook_c, .init = fixture_begin, .fini = fixture_end, .timeout = 600);

static void need_compiler(void)
{
    if (system("command -v \"${AOTICACHE_CC:-cc}\" >/dev/null") != 0)
        cr_skip_test("there is no C compiler");
}

static aoticache_hook *make_hook(const char *kernels, const char *cpu_features)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_error error = {.message = ""};
    options.kernels = kernels;
    options.cpu_features = cpu_features;
    cr_assert_eq(aoticache_hook_create_c(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    return hook;
}

static aoticache_status compile(aoticache_hook *hook, const aoticache_request *request, struct delivery *delivery,
                                aoticache_error *error)
{
    static int round;
    char name[32];
    snprintf(name, sizeof name, "work%d", round++);
    *delivery = (struct delivery){0};
    *error = (aoticache_error){.message = ""};
    return aoticache_hook_compile(hook, request, make_directory(name), deliver, delivery, error);
}

/* ---- kernels against plain loops ---- */

/* A tensor of a test: sizes and strides over its own memory. */
struct tensor {
    int32_t dtype;
    uint32_t ndim;
    int64_t sizes[4], strides[4];
    union {
        float f[4096];
        double d[4096];
        int32_t i[4096];
        int64_t l[4096];
    } data;
};

static void tensor_fill(struct tensor *tensor, int seed)
{
    for (int i = 0; i < 4096; i++) {
        int value = (i * 7919 + seed) % 201 - 100;
        if (tensor->dtype == AOTICACHE_DTYPE_FLOAT32)
            tensor->data.f[i] = (float)value / 8;
        else if (tensor->dtype == AOTICACHE_DTYPE_FLOAT64)
            tensor->data.d[i] = (double)value / 8;
        else if (tensor->dtype == AOTICACHE_DTYPE_INT32)
            tensor->data.i[i] = value;
        else
            tensor->data.l[i] = value;
    }
}

/* Returns element `index` in row-major order; all values in the tests are exact in a double. */
static double element(const void *data, int32_t dtype, uint32_t ndim, const int64_t *sizes, const int64_t *strides,
                      int64_t index)
{
    int64_t offset = 0;
    for (uint32_t d = ndim; d-- > 0;) {
        offset += index % sizes[d] * strides[d];
        index /= sizes[d];
    }
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT32:
        return ((const float *)data)[offset];
    case AOTICACHE_DTYPE_FLOAT64:
        return ((const double *)data)[offset];
    case AOTICACHE_DTYPE_INT32:
        return ((const int32_t *)data)[offset];
    default:
        return (double)((const int64_t *)data)[offset];
    }
}

static double at(const struct tensor *tensor, int64_t index)
{
    return element(&tensor->data, tensor->dtype, tensor->ndim, tensor->sizes, tensor->strides, index);
}

static aoticache_request *request_of(const char *op, const struct tensor *x, const struct tensor *y)
{
    aoticache_request *request = make_request(op);
    add_tensor(request, x->dtype, x->ndim, x->sizes, x->strides);
    if (y != NULL)
        add_tensor(request, y->dtype, y->ndim, y->sizes, y->strides);
    return request;
}

static AtenTensorHandle handle_of(struct tensor *tensor)
{
    AtenTensorHandle handle;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_tensor_from_blob(&tensor->data, tensor->dtype, tensor->ndim, tensor->sizes, tensor->strides,
                                            &handle, &error),
                 AOTICACHE_OK, "%s", error.message);
    return handle;
}

/* Compiles, loads and runs; the caller frees the output. */
static AtenTensorHandle run_request(const aoticache_request *request, struct tensor *x, struct tensor *y)
{
    struct delivery delivery;
    aoticache_error error;
    aoticache_hook *hook = make_hook(NULL, NULL);
    cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_runner *runner = fixture_load_runner(delivery.path);
    AtenTensorHandle inputs[2] = {handle_of(x), y != NULL ? handle_of(y) : NULL}, output;
    cr_assert_eq(aoticache_runner_run(runner, inputs, y != NULL ? 2 : 1, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_tensor_free(inputs[0]);
    aoticache_tensor_free(inputs[1]);
    aoticache_runner_unref(runner);
    aoticache_hook_free(hook);
    return output;
}

typedef double (*reference)(double x, double y);

static void check_elements(const aoticache_request *request, struct tensor *x, struct tensor *y, int64_t numel,
                           reference expected)
{
    AtenTensorHandle output = run_request(request, x, y);
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(output, &view, NULL), AOTICACHE_OK);
    cr_assert_eq(view.numel, numel);
    cr_assert_eq(view.dtype, x->dtype);
    for (int64_t i = 0; i < numel; i++) {
        double seen = element(view.data, view.dtype, (uint32_t)view.ndim, view.sizes, view.strides, i);
        double wanted = expected(at(x, i), y != NULL ? at(y, i) : 0);
        cr_assert_eq(seen, wanted, "element %d: %g, expected %g", (int)i, seen, wanted);
    }
    aoticache_tensor_free(output);
}

static double abs_of(double x, double y)
{
    (void)y;
    return fabs(x);
}
static double neg_of(double x, double y)
{
    (void)y;
    return -x;
}
static double relu_of(double x, double y)
{
    (void)y;
    return x < 0 ? 0 : x;
}
static double add_of(double x, double y)
{
    return x + 3 * y;
}
static double mul_of(double x, double y)
{
    return x * y;
}

static const int32_t dtypes[] = {AOTICACHE_DTYPE_FLOAT32, AOTICACHE_DTYPE_FLOAT64, AOTICACHE_DTYPE_INT32,
                                 AOTICACHE_DTYPE_INT64};

static void check_unary(const char *op, reference expected, const struct tensor *shape)
{
    static struct tensor x;
    x = *shape;
    tensor_fill(&x, 5);
    int64_t numel = 1;
    for (uint32_t d = 0; d < x.ndim; d++)
        numel *= x.sizes[d];
    aoticache_request *request = request_of(op, &x, NULL);
    check_elements(request, &x, NULL, numel, expected);
    aoticache_request_free(request);
}

static const struct tensor contiguous = {.ndim = 3, .sizes = {4, 5, 7}, .strides = {35, 7, 1}};
static const struct tensor transposed = {.ndim = 2, .sizes = {8, 9}, .strides = {1, 8}};
static const struct tensor with_gaps = {.ndim = 3, .sizes = {3, 4, 5}, .strides = {100, 20, 2}};
static const struct tensor repeated = {.ndim = 2, .sizes = {6, 7}, .strides = {0, 3}};
static const struct tensor scalar = {.ndim = 0};
static const struct tensor nothing = {.ndim = 2, .sizes = {0, 3}, .strides = {3, 1}};

Test(hook_c, unary_kernels_are_right_for_every_dtype)
{
    need_compiler();
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        struct tensor shape = contiguous;
        shape.dtype = dtypes[i];
        check_unary("aten::abs", abs_of, &shape);
    }
    struct tensor shape = contiguous;
    shape.dtype = AOTICACHE_DTYPE_FLOAT32;
    check_unary("aten::neg", neg_of, &shape);
    check_unary("aten::relu", relu_of, &shape);
}

Test(hook_c, unary_kernels_honour_strides)
{
    need_compiler();
    const struct tensor *const shapes[] = {&transposed, &with_gaps, &repeated, &scalar, &nothing};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct tensor shape = *shapes[i];
        shape.dtype = AOTICACHE_DTYPE_FLOAT32;
        check_unary("aten::abs", abs_of, &shape);
    }
}

static void check_binary(const char *op, reference expected, const struct tensor *shape_x, const struct tensor *shape_y,
                         int32_t dtype, bool alpha)
{
    static struct tensor x, y;
    x = *shape_x;
    y = *shape_y;
    x.dtype = y.dtype = dtype;
    tensor_fill(&x, 1);
    tensor_fill(&y, 2);
    aoticache_request *request = request_of(op, &x, &y);
    if (alpha)
        cr_assert_eq(aoticache_request_add_int(request, "alpha", 3, NULL), AOTICACHE_OK);
    int64_t numel = 1;
    for (uint32_t d = 0; d < x.ndim; d++)
        numel *= x.sizes[d];
    check_elements(request, &x, &y, numel, expected);
    aoticache_request_free(request);
}

Test(hook_c, binary_kernels_are_right_for_every_dtype)
{
    need_compiler();
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        check_binary("aten::add.Tensor", add_of, &contiguous, &contiguous, dtypes[i], true);
    check_binary("aten::mul.Tensor", mul_of, &contiguous, &contiguous, AOTICACHE_DTYPE_FLOAT64, false);
}

Test(hook_c, binary_kernels_honour_strides)
{
    need_compiler();
    const struct tensor rows = {.ndim = 3, .sizes = {3, 4, 5}, .strides = {20, 5, 1}};
    const struct tensor columns = {.ndim = 2, .sizes = {8, 9}, .strides = {9, 1}};
    check_binary("aten::mul.Tensor", mul_of, &with_gaps, &rows, AOTICACHE_DTYPE_FLOAT32, false);
    check_binary("aten::mul.Tensor", mul_of, &transposed, &columns, AOTICACHE_DTYPE_FLOAT32, false);
    check_binary("aten::mul.Tensor", mul_of, &transposed, &transposed, AOTICACHE_DTYPE_FLOAT32, false);
    check_binary("aten::mul.Tensor", mul_of, &scalar, &scalar, AOTICACHE_DTYPE_FLOAT32, false);
}

Test(hook_c, binary_kernels_broadcast)
{
    need_compiler();
    static struct tensor x = {.dtype = AOTICACHE_DTYPE_FLOAT32, .ndim = 2, .sizes = {4, 1}, .strides = {1, 1}};
    static struct tensor y = {.dtype = AOTICACHE_DTYPE_FLOAT32, .ndim = 3, .sizes = {2, 1, 5}, .strides = {5, 5, 1}};
    tensor_fill(&x, 1);
    tensor_fill(&y, 2);
    aoticache_request *request = request_of("aten::mul.Tensor", &x, &y);
    AtenTensorHandle output = run_request(request, &x, &y);
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(output, &view, NULL), AOTICACHE_OK);
    cr_assert_eq(view.ndim, 3);
    cr_assert(view.sizes[0] == 2 && view.sizes[1] == 4 && view.sizes[2] == 5);
    for (int64_t i = 0; i < 40; i++)
        cr_assert_eq(((const float *)view.data)[i], x.data.f[i / 5 % 4] * y.data.f[i / 20 * 5 + i % 5]);
    aoticache_tensor_free(output);
    aoticache_request_free(request);
}

static void check_sum(const struct tensor *shape, int32_t dtype)
{
    static struct tensor x;
    x = *shape;
    x.dtype = dtype;
    tensor_fill(&x, 3);
    int64_t numel = 1;
    double sum = 0;
    for (uint32_t d = 0; d < x.ndim; d++)
        numel *= x.sizes[d];
    for (int64_t i = 0; i < numel; i++)
        sum += at(&x, i);
    aoticache_request *request = request_of("aten::sum", &x, NULL);
    AtenTensorHandle output = run_request(request, &x, NULL);
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(output, &view, NULL), AOTICACHE_OK);
    cr_assert_eq(view.ndim, 0);
    bool floating = dtype == AOTICACHE_DTYPE_FLOAT32 || dtype == AOTICACHE_DTYPE_FLOAT64;
    cr_assert_eq(view.dtype, floating ? dtype : AOTICACHE_DTYPE_INT64);
    /* Multiples of an eighth: exact in every order. */
    cr_assert_eq(element(view.data, view.dtype, 0, NULL, NULL, 0), sum);
    aoticache_tensor_free(output);
    aoticache_request_free(request);
}

Test(hook_c, sum_is_right_and_honours_strides)
{
    need_compiler();
    const struct tensor long_one = {.ndim = 1, .sizes = {4001}, .strides = {1}};
    check_sum(&long_one, AOTICACHE_DTYPE_FLOAT32);
    check_sum(&contiguous, AOTICACHE_DTYPE_INT32);
    check_sum(&with_gaps, AOTICACHE_DTYPE_FLOAT64);
    check_sum(&repeated, AOTICACHE_DTYPE_INT64);
    check_sum(&nothing, AOTICACHE_DTYPE_FLOAT32);
}

static void check_mm(const struct tensor *shape_a, const struct tensor *shape_b, int32_t dtype)
{
    static struct tensor a, b;
    a = *shape_a;
    b = *shape_b;
    a.dtype = b.dtype = dtype;
    tensor_fill(&a, 1);
    tensor_fill(&b, 2);
    aoticache_request *request = request_of("aten::mm", &a, &b);
    AtenTensorHandle output = run_request(request, &a, &b);
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(output, &view, NULL), AOTICACHE_OK);
    int64_t rows = a.sizes[0], inner = a.sizes[1], columns = b.sizes[1];
    cr_assert(view.ndim == 2 && view.sizes[0] == rows && view.sizes[1] == columns);
    for (int64_t i = 0; i < rows * columns; i++) {
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += at(&a, i / columns * inner + k) * at(&b, k * columns + i % columns);
        cr_assert_eq(element(view.data, dtype, 2, view.sizes, view.strides, i), sum);
    }
    aoticache_tensor_free(output);
    aoticache_request_free(request);
}

Test(hook_c, mm_is_right_and_honours_strides)
{
    need_compiler();
    const struct tensor a = {.ndim = 2, .sizes = {5, 8}, .strides = {8, 1}};
    const struct tensor wide = {.ndim = 2, .sizes = {8, 300}, .strides = {300, 1}};
    const struct tensor turned = {.ndim = 2, .sizes = {8, 300}, .strides = {1, 8}};
    check_mm(&a, &wide, AOTICACHE_DTYPE_FLOAT32);
    check_mm(&a, &turned, AOTICACHE_DTYPE_FLOAT64);
    check_mm(&a, &wide, AOTICACHE_DTYPE_INT64);
}

/* ---- what is refused ---- */

static void check_unsupported(const char *op, const struct tensor *x, const struct tensor *y, const char *word)
{
    struct delivery delivery;
    aoticache_error error;
    aoticache_hook *hook = make_hook(NULL, NULL);
    aoticache_request *request = request_of(op, x, y);
    cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_UNSUPPORTED, "%s", error.message);
    cr_assert_not_null(strstr(error.message, word), "%s", error.message);
    cr_assert_eq(delivery.calls, 0);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_c, what_kernels_do_not_serve_is_unsupported)
{
    need_compiler();
    struct tensor half = contiguous, ints = contiguous, floats = contiguous;
    half.dtype = AOTICACHE_DTYPE_BFLOAT16;
    ints.dtype = AOTICACHE_DTYPE_INT32;
    floats.dtype = AOTICACHE_DTYPE_FLOAT32;
    check_unsupported("aten::abs", &half, NULL, "float32");
    check_unsupported("aten::abs", &floats, &floats, "one tensor");
    check_unsupported("aten::add.Tensor", &floats, &ints, "same dtype");
    check_unsupported("aten::mm", &floats, &floats, "two matrices");
    check_unsupported("aten::svd", &floats, NULL, "aten_svd.c");
}

Test(hook_c, operator_without_source_has_no_environment)
{
    aoticache_hook *hook = make_hook(NULL, NULL);
    aoticache_request *request = make_request("aten::svd");
    aoticache_error error;
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "aten_svd.c"));
    cr_assert_not_null(strstr(error.message, "share/aoticache/kernels"));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_c, broken_source_fails_with_the_compilers_message)
{
    need_compiler();
    const char *directory = make_directory("kernels");
    write_file("kernels/aten_abs.c", "#include \"runtime/kernel.h\"\nint broken = undeclared;\n", 0600);
    struct delivery delivery;
    aoticache_error error;
    aoticache_hook *hook = make_hook(directory, NULL);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "undeclared"), "%s", error.message);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

/* ---- environment, requirements, determinism ---- */

static const char *version_of(const char *kernels)
{
    static char versions[4][128];
    static unsigned next;
    char *version = versions[next++ % 4];
    aoticache_hook *hook = make_hook(kernels, NULL);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, NULL), AOTICACHE_OK);
    cr_assert_str_eq(aoticache_request_get_environment(request, "framework"), "c");
    snprintf(version, sizeof versions[0], "%s", aoticache_request_get_environment(request, "framework_version"));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    return version;
}

Test(hook_c, environment_follows_the_sources)
{
    const char *directory = make_directory("kernels");
    write_file("kernels/aten_abs.c", "one", 0600);
    const char *one = version_of(directory);
    cr_assert_str_eq(version_of(directory), one);
    write_file("kernels/aten_neg.c", "another operator's", 0600);
    cr_assert_str_eq(version_of(directory), one);
    write_file("kernels/shared.h", "header", 0600);
    const char *two = version_of(directory);
    cr_assert_str_neq(two, one);
    write_file("kernels/aten_abs.c", "two", 0600);
    cr_assert_str_neq(version_of(directory), two);
}

/* ---- several directories ---- */

static aoticache_status make_hook_of(const char *const *directories, const char *kernels, aoticache_hook **ret_hook,
                                     aoticache_error *error)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    *error = (aoticache_error){.message = ""};
    options.kernel_directories = directories;
    options.kernels = kernels;
    return aoticache_hook_create_c(&options, ret_hook, error);
}

/* Returns the part of the key for the kernel of aten::abs; "" if it is not served. */
static const char *version_in(const char *const *directories, const char *kernels)
{
    static char versions[8][128];
    static unsigned next;
    char *version = versions[next++ % 8];
    aoticache_hook *hook;
    aoticache_error error;
    cr_assert_eq(make_hook_of(directories, kernels, &hook, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request *request = make_abs_request();
    aoticache_status status = aoticache_hook_set_environment(hook, request, &error);
    const char *found = aoticache_request_get_environment(request, "framework_version");
    snprintf(version, sizeof versions[0], "%s", status == AOTICACHE_OK ? found : "");
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    return version;
}

Test(hook_c, first_directory_with_a_source_decides)
{
    const char *one = make_directory("one"), *two = make_directory("two"), *empty = make_directory("empty");
    const char *const both[] = {one, two, NULL}, *const other[] = {two, one, NULL}, *const own[] = {empty, NULL};
    write_file("one/aten_abs.c", "one", 0600);
    write_file("two/aten_abs.c", "two", 0600);
    cr_assert_str_neq(version_in(both, empty), version_in(other, empty));
    cr_assert_str_eq(version_in(own, two), version_in(NULL, two));
    cr_assert_str_eq(version_in(own, NULL), version_in(NULL, NULL), "what comes along is behind one's own");
    cr_assert_str_neq(version_in(both, NULL), version_in(NULL, NULL));
    cr_assert_str_eq(version_in(own, empty), "");
    /* A source may include headers of its own and later directories, not of earlier ones. */
    const char *before = version_in(both, empty), *behind = version_in(other, empty);
    write_file("two/shared.h", "header", 0600);
    cr_assert_str_neq(version_in(both, empty), before);
    write_file("empty/shared.h", "header", 0600);
    cr_assert_str_eq(version_in(own, one), version_in(NULL, one));
    cr_assert_str_neq(version_in(other, empty), behind);
}

Test(hook_c, directories_are_named_where_nothing_is_found)
{
    const char *const directories[] = {make_directory("one"), make_directory("two"), NULL};
    aoticache_hook *hook = NULL;
    aoticache_error error;
    cr_assert_eq(make_hook_of(directories, make_directory("three"), &hook, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "aten_abs.c is not in "), "%s", error.message);
    cr_assert(strstr(error.message, "/one, ") != NULL && strstr(error.message, "/three") != NULL, "%s", error.message);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    const char *const missing[] = {directories[0], in_directory("kernels"), NULL};
    cr_assert_eq(make_hook_of(missing, NULL, &hook, &error), AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, missing[1]), "%s", error.message);
    const char *many[18] = {NULL};
    for (size_t i = 0; i < 17; i++)
        many[i] = directories[0];
    cr_assert_eq(make_hook_of(many, NULL, &hook, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "more than 16 directories"), "%s", error.message);
}

Test(hook_c, source_of_ones_own_includes_headers_that_come_along)
{
    need_compiler();
    const char *const directories[] = {make_directory("own"), NULL};
    aoticache_hook *hook;
    aoticache_error error;
    struct delivery delivery;
    write_file("own/aten_abs.c",
               "#include \"unary.h\"\nstatic inline TYPE apply(TYPE x) { return x + 1; }\nEXPORT_UNARY_KERNEL\n", 0600);
    cr_assert_eq(make_hook_of(directories, NULL, &hook, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

static const char one_more[] = "#include \"unary.h\"\n"
                               "static inline TYPE apply(TYPE x) { return x + 1; }\n"
                               "EXPORT_UNARY_KERNEL\n";

/* user: the source of aten::abs */
static const char *source_of_abs(void *user, const char *op)
{
    return strcmp(op, "aten::abs") == 0 ? user : NULL;
}

static aoticache_hook *make_hook_with_source(char *source)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    aoticache_error error = {.message = ""};
    options.source = source_of_abs;
    options.source_user = source;
    cr_assert_eq(aoticache_hook_create_c(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    return hook;
}

Test(hook_c, text_of_the_caller_comes_before_files)
{
    need_compiler();
    char source[sizeof one_more];
    struct tensor x = {.dtype = AOTICACHE_DTYPE_FLOAT32, .ndim = 1, .sizes = {3}, .strides = {1}, .data.f = {1, -2, 3}};
    aoticache_error error = {.message = ""};
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_context *context = NULL;
    aoticache_tensor_view view = AOTICACHE_TENSOR_VIEW_INIT, y;
    view.data = &x.data;
    view.dtype = x.dtype;
    view.ndim = x.ndim;
    view.sizes = x.sizes;
    memcpy(source, one_more, sizeof source);
    options.hook = make_hook_with_source(source);
    cr_assert_eq(aoticache_context_open(make_directory("cache"), &options, &context, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(aoticache_call(context, "aten::abs", &view, 1, &y, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_float_eq(((const float *)y.data)[1], -1, 0, "the caller's kernel");
    aoticache_tensor_free(y.handle);
    cr_assert_eq(aoticache_call(context, "aten::neg", &view, 1, &y, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_float_eq(((const float *)y.data)[1], 2, 0, "the library's kernel");
    aoticache_tensor_free(y.handle);
    aoticache_context_free(context);
}

Test(hook_c, text_of_the_caller_is_in_the_key)
{
    char source[2][sizeof one_more];
    aoticache_error error;
    char versions[3][128];
    memcpy(source[0], one_more, sizeof one_more);
    memcpy(source[1], one_more, sizeof one_more);
    *strchr(source[1], '1') = '2';
    for (int i = 0; i < 3; i++) {
        aoticache_hook *hook = make_hook_with_source(source[i % 2]);
        aoticache_request *request = make_abs_request();
        cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_OK, "%s", error.message);
        snprintf(versions[i], sizeof versions[i], "%s",
                 aoticache_request_get_environment(request, "framework_version"));
        aoticache_request_free(request);
        aoticache_hook_free(hook);
    }
    cr_assert_str_neq(versions[0], versions[1]);
    cr_assert_str_eq(versions[0], versions[2]);
}

Test(hook_c, error_in_the_callers_text_is_told)
{
    need_compiler();
    char source[] = "#error something is wrong\n";
    struct delivery delivery;
    aoticache_error error;
    aoticache_hook *hook = make_hook_with_source(source);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "something is wrong"), "%s", error.message);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_c, requirements_are_those_of_the_level_asked_for)
{
    need_compiler();
    if (strcmp(aoticache_cpu_arch(), "x86_64") != 0)
        cr_skip_test("levels are of x86-64");
    static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "avx2,fma"};
    for (size_t i = 0; i < 4; i++) {
        struct delivery delivery;
        aoticache_error error;
        aoticache_hook *hook = make_hook(NULL, levels[i]);
        aoticache_request *request = make_abs_request();
        cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_OK, "%s", error.message);
        aoticache_cpu_features level;
        cr_assert_eq(aoticache_cpu_features_parse(i < 3 ? levels[i] : "x86-64-v3", &level, NULL), AOTICACHE_OK);
        cr_assert(aoticache_cpu_features_include(&level, &delivery.features), "%s: %s", levels[i],
                  delivery.requirements);
        cr_assert_eq(strstr(delivery.requirements, "avx2") != NULL, i >= 2, "%s", delivery.requirements);
        aoticache_request_free(request);
        aoticache_hook_free(hook);
    }
}

Test(hook_c, requirements_are_those_of_the_version_of_arm_asked_for)
{
    need_compiler();
    if (strcmp(aoticache_cpu_arch(), "aarch64") != 0)
        cr_skip_test("versions are of aarch64");
    static const char *const texts[] = {"armv8-a", "armv8.2-a", "armv8.2-a,fp16,dotprod", "sve,fp16"};
    for (size_t i = 0; i < 4; i++) {
        struct delivery delivery;
        aoticache_error error;
        aoticache_cpu_features asked, lacking;
        cr_assert_eq(aoticache_cpu_features_parse(texts[i], &asked, NULL), AOTICACHE_OK);
        aoticache_hook *hook = make_hook(NULL, texts[i]);
        aoticache_request *request = make_abs_request();
        aoticache_status status = compile(hook, request, &delivery, &error);
        lacking = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), &asked);
        if (aoticache_cpu_features_count(&lacking) > 0) { /* stored for machines that have it */
            cr_assert_eq(status, AOTICACHE_UNSUPPORTED, "%s", error.message);
        } else {
            cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
            cr_assert(aoticache_cpu_features_include(&asked, &delivery.features), "%s: %s", texts[i],
                      delivery.requirements);
            cr_assert(aoticache_cpu_features_include(&delivery.features, &asked), "%s: %s", texts[i],
                      delivery.requirements);
        }
        aoticache_request_free(request);
        aoticache_hook_free(hook);
    }
}

Test(hook_c, native_requirements_are_met_by_this_machine)
{
    need_compiler();
    struct delivery delivery;
    aoticache_error error;
    aoticache_hook *hook = make_hook(NULL, NULL);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert(aoticache_cpu_features_include(aoticache_cpu_features_get(), &delivery.features), "%s",
              delivery.requirements);
    if (strcmp(aoticache_cpu_arch(), "x86_64") == 0) /* some aarch64 processors have nothing beyond Armv8.0 */
        cr_assert_gt(aoticache_cpu_features_count(&delivery.features), 0);
    cr_assert(strncmp(delivery.producer, "cc gcc ", 7) == 0 || strncmp(delivery.producer, "cc clang ", 9) == 0, "%s",
              delivery.producer);
    cr_assert_str_eq(aoticache_hook_get_info(hook).producer, delivery.producer);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_c, same_request_gives_the_same_bytes)
{
    need_compiler();
    aoticache_digest digests[2];
    for (int i = 0; i < 2; i++) {
        struct delivery delivery;
        aoticache_error error;
        aoticache_hook *hook = make_hook(NULL, NULL);
        aoticache_request *request = make_abs_request();
        cr_assert_eq(compile(hook, request, &delivery, &error), AOTICACHE_OK, "%s", error.message);
        int fd = open(delivery.path, O_RDONLY | O_CLOEXEC);
        cr_assert_eq(aoticache_digest_of_fd(fd, &digests[i], NULL, NULL), AOTICACHE_OK);
        close(fd);
        aoticache_request_free(request);
        aoticache_hook_free(hook);
    }
    cr_assert(aoticache_digest_equal(&digests[0], &digests[1]));
}

/* ---- the request as macros ---- */

Test(request_macros, file_names_follow_the_operator)
{
    static const char *const names[][2] = {
        {"aten::abs", "aten_abs.c"}, {"aten::add.Tensor", "aten_add_Tensor.c"}, {"my::op_", "my_op_.c"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[AOTICACHE_KERNEL_FILE_BYTES];
        aoticache_kernel_file_name(names[i][0], name);
        cr_assert_str_eq(name, names[i][1]);
    }
}

Test(request_macros, values_are_exact)
{
    aoticache_request *request = make_request("aten::values");
    aoticache_request_add_double(request, NULL, 0.1, NULL);
    aoticache_request_add_int(request, NULL, INT64_MIN, NULL);
    aoticache_request_add_double(request, NULL, -0.0, NULL);
    aoticache_request_add_string(request, NULL, "a\"b\\", NULL);
    char *text;
    size_t size;
    cr_assert_eq(aoticache_request_macros(request, &text, &size, NULL), AOTICACHE_OK);
    cr_assert_not_null(strstr(text, "#define ARG0_VALUE (0x1999999999999ap-56)\n"), "%s", text);
    cr_assert_not_null(strstr(text, "#define ARG1_VALUE (-INT64_C(9223372036854775807) - 1)\n"), "%s", text);
    cr_assert_not_null(strstr(text, "#define ARG2_VALUE (-0x0p"), "%s", text);
    cr_assert_not_null(strstr(text, "#define ARG3_VALUE \"a\\042b\\134\"\n"), "%s", text);
    free(text);
    aoticache_request_free(request);
}
