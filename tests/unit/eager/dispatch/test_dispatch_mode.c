/*
 * Unit tests of what sees calls in addition to kernels: modes (eager/dispatch/thread.c), the observer, kernels before
 * others and kernels that a caller holds (operator_call.c).
 */
#include "dispatch_call_fixture.h"
#include "eager/dispatch/questions.h"

TestSuite(dispatch_mode, .init = dispatcher_begin, .fini = dispatcher_end, .timeout = 600);

/* ---- modes and the observer ---- */

static size_t count_inside;

static aoticache_status pass_on(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *on,
                                aoticache_error *ret_error)
{
    (void)op, (void)keys, (void)on, (void)ret_error;
    seen[seen_count++ % 8] = *(const int *)user;
    count_inside = aoticache_dispatch_mode_count();
    return AOTICACHE_UNSUPPORTED;
}

/* Calls the operator again, and leaves a mode pushed. */
static aoticache_status answer(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *on,
                               aoticache_error *ret_error)
{
    pass_on(user, op, keys, on, ret_error);
    aoticache_status status = aoticache_operator_call(op, on, ret_error);
    aoticache_dispatch_mode_pop(); /* no effect: the mode is running */
    aoticache_dispatch_mode_push(&(aoticache_dispatch_mode){.call = pass_on, .user = &numbers[9]}, NULL);
    return status;
}

Test(dispatch_mode, modes_see_calls_from_the_top_and_are_off_while_they_run)
{
    const aoticache_dispatch_mode low = {.call = pass_on, .user = &numbers[1]},
                                  high = {.call = answer, .user = &numbers[2]};
    begin("f(Tensor a) -> ()");
    add(def, "f", "CPU", plain_kernel(7));
    succeeds(aoticache_dispatch_mode_push(&low, &error));
    succeeds(aoticache_dispatch_mode_push(&high, &error));
    cr_assert_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 7);
    cr_assert_eq(seen_count, 2);
    cr_expect(seen[0] == 2 && seen[1] == 1);
    cr_expect_eq(count_inside, 0);
    cr_expect_eq(aoticache_dispatch_mode_count(), 2, "what the mode left behind is off");
    aoticache_dispatch_mode_pop();
    cr_assert_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 7);
    cr_expect_eq(seen[2], 1);
    aoticache_dispatch_mode_pop();
    aoticache_dispatch_mode_pop();
    cr_assert_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 7);
    cr_expect_eq(seen_count, 3);
    aoticache_oplib_free(def);
}

/* Records its number and redispatches below its own key. */
static aoticache_status redispatch_below(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                         aoticache_stack *on, aoticache_error *ret_error)
{
    seen[seen_count++ % 8] = *(const int *)user;
    return aoticache_operator_redispatch(op, keys & aoticache_key_set_full_after(AOTICACHE_DISPATCH_KEY_AutogradCPU),
                                         on, ret_error);
}

static aoticache_boxed_kernel autograd_kernel(int number)
{
    aoticache_boxed_kernel kernel = plain_kernel(number);
    kernel.call = redispatch_below;
    return kernel;
}

static aoticache_key_set excluded_inside;

/* Calls the operator again for its result. */
static aoticache_status call_again(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                   aoticache_stack *on, aoticache_error *ret_error)
{
    excluded_inside = aoticache_dispatch_get_local().excluded;
    pass_on(user, op, keys, on, ret_error);
    return aoticache_operator_call(op, on, ret_error);
}

