/* Unit tests of calls: eager/dispatch/operator_call.c, plan.c, default_values.c. */
#include "dispatch_call_fixture.h"
#include "eager/dispatch/questions.h"

#include <pthread.h>

TestSuite(dispatch_call, .init = dispatcher_begin, .fini = dispatcher_end, .timeout = 600);

/* ---- from arguments to kernels ---- */

Test(dispatch_call, highest_key_of_all_tensors_decides)
{
    const aoticache_operator *op = begin("f(Tensor a, int n, Tensor? b, Tensor[] c, Tensor?[] d) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "CUDA", plain_kernel(2));
    add(def, "f", "AutogradCUDA", plain_kernel(3));
    add(def, "f", "SparseCPU", plain_kernel(4));
    const aoticache_value cpu = tensor_of(SET(CPU)), none = {.kind = AOTICACHE_VALUE_NONE};
    const aoticache_tensor_view *cuda[] = {NULL, tensor_of(SET(CUDA)).as.tensor},
                                *sparse[] = {tensor_of(SET(SparseCPU)).as.tensor};
    const aoticache_value empty = {.kind = AOTICACHE_VALUE_TENSOR_LIST},
                          on_cuda = {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 2, .as.tensors = cuda},
                          on_sparse = {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 1, .as.tensors = sparse};
    succeeds(call_on(op, VALUES(cpu, int_of(1), none, empty, empty)));
    cr_expect_eq(reached, 1);
    succeeds(call_on(op, VALUES(cpu, int_of(1), tensor_of(SET(CUDA)), empty, empty)));
    cr_expect_eq(reached, 2);
    succeeds(call_on(op, VALUES(cpu, int_of(1), none, empty, on_cuda)));
    cr_expect_eq(reached, 2);
    succeeds(call_on(op, VALUES(cpu, int_of(1), none, on_sparse, empty)));
    cr_expect_eq(reached, 4);
    cr_expect_eq(reached_keys, SET(CPU) | SET(SparseCPU));
    succeeds(call_on(op, VALUES(tensor_of(SET(AutogradCUDA) | SET(CUDA)), int_of(1), none, empty, empty)));
    cr_expect_eq(reached, 3);
    aoticache_oplib_free(def);
}

Test(dispatch_call, tensor_without_a_set_has_its_devices_key)
{
    begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", NULL, plain_kernel(2));
    places[0] = tensor_of(0);
    stack.count = 1;
    succeeds(aoticache_operator_call(find("t::f"), &stack, &error));
    cr_assert_eq(reached, 1);
    /* An undefined tensor has AutogradOther, for which the composite kernel is used too. */
    places[0] = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = NULL};
    stack.count = 1;
    succeeds(aoticache_operator_call(find("t::f"), &stack, &error));
    cr_assert_eq(reached, 2);
    aoticache_oplib_free(def);
}

Test(dispatch_call, view_says_the_keys_of_its_tensor)
{
    const aoticache_tensor_view plain = {.device = {.type = AOTICACHE_DEVICE_TYPE_CUDA}};
    cr_expect_eq(aoticache_tensor_view_key_set(&plain), SET(CUDA));
    cr_expect_eq(aoticache_tensor_view_key_set(tensor_of(SET(SparseCPU)).as.tensor), SET(SparseCPU));
    cr_expect_eq(aoticache_tensor_view_key_set(NULL),
                 aoticache_key_set_of_tensor(AOTICACHE_DISPATCH_KEY_Undefined, false));
}

Test(dispatch_call, thread_sets_are_added_and_taken)
{
    begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "Tracer", plain_kernel(2));
    aoticache_dispatch_include(AOTICACHE_DISPATCH_KEY_Tracer, true);
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 2);
    aoticache_dispatch_exclude(AOTICACHE_DISPATCH_KEY_Tracer, true);
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 1);
    aoticache_oplib_free(def);
}

static void *call_in_new_thread(void *user)
{
    *(int *)user = number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU);
    return NULL;
}

