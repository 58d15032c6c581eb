/*
 * Unit tests of base/options.c, and of every public function that takes a struct that begins with its size: all of them
 * follow the rule of base/base.h. tests/cli/building/test_options.sh compares the two lists here with the public
 * headers.
 */
#include "aoticache.h"
#include "aoticache/admin.h"
#include "aoticache/dispatch.h"
#include "aoticache/remote.h"
#include "aoticache/runner.h"
#include "aoticache/torch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "cache/trust/trust_internal.h"
#include "eager/dispatch/questions.h"
#include "loader/loader_internal.h"
#include "loader/runner/runner_internal.h"

#define TAIL_BYTES 64

/* ---- the structs ---- */

/* type, initializer */
#define STRUCTS(X)                                                     \
    X(aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT)           \
    X(aoticache_product, AOTICACHE_PRODUCT_INIT)                       \
    X(aoticache_collect_options, AOTICACHE_COLLECT_OPTIONS_INIT)       \
    X(aoticache_verify_options, AOTICACHE_VERIFY_OPTIONS_INIT)         \
    X(aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT)     \
    X(aoticache_statement, AOTICACHE_STATEMENT_INIT)                   \
    X(aoticache_trust_claim, AOTICACHE_TRUST_CLAIM_INIT)               \
    X(aoticache_statistics_options, AOTICACHE_STATISTICS_OPTIONS_INIT) \
    X(aoticache_load_options, AOTICACHE_LOAD_OPTIONS_INIT)             \
    X(aoticache_runner_options, AOTICACHE_RUNNER_OPTIONS_INIT)         \
    X(aoticache_run_options, AOTICACHE_RUN_OPTIONS_INIT)               \
    X(aoticache_update_options, AOTICACHE_UPDATE_OPTIONS_INIT)         \
    X(aoticache_device_backend, AOTICACHE_DEVICE_BACKEND_INIT)         \
    X(aoticache_hook_options, AOTICACHE_HOOK_OPTIONS_INIT)             \
    X(aoticache_callback, AOTICACHE_CALLBACK_INIT)                     \
    X(aoticache_context_options, AOTICACHE_CONTEXT_OPTIONS_INIT)       \
    X(aoticache_holder_options, AOTICACHE_HOLDER_OPTIONS_INIT)         \
    X(aoticache_package_options, AOTICACHE_PACKAGE_OPTIONS_INIT)       \
    X(aoticache_model_options, AOTICACHE_MODEL_OPTIONS_INIT)           \
    X(aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT)             \
    X(aoticache_binding_options, AOTICACHE_BINDING_OPTIONS_INIT)       \
    X(aoticache_binding_operator_options, AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT)

static bool is_size(size_t size)
{
    return size >= sizeof size && size % sizeof size == 0;
}

/* Fills with the defaults, then a tail of zeros; the byte at `tail` (if not SIZE_MAX) is not zero. */
static void fill(char *bytes, const void *defaults, size_t known, size_t size, size_t tail)
{
    memset(bytes, 0, known + TAIL_BYTES);
    memcpy(bytes, defaults, known);
    memcpy(bytes, &size, sizeof size);
    if (tail != SIZE_MAX)
        bytes[tail] = 1;
}

static void assert_names_both_sizes(const aoticache_error *error, const char *type, size_t size, size_t known)
{
    char begins[200];
    snprintf(begins, sizeof begins, "%s.size is %zu, this library's is %zu", type, size, known);
    cr_assert_eq(error->status, AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error->message, begins), "%s", error->message);
}

static void read_all_sizes(const char *type, const char *initializer, const void *defaults, size_t known)
{
    char given[1024], result[1024], expected[1024];
    cr_assert_lt(known + TAIL_BYTES, sizeof given);
    for (size_t size = 0; size <= known + TAIL_BYTES; size++) {
        aoticache_error error = {.message = ""};
        memset(given, 0, sizeof given);
        memset(given, 0xa5, known);
        memcpy(given, &size, sizeof size);
        memcpy(result, defaults, known);
        memcpy(expected, defaults, known);
        aoticache_status status = aoticache_options_read(given, known, type, initializer, result, &error);
        if (is_size(size)) {
            cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
            memcpy(expected, given, size < known ? size : known);
            memcpy(expected, &known, sizeof known);
        } else {
            cr_assert_eq(status, AOTICACHE_INVALID, "%s of %zu bytes", type, size);
            assert_names_both_sizes(&error, type, size, known);
            cr_assert_not_null(strstr(error.message, initializer), "%s", error.message);
        }
        cr_assert_arr_eq(result, expected, known, "%s of %zu bytes", type, size);
    }
}

