/*
 * Unit tests of base/arguments.c, and of the errors of public functions for arguments that are NULL: each names the function
 * and the argument.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "aoticache.h"
#include "aoticache/admin.h"
#include "aoticache/dispatch.h"
#include "aoticache/remote.h"
#include "aoticache/runner.h"
#include "aoticache/torch.h"
#include "base/arguments.h"
#include "eager/dispatch/schema/schema_internal.h"
#include "eager/holder/holder_internal.h"

static int there;

static aoticache_status refuse(const void *first, const int *second, void (*third)(void), aoticache_error *error)
{
    return AOTICACHE_REFUSE_NULL_OF("f", error, first, second, third);
}

static void nothing(void) {}

Test(arguments, first_that_is_missing_is_named)
{
    aoticache_error error;
    cr_expect_eq(refuse(NULL, NULL, NULL, &error), AOTICACHE_INVALID);
    cr_expect_eq(error.status, AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "f: first is NULL");
    refuse(&there, NULL, nothing, &error);
    cr_expect_str_eq(error.message, "f: second is NULL");
    refuse(&there, &there, NULL, &error);
    cr_expect_str_eq(error.message, "f: third is NULL");
    cr_expect_eq(refuse(NULL, &there, nothing, NULL), AOTICACHE_INVALID, "without a place for the error");
    const struct {
        const void *inside;
    } options = {NULL}, *pointer = &options;
    AOTICACHE_REFUSE_NULL_OF("f", &error, pointer, pointer->inside);
    cr_expect_str_eq(error.message, "f: inside is NULL");
    AOTICACHE_REFUSE_NULL_OF("f", &error, pointer, options.inside);
    cr_expect_str_eq(error.message, "f: inside is NULL");
}

#define EXPECT(argument, function, ...)                                                       \
    do {                                                                                      \
        aoticache_error error = {.message = ""};                                              \
        cr_expect_eq(function(__VA_ARGS__, &error), AOTICACHE_INVALID);                       \
        cr_expect_str_eq(error.message, #function ": " argument " is NULL", "%s", #function); \
    } while (0)

/* A pointer for functions that check only whether it is NULL. */
#define SOME(type) ((type)(void *)&there)

Test(arguments, functions_of_eager_name_theirs)
{
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    aoticache_tensor_view view = AOTICACHE_TENSOR_VIEW_INIT;
    aoticache_holder *holder;
    aoticache_schema *schema;
    aoticache_operator *op;
    EXPECT("context", aoticache_holder_create, NULL, &options, &holder);
    EXPECT("ret_holder", aoticache_holder_create, SOME(aoticache_context *), &options, NULL);
    EXPECT("options.cache", aoticache_context_create, NULL, SOME(aoticache_context **));
    EXPECT("ret_context", aoticache_context_open, NULL, NULL, NULL);
    EXPECT("context", aoticache_context_wait, NULL, 0);
    EXPECT("context", aoticache_context_flush, NULL);
    EXPECT("context", aoticache_call, NULL, "aten::abs", &view, 1, &view, 1);
    EXPECT("op", aoticache_call, SOME(aoticache_context *), NULL, &view, 1, &view, 1);
    EXPECT("inputs", aoticache_call, SOME(aoticache_context *), "aten::abs", NULL, 1, &view, 1);
    EXPECT("ret_outputs", aoticache_call, SOME(aoticache_context *), "aten::abs", &view, 1, NULL, 1);
    EXPECT("holder", aoticache_holder_request, NULL, NULL, 0, SOME(aoticache_request **));
    EXPECT("ret_hook", aoticache_hook_create_c, NULL, NULL);
    EXPECT("ret_hook", aoticache_hook_create_worker, NULL, NULL);
    EXPECT("callback.compile", aoticache_hook_create_callback, &callback, SOME(aoticache_hook **));
    EXPECT("hook", aoticache_hook_compile, NULL, NULL, NULL, NULL, NULL);
    EXPECT("hook", aoticache_hook_set_environment, NULL, NULL);
    EXPECT("cache", aoticache_get_runner, NULL, NULL, NULL, NULL, NULL);
    EXPECT("text", aoticache_schema_parse, NULL, &schema);
    EXPECT("ret_schema", aoticache_schema_parse, "a::b() -> ()", NULL);
    EXPECT("b", aoticache_schema_check_same, SOME(aoticache_schema *), NULL);
    EXPECT("dispatcher", aoticache_dispatcher_find, NULL, "a::b", &op);
    EXPECT("ret_dispatcher", aoticache_dispatcher_create, NULL);
    EXPECT("stack", aoticache_operator_call, SOME(aoticache_operator *), NULL);
    EXPECT("oplib", aoticache_oplib_def, NULL, "b() -> ()", AOTICACHE_ALIAS_DEFAULT);
    EXPECT("name", aoticache_oplib_impl, SOME(aoticache_oplib *), NULL, "CPU", NULL);
    EXPECT("ret_runner", aoticache_model_open, SOME(aoticache_cache *), "name", NULL, NULL, NULL);
    EXPECT("path", aoticache_package_load, SOME(aoticache_cache *), NULL, NULL, SOME(aoticache_runner **), NULL);
    EXPECT("options.context", aoticache_binding_create, NULL, SOME(aoticache_binding **));
}