/* A new thread has PyTorch's sets, which contain keys that only need fallthroughs. */
Test(dispatch_call, usual_fallbacks_let_a_new_thread_reach_a_device_kernel)
{
    int before = 0, after = 0;
    pthread_t thread;
    begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    cr_assert_eq(pthread_create(&thread, NULL, call_in_new_thread, &before), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(before, -1);
    aoticache_oplib *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 2);
    succeeds(aoticache_oplib_fall_through_usual(any, &error));
    cr_assert_eq(pthread_create(&thread, NULL, call_in_new_thread, &after), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(after, 1);
    places[0] = tensor_of(SET(CPU) | SET(AutogradCPU));
    stack.count = 1;
    succeeds(aoticache_operator_call(find("t::f"), &stack, &error));
    cr_expect_eq(reached, 1);
    aoticache_oplib_free(any);
    aoticache_oplib_free(def);
}

Test(dispatch_call, fallthrough_on_one_backend_leaves_the_others)
{
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "CUDA", plain_kernel(2));
    add(def, "f", "AutogradCUDA", plain_kernel(3));
    add(def, "f", "AutogradCPU", fallthrough());
    places[0] = tensor_of(SET(CPU) | SET(AutogradCPU));
    stack.count = 1;
    cr_expect_eq(aoticache_operator_key_set(op, &stack), SET(CPU));
    succeeds(aoticache_operator_call(op, &stack, &error));
    cr_expect_eq(reached, 1);
    succeeds(call_on(op, VALUES(tensor_of(SET(CUDA) | SET(AutogradCUDA)))));
    cr_expect_eq(reached, 3);
    /* With its kernel registered again, no key falls through any longer. */
    add(def, "f", "AutogradCPU", plain_kernel(4));
    succeeds(call_on(op, VALUES(tensor_of(SET(CPU) | SET(AutogradCPU)))));
    cr_expect_eq(reached, 4);
    aoticache_oplib_free(def);
}

Test(dispatch_call, redispatch_takes_the_set_as_it_is)
{
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "AutogradCPU", plain_kernel(2));
    add(def, "f", "Tracer", fallthrough());
    aoticache_dispatch_include(AOTICACHE_DISPATCH_KEY_AutogradCPU, true);
    succeeds(aoticache_operator_redispatch(op, SET(CPU), &stack, &error));
    cr_expect_eq(reached, 1);
    cr_expect_eq(aoticache_operator_redispatch(op, SET(CPU) | SET(Tracer), &stack, &error), AOTICACHE_NOT_FOUND);
    cr_expect_not_null(strstr(error.message, "fallthrough"), "%s", error.message);
    cr_expect_eq(aoticache_operator_redispatch(op, UINT64_MAX, &stack, &error), AOTICACHE_NOT_FOUND);
    aoticache_oplib_free(def);
}

/* The key is the one that it is registered for, whatever keys the arguments have. */
Test(dispatch_call, fallthrough_that_is_reached_names_its_key)
{
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    aoticache_oplib *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 2);
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "AutogradCPU", fallthrough());
    succeeds(aoticache_oplib_fallback(any, "Tracer", fallthrough(), &error));
    places[0] = tensor_of(SET(CPU));
    stack.count = 1;
    cr_expect_eq(aoticache_operator_call_for_key(op, AOTICACHE_DISPATCH_KEY_AutogradCPU, &stack, &error),
                 AOTICACHE_NOT_FOUND);
    cr_expect_str_eq(error.message, "t::f: the registration for AutogradCPU (registered at /x/f.c:1) is a "
                                    "fallthrough, not a kernel");
    cr_expect_eq(aoticache_operator_call_for_key(op, AOTICACHE_DISPATCH_KEY_Tracer, &stack, &error),
                 AOTICACHE_NOT_FOUND);
    cr_expect_str_eq(error.message, "t::f: the registration for Tracer (registered at /x/f.c:2) is a fallthrough, "
                                    "not a kernel");
    aoticache_oplib_free(any);
    aoticache_oplib_free(def);
}