Test(dispatch_mode, modes_stand_at_the_python_key)
{
    const aoticache_dispatch_mode low = {.call = pass_on, .user = &numbers[1]},
                                  high = {.call = call_again, .user = &numbers[2]};
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    const aoticache_value tensor = tensor_of(SET(CPU) | SET(AutogradCPU));
    add(def, "f", "CPU", plain_kernel(7));
    add(def, "f", "AutogradCPU", autograd_kernel(5));
    succeeds(aoticache_dispatch_mode_push(&low, &error));
    succeeds(aoticache_dispatch_mode_push(&high, &error));
    succeeds(call_on(op, VALUES(tensor)));
    cr_expect(seen_count == 3 && seen[0] == 5 && seen[1] == 2 && seen[2] == 1, "autograd first, once, then the modes");
    cr_expect(reached == 7 && reached_keys == (SET(CPU)), "%#lx", (unsigned long)reached_keys);
    cr_expect(excluded_inside & SET(AutogradFunctionality));
    cr_expect_not(excluded_inside & (SET(PythonDispatcher) | SET(BackendSelect)));
    cr_expect_eq(aoticache_dispatch_get_local().excluded, 0);
    cr_expect_eq(aoticache_operator_key_set(op, (stack.count = 1, &stack)), SET(CPU) | SET(AutogradCPU) | SET(Python));
    /* Only the key set decides whether a redispatch calls modes. */
    seen_count = 0;
    stack.count = 1;
    succeeds(aoticache_operator_redispatch(op, SET(CPU), &stack, &error));
    cr_expect_eq(seen_count, 0);
    stack.count = 1;
    succeeds(aoticache_operator_redispatch(op, SET(CPU) | SET(Python), &stack, &error));
    cr_expect_eq(seen_count, 2);
    aoticache_dispatch_exclude(AOTICACHE_DISPATCH_KEY_Python, true);
    succeeds(call_on(op, VALUES(tensor)));
    cr_expect_eq(seen_count, 3, "autograd alone");
    aoticache_dispatch_exclude(AOTICACHE_DISPATCH_KEY_Python, false);
    aoticache_dispatch_mode_pop();
    aoticache_dispatch_mode_pop();
    aoticache_oplib_free(def);
}

Test(dispatch_mode, modes_stand_between_an_operators_python_kernel_and_the_fallback)
{
    const aoticache_dispatch_mode mode = {.call = pass_on, .user = &numbers[1]};
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    aoticache_boxed_kernel for_all = plain_kernel(5);
    aoticache_oplib *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 2),
                    *own = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 3);
    add(def, "f", "CPU", plain_kernel(7));
    succeeds(aoticache_oplib_fallback(any, "Python", &for_all, &error));
    succeeds(aoticache_dispatch_mode_push(&mode, &error));
    succeeds(call_on(op, VALUES(tensor_of(SET(CPU)))));
    cr_expect(seen_count == 1 && reached == 7, "no tensor has Python: the fallback is not wanted");
    succeeds(call_on(op, VALUES(tensor_of(SET(CPU) | SET(Python)))));
    cr_expect(seen_count == 2 && reached == 5);
    places[0] = tensor_of(SET(CPU));
    stack.count = 1;
    succeeds(aoticache_operator_call_for_key(op, AOTICACHE_DISPATCH_KEY_Python, &stack, &error));
    cr_expect(seen_count == 3 && reached == 5);
    add(own, "f", "Python", plain_kernel(6));
    succeeds(call_on(op, VALUES(tensor_of(SET(CPU)))));
    cr_expect(seen_count == 3 && reached == 6);
    aoticache_oplib_free(own);
    own = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 3);
    add(own, "f", "Python", fallthrough());
    succeeds(call_on(op, VALUES(tensor_of(SET(CPU) | SET(Python)))));
    cr_expect(seen_count == 3 && reached == 7);
    aoticache_dispatch_mode_pop();
    aoticache_oplib_free(own);
    aoticache_oplib_free(any);
    aoticache_oplib_free(def);
}

Test(dispatch_mode, more_than_64_modes_are_refused)
{
    const aoticache_dispatch_mode mode = {.call = pass_on, .user = &numbers[1]}, none = {.call = NULL};
    for (int i = 0; i < 64; i++)
        succeeds(aoticache_dispatch_mode_push(&mode, &error));
    is_refused(aoticache_dispatch_mode_push(&mode, &error), "64 modes");
    is_refused(aoticache_dispatch_mode_push(&none, &error), "call is NULL");
    cr_assert_eq(aoticache_dispatch_mode_count(), 64);
    for (int i = 0; i < 64; i++)
        aoticache_dispatch_mode_pop();
    cr_assert_eq(aoticache_dispatch_mode_count(), 0);
}