Test(arguments, functions_of_loader_name_theirs)
{
    const int64_t size = 3;
    AtenTensorHandle tensor;
    aoticache_library *library;
    EXPECT("ret_torch", aoticache_torch_get, NULL);
    EXPECT("name", aoticache_library_load_fd, 0, NULL, NULL, &library);
    EXPECT("ret_library", aoticache_library_load_fd, 0, "a name", NULL, NULL);
    EXPECT("ret_description", aoticache_library_describe, 0, NULL);
    EXPECT("ret_tensor", aoticache_tensor_from_blob, &there, AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, NULL);
    EXPECT("ret_tensor", aoticache_tensor_new, AOTICACHE_DTYPE_FLOAT32, AOTICACHE_DEVICE_CPU, 1, &size, NULL, NULL,
           NULL);
    EXPECT("sizes", aoticache_tensor_new, AOTICACHE_DTYPE_FLOAT32, AOTICACHE_DEVICE_CPU, 1, NULL, NULL, &tensor, NULL);
    EXPECT("sizes", aoticache_tensor_from_blob, &there, AOTICACHE_DTYPE_FLOAT32, 1, NULL, NULL, &tensor);
    EXPECT("tensor", aoticache_tensor_get_view, NULL, SOME(aoticache_tensor_view *));
    EXPECT("ret_view", aoticache_tensor_get_view, SOME(AtenTensorHandle), NULL);
    EXPECT("library", aoticache_runner_create, NULL, NULL, SOME(aoticache_runner **));
    EXPECT("ret_runner", aoticache_runner_create, SOME(aoticache_library *), NULL, NULL);
    EXPECT("runner", aoticache_runner_run_with, NULL, NULL, NULL, 0, NULL, 0);
    EXPECT("runner", aoticache_runner_swap_constants, NULL);
    EXPECT("runner", aoticache_runner_free_inactive_constants, NULL);
    EXPECT("runner", aoticache_runner_update_constants, NULL, NULL, NULL, 0);
    EXPECT("blob", aoticache_runner_update_constants_from_blob, SOME(aoticache_runner *), NULL, 1);
    EXPECT("callback", aoticache_runner_extract_constants, SOME(aoticache_runner *), false, NULL, NULL);
    EXPECT("text", aoticache_check_parse, NULL, SOME(aoticache_check **));
    EXPECT("tensors", aoticache_check_create_exact, NULL, 1, SOME(aoticache_check **));
    EXPECT("ret_package", aoticache_package_open_fd, 0, "a name", NULL);
    EXPECT("ret_cuda", aoticache_cuda_get, NULL);
}

Test(arguments, functions_of_cache_name_theirs)
{
    aoticache_request *request;
    EXPECT("ret_cache", aoticache_cache_open, NULL, NULL);
    EXPECT("product", aoticache_cache_put, NULL, NULL, NULL, NULL);
    EXPECT("request", aoticache_cache_lookup, SOME(aoticache_cache *), NULL, NULL, SOME(aoticache_artifact **));
    EXPECT("compile_hook", aoticache_cache_get_or_compile, SOME(aoticache_cache *), SOME(aoticache_request *), NULL,
           NULL, NULL, SOME(aoticache_artifact **));
    EXPECT("op", aoticache_request_create, NULL, AOTICACHE_DEVICE_CPU, &request);
    EXPECT("line", aoticache_request_parse, NULL, AOTICACHE_REQUEST_TEXT, &request);
    EXPECT("cache", aoticache_cache_list_groups, NULL, 0, NULL, NULL, NULL);
    EXPECT("cache", aoticache_cache_export, NULL, 1, NULL, NULL);
}
