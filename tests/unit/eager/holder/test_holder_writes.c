/* Unit tests of operators that write to their arguments: what the schema says, and which tensors do not overlap. */
#include "eager/holder/holder_internal.h"
#include "tests/unit/fixtures/holder_fixture.h"

#include <string.h>

TestSuite(holder_writes, .init = fixture_begin, .fini = fixture_end, .timeout = 120);

static float memory[256];

static void begin_context(void)
{
    begin_with("", true);
    aoticache_context_options options = eager_options();
    make_eager(&options);
}

static aoticache_holder *make_in_place(const char *schema)
{
    aoticache_holder_options options = holder_options(schema);
    aoticache_holder *made = NULL;
    options.in_place = true;
    cr_assert_eq(aoticache_holder_create(eager, &options, &made, &error), AOTICACHE_OK, "%s", error.message);
    return made;
}

static aoticache_tensor_view view_of(size_t offset, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    aoticache_tensor_view view = {.data = memory + offset,
                                  .dtype = AOTICACHE_DTYPE_FLOAT32,
                                  .ndim = ndim,
                                  .numel = 1,
                                  .sizes = sizes,
                                  .strides = strides};
    for (int64_t i = 0; i < ndim; i++)
        view.numel *= sizes[i];
    return view;
}

static bool are_apart(const char *schema, const aoticache_tensor_view *a, const aoticache_tensor_view *b)
{
    aoticache_value values[2] = {{.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = a},
                                 {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = b}};
    aoticache_holder *made = make_in_place(schema);
    bool apart = aoticache_holder_writes_are_apart(made, values);
    aoticache_holder_unref(made);
    return apart;
}

#define MUL_ "aten::mul_(Tensor(a!) self, Tensor other) -> Tensor(a!)"
#define EXP_OUT "aten::exp(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"
static const int64_t ROW[] = {4}, ONE[] = {1};

Test(holder_writes, schema_says_what_is_written_and_what_is_new)
{
    begin_context();
    aoticache_holder *mul = make_in_place(MUL_), *out = make_in_place(EXP_OUT);
    aoticache_holder *each = make_in_place("aten::_foreach_add_(Tensor(a!)[] self, Scalar scalar) -> ()");
    aoticache_holder *plain = make_in_place("aten::exp(Tensor self) -> Tensor");
    aoticache_holder *norm =
        make_in_place("aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? "
                      "running_mean, Tensor? running_var, bool training, float momentum, float eps) "
                      "-> (Tensor, Tensor, Tensor)");
    cr_expect_eq(mul->written, 1);
    cr_expect_eq(mul->num_returns, 0, "its result is its argument");
    cr_expect_eq(out->written, 2);
    cr_expect_eq(aoticache_holder_num_outs(out), 1);
    cr_expect_eq(aoticache_holder_num_outs(mul), 0);
    cr_expect_eq(each->written, 1);
    cr_expect_eq(plain->written, 0);
    cr_expect_eq(plain->num_returns, 1);
    cr_expect_eq(norm->written, 1 << 3 | 1 << 4);
    cr_expect_eq(norm->num_returns, 3);
    aoticache_holder *all[] = {mul, out, each, plain, norm};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        aoticache_holder_unref(all[i]);
    end_all();
}

/* Does as docs/internals/holder.md says: a fallback removes all arguments from the stack and leaves everything else. */
static aoticache_status add_in_place(void *user, uint64_t key_set, aoticache_stack *given, aoticache_error *ret_error)
{
    const aoticache_value *arguments = &given->values[given->count - 3];
    const aoticache_tensor_view *self = arguments[0].as.tensor, *other = arguments[1].as.tensor;
    (void)key_set, (void)ret_error;
    for (int64_t i = 0; i < self->numel; i++)
        ((float *)self->data)[i] += (float)arguments[2].as.int_value * ((const float *)other->data)[i];
    ++*(int *)user;
    given->count -= 3;
    return AOTICACHE_OK;
}

/*
 * Follows the advice in the refusal of an operator that writes: a request for a library that writes, and nothing on the
 * stack.
 */