/* clang-format off */ /* it takes a body of macros alone for a list */
Test(options, shorter_structs_have_the_defaults_and_longer_ones_their_known_part)
{
#define READ_ALL_SIZES(type, initializer)                                        \
    do {                                                                         \
        const type defaults = initializer;                                       \
        read_all_sizes(#type, #initializer, &defaults, sizeof defaults);         \
    } while (0);
    STRUCTS(READ_ALL_SIZES)
#undef READ_ALL_SIZES
}/* clang-format on */

Test(options, one_byte_beyond_the_struct_that_is_not_zero_is_refused)
{
    aoticache_verify_options defaults = AOTICACHE_VERIFY_OPTIONS_INIT, result;
    char given[sizeof defaults + TAIL_BYTES];
    for (size_t tail = sizeof defaults; tail < sizeof given; tail++) {
        aoticache_error error = {.message = ""};
        fill(given, &defaults, sizeof defaults, sizeof given, tail);
        cr_assert_eq(AOTICACHE_OPTIONS_READ(aoticache_verify_options, AOTICACHE_VERIFY_OPTIONS_INIT, (void *)given,
                                            &result, &error),
                     AOTICACHE_INVALID);
        assert_names_both_sizes(&error, "aoticache_verify_options", sizeof given, sizeof defaults);
    }
}

Test(options, size_that_no_initializer_sets_reads_nothing_beyond_the_size)
{
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 7, 1 << 20, AOTICACHE_OPTIONS_MAX_BYTES + sizeof(size_t)};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t *alone = malloc(sizeof *alone); /* AddressSanitizer reports reading beyond it */
        aoticache_run_options result;
        aoticache_error error = {.message = ""};
        *alone = sizes[i];
        cr_assert_eq(
            AOTICACHE_OPTIONS_READ(aoticache_run_options, AOTICACHE_RUN_OPTIONS_INIT, (void *)alone, &result, &error),
            AOTICACHE_INVALID);
        assert_names_both_sizes(&error, "aoticache_run_options", sizes[i], sizeof result);
        free(alone);
    }
}

Test(options, defaults_that_are_not_zero_are_those_of_the_initializer)
{
    const size_t none = sizeof none; /* a struct with only its size */
    aoticache_cache_options cache;
    cr_assert_eq(AOTICACHE_OPTIONS_READ(aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT, (const void *)&none,
                                        &cache, NULL),
                 AOTICACHE_OK);
    cr_expect_eq(cache.size, sizeof cache);
    cr_expect_eq(cache.lock_timeout_ms, AOTICACHE_AS_CONFIGURED);
    cr_expect_eq(cache.failure_max_ttl_seconds, 86400);
    aoticache_collect_options collect;
    cr_assert_eq(AOTICACHE_OPTIONS_READ(aoticache_collect_options, AOTICACHE_COLLECT_OPTIONS_INIT, (const void *)&none,
                                        &collect, NULL),
                 AOTICACHE_OK);
    cr_expect_eq(collect.max_bytes, UINT64_MAX);
    cr_expect_eq(collect.max_age_seconds, UINT64_MAX);
    aoticache_load_options load;
    cr_assert_eq(
        AOTICACHE_OPTIONS_READ(aoticache_load_options, AOTICACHE_LOAD_OPTIONS_INIT, (const void *)&none, &load, NULL),
        AOTICACHE_OK);
    cr_expect_eq(load.copy, -1);
    cr_assert_eq(AOTICACHE_OPTIONS_READ(aoticache_load_options, AOTICACHE_LOAD_OPTIONS_INIT, NULL, &load, NULL),
                 AOTICACHE_OK, "NULL gives the defaults");
    cr_expect_eq(load.copy, -1);
}

/* ---- the functions ---- */