Test(dispatch_call, none_for_a_tensor_is_an_undefined_one)
{
    const aoticache_operator *op = begin("f(Tensor a, Tensor b, Tensor[] c, int n) -> ()");
    const aoticache_value none = {.kind = AOTICACHE_VALUE_NONE, .as.int_value = -1},
                          empty = {.kind = AOTICACHE_VALUE_TENSOR_LIST};
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "ADInplaceOrView", fallthrough());
    add(def, "f", "Autograd", fallthrough());
    succeeds(call_on(op, VALUES(tensor_of(SET(CPU)), none, empty, int_of(1))));
    cr_expect_eq(reached, 1);
    cr_expect_eq(reached_keys, SET(CPU));
    cr_expect(places[1].kind == AOTICACHE_VALUE_TENSOR && places[1].as.tensor == NULL, "the kernel saw no tensor");
    is_refused(call_on(op, VALUES(tensor_of(SET(CPU)), none, none, int_of(1))),
               "argument 3 (c) must be of type Tensor[], "
               "but it is: none");
    is_refused(call_on(op, VALUES(tensor_of(SET(CPU)), none, empty, none)), "argument 4 (n) must be of type int");
    aoticache_oplib_free(def);
}

Test(dispatch_call, call_for_key_takes_that_kernel_or_the_fallback)
{
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    aoticache_oplib *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 2);
    aoticache_boxed_kernel for_all = plain_kernel(5);
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "CompositeExplicitAutograd", plain_kernel(2));
    succeeds(aoticache_oplib_fallback(any, "XLA", &for_all, &error));
    static const struct {
        aoticache_dispatch_key key;
        int number;
    } cases[] = {{AOTICACHE_DISPATCH_KEY_CPU, 1},
                 {AOTICACHE_DISPATCH_KEY_CompositeExplicitAutograd, 2},
                 {AOTICACHE_DISPATCH_KEY_XLA, 5},
                 {AOTICACHE_DISPATCH_KEY_CUDA, -1},
                 {AOTICACHE_DISPATCH_KEY_Autograd, -1},
                 {-7, -1},
                 {4000, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        places[0] = tensor_of(SET(CPU));
        stack.count = 1;
        aoticache_status status = aoticache_operator_call_for_key(op, cases[i].key, &stack, &error);
        cr_expect_eq(status, cases[i].number >= 0 ? AOTICACHE_OK : AOTICACHE_NOT_FOUND, "%d", cases[i].key);
        cr_expect(cases[i].number < 0 || reached == cases[i].number, "%d", cases[i].key);
    }
    aoticache_oplib_free(any);
    aoticache_oplib_free(def);
}

/* ---- what a call refuses ---- */

Test(dispatch_call, missing_kernel_names_key_operator_and_what_there_is)
{
    begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "Autograd", plain_kernel(2));
    cr_assert_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_CUDA), AOTICACHE_NOT_FOUND);
    cr_assert_str_eq(error.message, "t::f: no kernel for CUDA; there are kernels for: CPU, Autograd");
    aoticache_oplib_free(def);
}

Test(dispatch_call, wrong_arguments_are_named_and_leave_the_stack)
{
    const aoticache_operator *op = begin("f(Tensor a, int[] sizes, float? p=None) -> ()");
    const aoticache_value number = {.kind = AOTICACHE_VALUE_DOUBLE}, none = {.kind = AOTICACHE_VALUE_NONE},
                          odd = {.kind = 77};
    add(def, "f", "CPU", plain_kernel(1));
    is_refused(call_on(op, VALUES(tensor_of(SET(CPU)))), "takes 3 arguments, but 1 are on the stack (missing is "
                                                         "sizes)");
    is_refused(call_on(op, VALUES(tensor_of(SET(CPU)), number, none)), "argument 2 (sizes) must be of type int[], but "
                                                                       "it is: double");
    is_refused(call_on(op, VALUES(tensor_of(SET(CPU)), odd, none)), "but it is: ?");
    is_refused(call_on(op, VALUES(int_of(1), odd, none)), "argument 1 (a) must be of type Tensor, but it is: int");
    cr_expect_eq(stack.count, 3);
    is_refused(aoticache_operator_call(op, NULL, &error), "aoticache_operator_call: stack is NULL");
    is_refused(aoticache_operator_call(NULL, &stack, &error), "aoticache_operator_call: op is NULL");
    aoticache_oplib_free(def);
    cr_expect_eq(call_on(op, VALUES(tensor_of(SET(CPU)))), AOTICACHE_NOT_FOUND);
}