static int befores, afters;
static aoticache_status status_seen;

static void *before(void *user, const aoticache_operator *op, aoticache_key_set keys, const aoticache_stack *on)
{
    (void)op;
    befores += user == &befores && keys == SET(CPU) && on->count == 1;
    return &afters;
}

static void after(void *user, void *token, const aoticache_operator *op, aoticache_status status)
{
    (void)user, (void)op;
    afters += token == &afters;
    status_seen = status;
}

Test(dispatch_mode, observer_sees_every_kernel_before_and_after)
{
    const aoticache_call_observer observer = {.before = before, .after = after, .user = &befores};
    begin("f(Tensor a) -> ()");
    succeeds(aoticache_dispatcher_observe(dispatcher, &observer, &error));
    cr_assert_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_CPU), AOTICACHE_NOT_FOUND);
    cr_assert(befores == 1 && afters == 1 && status_seen == AOTICACHE_NOT_FOUND);
    succeeds(aoticache_dispatcher_observe(dispatcher, NULL, &error));
    call_with("t::f", AOTICACHE_DISPATCH_KEY_CPU);
    cr_assert(befores == 1 && afters == 1);
    aoticache_oplib_free(def);
}

/* ---- kernels before others ---- */

static aoticache_status call_below(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                   aoticache_stack *on, aoticache_error *ret_error)
{
    seen[seen_count++ % 8] = *(const int *)user;
    return aoticache_operator_call_previous(op, AOTICACHE_DISPATCH_KEY_CPU, user, keys, on, ret_error);
}

static aoticache_boxed_kernel before_others(int number)
{
    aoticache_boxed_kernel kernel = plain_kernel(number);
    kernel.call = call_below;
    kernel.wants_previous = true;
    return kernel;
}

Test(dispatch_mode, previous_is_what_the_key_would_have_without_the_kernel)
{
    begin("f(Tensor a) -> ()");
    aoticache_oplib *a = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 2),
                    *b = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 3),
                    *c = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 4);
    add(a, "f", NULL, before_others(1));
    cr_expect_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_CPU), AOTICACHE_NOT_FOUND);
    add(c, "f", NULL, plain_kernel(3));
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 3, "the implicit kernel, registered later");
    add(b, "f", NULL, before_others(2));
    seen_count = 0;
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 3);
    cr_expect(seen_count == 2 && seen[0] == 2 && seen[1] == 1);
    succeeds(aoticache_dispatcher_check(dispatcher, &error));
    aoticache_oplib_free(a);
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 3);
    aoticache_oplib_free(c);
    cr_expect_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_CPU), AOTICACHE_NOT_FOUND);
    aoticache_oplib_free(b);
    aoticache_oplib_free(def);
}

/* ---- kernels that a caller holds ---- */

static aoticache_computed_kernel *computed(const aoticache_operator *op, aoticache_dispatch_key key)
{
    aoticache_computed_kernel *kernel = NULL;
    succeeds(aoticache_operator_get_computed_kernel(op, key, &kernel, &error));
    return kernel;
}

static int reached_by(const aoticache_computed_kernel *kernel)
{
    reached = -1;
    places[0] = tensor_of(SET(CPU));
    stack.count = 1;
    return aoticache_computed_kernel_call(kernel, SET(CPU), &stack, &error) == AOTICACHE_OK ? reached : -1;
}

Test(dispatch_mode, computed_kernel_outlives_overrides_and_ends_with_its_registration)
{
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    aoticache_oplib *low = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2),
                    *high = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 3);
    add(low, "f", "CPU", released_kernel(1));
    aoticache_computed_kernel *kernel = computed(op, AOTICACHE_DISPATCH_KEY_CPU);
    add(high, "f", "CPU", plain_kernel(2));
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 2);
    cr_expect_eq(reached_by(kernel), 1);
    cr_expect_eq(reached_keys, SET(CPU));
    cr_expect_str_eq(aoticache_computed_kernel_debug(kernel), "registered at /x/f.c:2");
    aoticache_oplib_free(low);
    cr_expect_eq(releases[1], 1, "a kernel that is held is released when it is taken back");
    cr_expect_eq(reached_by(kernel), -1);
    cr_expect_str_eq(error.message, "t::f: the kernel for CPU (registered at /x/f.c:2) was unregistered");
    aoticache_computed_kernel_free(kernel);
    aoticache_computed_kernel_free(NULL);
    aoticache_oplib_free(high);
    aoticache_oplib_free(def);
}