/* Makes a new one, and frees the previous one with its registrations. */
static aoticache_oplib *new_oplib(aoticache_oplib_kind kind, const char *name)
{
    static aoticache_dispatcher *dispatcher;
    static aoticache_oplib *oplib;
    if (dispatcher == NULL)
        cr_assert_eq(aoticache_dispatcher_create(&dispatcher, NULL), AOTICACHE_OK);
    aoticache_oplib_free(oplib);
    cr_assert_eq(aoticache_oplib_create(dispatcher, kind, name, NULL, "options.c", 1, &oplib, NULL), AOTICACHE_OK);
    return oplib;
}

/*
 * function, type of the struct, initializer, a call with the struct `given`. The other arguments make the call fail, or
 * end without an effect, after it has read the struct.
 */
#define FUNCTIONS(X)                                                                                                   \
    X(aoticache_cache_open, aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT,                                     \
      aoticache_cache_open(given, NULL, &error))                                                                       \
    X(aoticache_cache_put, aoticache_product, AOTICACHE_PRODUCT_INIT,                                                  \
      aoticache_cache_put(NULL, NULL, given, NULL, &error))                                                            \
    X(aoticache_cache_collect, aoticache_collect_options, AOTICACHE_COLLECT_OPTIONS_INIT,                              \
      aoticache_cache_collect(NULL, given, NULL, NULL, NULL, &error))                                                  \
    X(aoticache_cache_verify, aoticache_verify_options, AOTICACHE_VERIFY_OPTIONS_INIT,                                 \
      aoticache_cache_verify(NULL, given, NULL, NULL, NULL, NULL, &error))                                             \
    X(aoticache_cache_export, aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT,                             \
      aoticache_cache_export(NULL, -1, given, NULL, &error))                                                           \
    X(aoticache_cache_import, aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT,                             \
      aoticache_cache_import(NULL, -1, given, NULL, &error))                                                           \
    X(aoticache_cache_merge, aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT,                              \
      aoticache_cache_merge(NULL, NULL, given, NULL, &error))                                                          \
    X(aoticache_statement_encode, aoticache_statement, AOTICACHE_STATEMENT_INIT,                                       \
      aoticache_statement_encode(given, NULL, NULL, &error))                                                           \
    X(aoticache_statement_sign, aoticache_statement, AOTICACHE_STATEMENT_INIT,                                         \
      aoticache_statement_sign(given, NULL, NULL, &error))                                                             \
    X(aoticache_cache_check_statement, aoticache_statement, AOTICACHE_STATEMENT_INIT,                                  \
      aoticache_cache_check_statement(NULL, given, NULL, NULL, NULL, &error))                                          \
    X(aoticache_cache_decide, aoticache_trust_claim, AOTICACHE_TRUST_CLAIM_INIT,                                       \
      aoticache_cache_decide(NULL, given, NULL, &error))                                                               \
    X(aoticache_cache_push, aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT,                               \
      aoticache_cache_push(NULL, NULL, given, NULL, &error))                                                           \
    X(aoticache_cache_pull, aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT,                               \
      aoticache_cache_pull(NULL, NULL, given, NULL, &error))                                                           \
    X(aoticache_cache_get_statistics, aoticache_statistics_options, AOTICACHE_STATISTICS_OPTIONS_INIT,                 \
      aoticache_cache_get_statistics(NULL, given, NULL, &error))                                                       \
    X(aoticache_cache_list_latency, aoticache_statistics_options, AOTICACHE_STATISTICS_OPTIONS_INIT,                   \
      aoticache_cache_list_latency(NULL, 0, given, NULL, NULL, &error))                                                \
    X(aoticache_cache_list_groups, aoticache_statistics_options, AOTICACHE_STATISTICS_OPTIONS_INIT,                    \
      aoticache_cache_list_groups(NULL, 0, given, NULL, NULL, &error))                                                 \
    X(aoticache_library_load_fd, aoticache_load_options, AOTICACHE_LOAD_OPTIONS_INIT,                                  \
      aoticache_library_load_fd(-1, NULL, given, NULL, &error))                                                        \
    X(aoticache_runner_create, aoticache_runner_options, AOTICACHE_RUNNER_OPTIONS_INIT,                                \
      aoticache_runner_create(NULL, given, NULL, &error))                                                              \
    X(aoticache_runner_run_with, aoticache_run_options, AOTICACHE_RUN_OPTIONS_INIT,                                    \
      aoticache_runner_run_with(NULL, given, NULL, 1, NULL, 0, &error))                                                \
    X(aoticache_runner_fold_constants, aoticache_run_options, AOTICACHE_RUN_OPTIONS_INIT,                              \
      aoticache_runner_fold_constants(NULL, false, given, &error))                                                     \
    X(aoticache_runner_update_constants, aoticache_update_options, AOTICACHE_UPDATE_OPTIONS_INIT,                      \
      aoticache_runner_update_constants(NULL, given, NULL, 0, &error))                                                 \
    X(aoticache_device_backend_register, aoticache_device_backend, AOTICACHE_DEVICE_BACKEND_INIT,                      \
      aoticache_device_backend_register(given, &error))                                                                \
    X(aoticache_hook_create_worker, aoticache_hook_options, AOTICACHE_HOOK_OPTIONS_INIT,                               \
      aoticache_hook_create_worker(given, NULL, &error))                                                               \
    X(aoticache_hook_create_command, aoticache_hook_options, AOTICACHE_HOOK_OPTIONS_INIT,                              \
      aoticache_hook_create_command(given, NULL, &error))                                                              \
    X(aoticache_hook_create_c, aoticache_hook_options, AOTICACHE_HOOK_OPTIONS_INIT,                                    \
      aoticache_hook_create_c(given, NULL, &error))                                                                    \
    X(aoticache_hook_create_callback, aoticache_callback, AOTICACHE_CALLBACK_INIT,                                     \
      aoticache_hook_create_callback(given, NULL, &error))                                                             \
    X(aoticache_context_create, aoticache_context_options, AOTICACHE_CONTEXT_OPTIONS_INIT,                             \
      aoticache_context_create(given, NULL, &error))                                                                   \
    X(aoticache_context_open, aoticache_context_options, AOTICACHE_CONTEXT_OPTIONS_INIT,                               \
      aoticache_context_open(NULL, given, NULL, &error))                                                               \
    X(aoticache_holder_create, aoticache_holder_options, AOTICACHE_HOLDER_OPTIONS_INIT,                                \
      aoticache_holder_create(NULL, given, NULL, &error))                                                              \
    X(aoticache_package_load, aoticache_package_options, AOTICACHE_PACKAGE_OPTIONS_INIT,                               \
      aoticache_package_load(NULL, NULL, given, NULL, NULL, &error))                                                   \
    X(aoticache_package_load_key, aoticache_package_options, AOTICACHE_PACKAGE_OPTIONS_INIT,                           \
      aoticache_package_load_key(NULL, NULL, given, NULL, NULL, &error))                                               \
    X(aoticache_model_open, aoticache_model_options, AOTICACHE_MODEL_OPTIONS_INIT,                                     \
      aoticache_model_open(NULL, NULL, given, (aoticache_runner *[1]){NULL}, NULL, &error))                            \
    X(aoticache_model_lookup, aoticache_model_options, AOTICACHE_MODEL_OPTIONS_INIT,                                   \
      aoticache_model_lookup(NULL, NULL, given, NULL, NULL, &error))                                                   \
    X(aoticache_model_open_artifact, aoticache_model_options, AOTICACHE_MODEL_OPTIONS_INIT,                            \
      aoticache_model_open_artifact(NULL, NULL, NULL, given, NULL, NULL, &error))                                      \
    X(aoticache_binding_create, aoticache_binding_options, AOTICACHE_BINDING_OPTIONS_INIT,                             \
      aoticache_binding_create(given, NULL, &error))                                                                   \
    X(aoticache_binding_enable, aoticache_binding_operator_options, AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT,           \
      aoticache_binding_enable(NULL, given, NULL, &error))                                                             \
    X(aoticache_oplib_def_kernel, aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT,                                 \
      aoticache_oplib_def_kernel(new_oplib(AOTICACHE_OPLIB_DEF, "options"), "f(Tensor a) -> Tensor", 0, NULL, given,   \
                                 &error))                                                                              \
    X(aoticache_oplib_impl, aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT,                                       \
      aoticache_oplib_impl(new_oplib(AOTICACHE_OPLIB_IMPL, "options"), "f", "CPU", given, &error))                     \
    X(aoticache_oplib_impl_for_key, aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT,                               \
      aoticache_oplib_impl_for_key(new_oplib(AOTICACHE_OPLIB_IMPL, "options"), "f", AOTICACHE_DISPATCH_KEY_CPU, given, \
                                   &error))                                                                            \
    X(aoticache_oplib_fallback, aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT,                                   \
      aoticache_oplib_fallback(new_oplib(AOTICACHE_OPLIB_IMPL, "_"), "CPU", given, &error))                            \
    X(aoticache_oplib_fallback_for_key, aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT,                           \
      aoticache_oplib_fallback_for_key(new_oplib(AOTICACHE_OPLIB_IMPL, "_"), AOTICACHE_DISPATCH_KEY_CPU, given,        \
                                       &error))