/* ---- keyword arguments and defaults ---- */

Test(dispatch_call, push_arguments_puts_keywords_and_defaults_in_order)
{
    const aoticache_operator *op = begin("f(Tensor a, int[2] stride=1, *, float p=0.5, bool b=True, ScalarType? "
                                         "d=None, "
                                         "str s='x', MemoryFormat m=contiguous_format, Scalar n=3) -> ()");
    const char *names[] = {"d", "p"};
    const aoticache_value values[] = {{.kind = AOTICACHE_VALUE_DTYPE, .as.int_value = 6},
                                      {.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = 2}};
    add(def, "f", "CPU", plain_kernel(1));
    places[0] = tensor_of(SET(CPU));
    stack.count = 1;
    succeeds(aoticache_operator_push_arguments(op, 1, names, values, 2, &stack, &error));
    cr_assert_eq(stack.count, 8);
    cr_expect(places[1].kind == AOTICACHE_VALUE_INT_LIST && places[1].count == 2 && places[1].as.ints[1] == 1);
    cr_expect(places[2].kind == AOTICACHE_VALUE_DOUBLE && places[2].as.double_value == 2);
    cr_expect(places[3].kind == AOTICACHE_VALUE_BOOL && places[3].as.bool_value);
    cr_expect(places[4].kind == AOTICACHE_VALUE_DTYPE && places[4].as.int_value == 6);
    cr_expect(places[5].kind == AOTICACHE_VALUE_STRING && strcmp(places[5].as.string, "x") == 0);
    cr_expect(places[6].kind == AOTICACHE_VALUE_MEMORY_FORMAT &&
              places[6].as.int_value == AOTICACHE_MEMORY_FORMAT_CONTIGUOUS);
    cr_expect(places[7].kind == AOTICACHE_VALUE_INT && places[7].as.int_value == 3);
    succeeds(aoticache_operator_call(op, &stack, &error));
    aoticache_oplib_free(def);
}

Test(dispatch_call, push_arguments_that_are_wrong_leave_the_stack)
{
    const aoticache_operator *op = begin("f(Tensor a, int n, int k=1) -> ()");
    const char *names[] = {"n", "n"}, *first[] = {"a"}, *unknown[] = {"zz"};
    const aoticache_value values[] = {int_of(1), int_of(2)};
    aoticache_stack small = {.values = places, .capacity = 2, .count = 1};
    stack.count = 1;
    places[0] = tensor_of(SET(CPU));
    is_refused(aoticache_operator_push_arguments(op, 1, names, values, 2, &stack, &error),
               "argument n is passed twice");
    is_refused(aoticache_operator_push_arguments(op, 1, first, values, 1, &stack, &error),
               "argument a is passed twice");
    is_refused(aoticache_operator_push_arguments(op, 1, unknown, values, 1, &stack, &error), "no argument zz");
    is_refused(aoticache_operator_push_arguments(op, 1, NULL, NULL, 0, &stack, &error), "argument 2 (n) is missing");
    is_refused(aoticache_operator_push_arguments(op, 2, NULL, NULL, 0, &stack, &error), "the call says that");
    is_refused(aoticache_operator_push_arguments(op, 1, names, values, 1, &small, &error), "the stack has space for");
    cr_expect_eq(stack.count, 1);
    stack.count = 4;
    is_refused(aoticache_operator_push_arguments(op, 4, NULL, NULL, 0, &stack, &error),
               "takes 3 arguments, but 4 were passed");
    aoticache_oplib_free(def);
}