Test(dispatch_mode, computed_kernel_is_what_the_table_has)
{
    aoticache_computed_kernel *kernel = NULL;
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    aoticache_oplib *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 2);
    aoticache_boxed_kernel for_all = plain_kernel(5);
    add(def, "f", "CompositeExplicitAutograd", plain_kernel(1));
    add(def, "f", "AutogradCPU", fallthrough());
    succeeds(aoticache_oplib_fallback(any, "Tracer", &for_all, &error));
    kernel = computed(op, AOTICACHE_DISPATCH_KEY_CUDA);
    cr_expect_eq(reached_by(kernel), 1);
    aoticache_computed_kernel_free(kernel);
    kernel = computed(op, AOTICACHE_DISPATCH_KEY_Tracer);
    cr_expect_eq(reached_by(kernel), 5);
    aoticache_oplib_free(any);
    cr_expect_eq(reached_by(kernel), -1);
    aoticache_computed_kernel_free(kernel);
    kernel = computed(op, AOTICACHE_DISPATCH_KEY_AutogradCPU);
    cr_expect(aoticache_computed_kernel_is_fallthrough(kernel));
    cr_expect_eq(reached_by(kernel), -1);
    aoticache_computed_kernel_free(kernel);
    cr_expect_eq(aoticache_operator_get_computed_kernel(op, AOTICACHE_DISPATCH_KEY_AutogradCUDA, &kernel, &error),
                 AOTICACHE_NOT_FOUND);
    is_refused(aoticache_operator_get_computed_kernel(op, AOTICACHE_DISPATCH_KEY_Autograd, &kernel, &error),
               "invalid key 150 (Autograd)");
    is_refused(aoticache_operator_get_computed_kernel(op, -4, &kernel, &error), "invalid key -4");
    add(def, "f", NULL, plain_kernel(2));
    add(def, "f", "SparseCPU", plain_kernel(2));
    is_refused(aoticache_operator_get_computed_kernel(op, AOTICACHE_DISPATCH_KEY_AutogradOther, &kernel, &error),
               "ambiguous");
    aoticache_oplib_free(def);
}

static aoticache_status call_held(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *on,
                                  aoticache_error *ret_error)
{
    (void)op;
    seen[seen_count++ % 8] = 9;
    return seen_count < 8 ? aoticache_computed_kernel_call(user, keys, on, ret_error) : AOTICACHE_RUN_FAILED;
}

/*
 * A held kernel over which others have been registered still finds the kernel below itself, not the one that calls it.
 */
Test(dispatch_mode, computed_kernel_that_wants_its_previous_finds_it)
{
    const aoticache_operator *op = begin("f(Tensor a) -> ()");
    aoticache_oplib *low = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2),
                    *high = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 3);
    add(def, "f", NULL, plain_kernel(3));
    add(low, "f", "CPU", before_others(1));
    aoticache_computed_kernel *held = computed(op, AOTICACHE_DISPATCH_KEY_CPU);
    aoticache_boxed_kernel over = AOTICACHE_BOXED_KERNEL_INIT;
    over.call = call_held;
    over.user = held;
    add(high, "f", "CPU", over);
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 3);
    cr_expect(seen_count == 2 && seen[0] == 9 && seen[1] == 1, "%d were asked", seen_count);
    cr_expect_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_AutogradCPU), AOTICACHE_NOT_FOUND);
    cr_expect_not_null(strstr(error.message, "there are kernels for: CompositeImplicitAutograd, CPU"), "%s",
                       error.message);
    aoticache_oplib_free(high);
    aoticache_oplib_free(low);
    aoticache_computed_kernel_free(held);
    aoticache_oplib_free(def);
}