/* Checks a function's message for one struct: it does not mention the size, or has both sizes. */
static void check(const char *function, const char *type, bool is_good, aoticache_status status,
                  const aoticache_error *error, size_t size, size_t known)
{
    if (is_good) {
        cr_assert_null(strstr(error->message, ".size is"), "%s with %zu bytes: %s", function, size, error->message);
        return;
    }
    cr_assert_eq(status, AOTICACHE_INVALID, "%s with %zu bytes", function, size);
    assert_names_both_sizes(error, type, size, known);
}

#define CALL(function, type, initializer, call)                                \
    static void call_##function(char *bytes, bool is_good, size_t size)        \
    {                                                                          \
        const type *given = (const type *)bytes;                               \
        aoticache_error error = {.message = ""};                               \
        aoticache_status status = call;                                        \
        check(#function, #type, is_good, status, &error, size, sizeof *given); \
    }
FUNCTIONS(CALL)
#undef CALL

static void call_with_all_sizes(void (*call)(char *bytes, bool is_good, size_t size), const void *defaults,
                                size_t known)
{
    for (size_t size = 0; size <= known + TAIL_BYTES; size++) {
        char *bytes = malloc(known + TAIL_BYTES);
        fill(bytes, defaults, known, size, SIZE_MAX);
        call(bytes, is_size(size), size);
        if (size > known) {
            fill(bytes, defaults, known, size, known);
            call(bytes, false, size);
            fill(bytes, defaults, known, size, size - 1);
            call(bytes, false, size);
        }
        if (size < known + TAIL_BYTES) { /* bytes after the struct do not belong to it */
            fill(bytes, defaults, known, size, size < known ? known : size);
            call(bytes, is_size(size), size);
        }
        free(bytes);
    }
}

/* clang-format off */ /* it takes a body of macros alone for a list */
Test(options, every_function_keeps_the_rule)
{
#define CALL_WITH_ALL_SIZES(function, type, initializer, call)                   \
    do {                                                                         \
        const type defaults = initializer;                                       \
        call_with_all_sizes(call_##function, &defaults, sizeof defaults);        \
    } while (0);
    FUNCTIONS(CALL_WITH_ALL_SIZES)
#undef CALL_WITH_ALL_SIZES
}/* clang-format on */

/* Fills in the caller's struct, whatever its size. A struct that cannot be read is unchanged. (function: aoticache_config_apply) */
Test(options, a_configuration_fills_in_as_much_as_the_struct_has)
{
    const aoticache_cache_options defaults = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config *config = NULL;
    cr_assert_eq(aoticache_config_read(NULL, (aoticache_logger){.log = NULL}, &config, NULL), AOTICACHE_OK);
    for (size_t size = 0; size <= sizeof defaults + TAIL_BYTES; size++) {
        char given[sizeof defaults + TAIL_BYTES + 1], before[sizeof given];
        fill(given, &defaults, sizeof defaults, size, SIZE_MAX);
        given[sizeof given - 1] = 'x';
        memcpy(before, given, sizeof given);
        aoticache_config_apply(config, (aoticache_cache_options *)given);
        const size_t known = size < sizeof defaults ? size : sizeof defaults;
        cr_assert_arr_eq(given + known, before + known, sizeof given - known, "%zu bytes", size);
        cr_assert_arr_eq(given, before, sizeof(size_t), "%zu bytes: the size stays", size);
        if (!is_size(size))
            cr_assert_arr_eq(given, before, sizeof given, "%zu bytes", size);
    }
    aoticache_config_free(config);
}