Test(holder_writes, advice_of_the_refusal_is_good)
{
    begin_context();
    aoticache_holder_options options =
        holder_options("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)");
    int added = 0;
    options.fallback = add_in_place;
    options.fallback_user = &added;
    cr_expect_eq(aoticache_holder_create(eager, &options, &holder, &error), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "set options.in_place"), "%s", error.message);
    options.in_place = true;
    cr_assert_eq(aoticache_holder_create(eager, &options, &holder, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_tensor_view a = view_of(0, 1, ROW, ONE), b = view_of(8, 1, ROW, ONE);
    aoticache_request *request;
    a.device = b.device = AOTICACHE_DEVICE_CPU;
    memory[0] = 1, memory[8] = 10;
    aoticache_value values[3] = {{.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &a},
                                 {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &b},
                                 {.kind = AOTICACHE_VALUE_INT, .as.int_value = 1}};
    cr_assert_eq(aoticache_holder_request(holder, values, 3, &request, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect_str_eq(aoticache_request_get_environment(request, AOTICACHE_RESULTS_NAME), AOTICACHE_RESULTS_NEW);
    aoticache_request_free(request);
    hook.fail_status = AOTICACHE_UNSUPPORTED;
    cr_assert_eq(call_values(holder, values, 3), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(stack.count, 0, "nothing is left: the result is an argument");
    cr_expect_eq(added, 1);
    cr_expect_eq((int)memory[0], 11);
    end_all();
}

Test(holder_writes, views_and_silent_writers_stay_refused)
{
    begin_context();
    aoticache_holder_options options = holder_options("aten::t(Tensor(a) self) -> Tensor(a)");
    aoticache_holder *made = NULL;
    options.in_place = true;
    cr_expect_eq(aoticache_holder_create(eager, &options, &made, &error), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "view"), "%s", error.message);
    options =
        holder_options("aten::batch_norm_update_stats(Tensor input, Tensor? running_mean, Tensor? running_var, float "
                       "momentum) -> (Tensor, Tensor)");
    cr_expect_eq(aoticache_holder_create(eager, &options, &made, &error), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "writes to its arguments"), "%s", error.message);
    end_all();
}

Test(holder_writes, tensors_that_overlap_are_found)
{
    begin_context();
    aoticache_tensor_view a = view_of(0, 1, ROW, ONE), behind = view_of(4, 1, ROW, ONE),
                          across = view_of(3, 1, ROW, ONE);
    cr_expect(are_apart(MUL_, &a, &behind));
    cr_expect(are_apart(MUL_, &behind, &a));
    cr_expect_not(are_apart(MUL_, &a, &across));
    cr_expect_not(are_apart(MUL_, &a, &a));
    cr_expect_not(are_apart(EXP_OUT, &a, &across));
    aoticache_tensor_view none = view_of(0, 1, (const int64_t[]){0}, ONE);
    cr_expect(are_apart(MUL_, &none, &a), "no elements, nothing to overlap");
    end_all();
}

Test(holder_writes, tensors_that_overlap_themselves_are_found)
{
    begin_context();
    aoticache_tensor_view other = view_of(200, 1, ROW, ONE);
    const int64_t sizes[] = {3, 4};
    const struct {
        int64_t strides[2];
        bool apart;
    } cases[] = {{{4, 1}, true},  {{1, 3}, true},  {{8, 2}, true},  {{0, 1}, false},
                 {{1, 1}, false}, {{4, 0}, false}, {{3, 1}, false}, {{1, 2}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        aoticache_tensor_view view = view_of(0, 2, sizes, cases[i].strides);
        cr_expect_eq(are_apart(MUL_, &view, &other), cases[i].apart, "strides %d, %d", (int)cases[i].strides[0],
                     (int)cases[i].strides[1]);
        cr_expect(are_apart(MUL_, &other, &view), "what is only read may overlap itself");
    }
    end_all();
}

Test(holder_writes, lists_are_compared_as_a_whole)
{
    begin_context();
    aoticache_tensor_view views[24];
    const aoticache_tensor_view *written[12], *read[12];
    for (size_t i = 0; i < 12; i++) {
        views[i] = view_of(8 * i, 1, ROW, ONE);
        views[12 + i] = view_of(8 * (11 - i) + 4, 1, ROW, ONE);
        written[i] = &views[i];
        read[i] = &views[12 + i];
    }
    aoticache_value values[2] = {{.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 12, .as.tensors = written},
                                 {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 12, .as.tensors = read}};
    aoticache_holder *made = make_in_place("aten::_foreach_mul_(Tensor(a!)[] self, Tensor[] other) -> ()");
    cr_expect(aoticache_holder_writes_are_apart(made, values));
    read[5] = read[3];
    cr_expect(aoticache_holder_writes_are_apart(made, values), "read twice");
    views[12] = view_of(3, 1, ROW, ONE);
    cr_expect_not(aoticache_holder_writes_are_apart(made, values));
    read[0] = read[1];
    written[0] = written[1];
    cr_expect_not(aoticache_holder_writes_are_apart(made, values), "written twice");
    aoticache_holder_unref(made);
    end_all();
}
