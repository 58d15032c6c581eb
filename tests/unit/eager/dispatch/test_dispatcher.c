/*
 * Unit tests of the dispatcher's registrations: eager/dispatch/dispatcher.c, names.c, operator.c, signature.c, oplib*.c, table.c.
 */
#include "dispatcher_fixture.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/questions.h"
#include "eager/epoch.h"

#include <time.h>

TestSuite(dispatcher, .init = dispatcher_begin, .fini = dispatcher_end, .timeout = 600);

static bool append_name(void *user, const char *text)
{
    strcat(user, text);
    strcat(user, " ");
    return true;
}

/* ---- dumps ---- */

Test(dispatcher, dump_has_definition_and_kernels_by_key)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2);
    define(def, "f(Tensor x) -> Tensor");
    add(impl, "f", "CUDA", plain_kernel(1));
    add(impl, "t::f", "CPU", typed_kernel(2, "(Tensor _0) -> Tensor _0"));
    add(impl, "f", "CPU", plain_kernel(3));
    add(impl, "f", NULL, plain_kernel(4));
    add(impl, "f", "XLA", fallthrough());
    is_dump("t::f", "name: t::f\nschema: t::f(Tensor x) -> Tensor\ndebug: registered at /x/f.c:1\n"
                    "alias analysis kind: FROM_SCHEMA\n"
                    "CPU: registered at /x/f.c:2 :: (none) [ boxed ]\n"
                    "CPU (inactive): registered at /x/f.c:2 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]\n"
                    "CUDA: registered at /x/f.c:2 :: (none) [ boxed ]\n"
                    "XLA: registered at /x/f.c:2 :: (none) [ fallthrough boxed ]\n"
                    "CompositeImplicitAutograd[alias]: registered at /x/f.c:2 :: (none) [ boxed ]\n");
    aoticache_oplib_free(impl);
    aoticache_oplib_free(def);
}

Test(dispatcher, dump_of_dangling_kernels_has_no_schema)
{
    aoticache_oplib *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 7);
    add(impl, "g.out", NULL, plain_kernel(1));
    is_dump("t::g.out", "name: t::g.out\nschema: (none)\nCPU: registered at /x/f.c:7 :: (none) [ boxed ]\n");
    aoticache_oplib_free(impl);
}

Test(dispatcher, dump_table_has_each_place_with_its_reason)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 9);
    define(def, "f(Tensor x) -> Tensor");
    add(def, "f", "CPU", plain_kernel(1));
    add(def, "f", "Autograd", plain_kernel(2));
    succeeds(aoticache_oplib_fallback(any, "BackendSelect", fallthrough(), &error));
    char *table = table_of("t::f");
    cr_assert(starts_with(table, "CPU: registered at /x/f.c:1 [kernel]\n"
                                 "BackendSelect: fallthrough registered at /x/f.c:9 [backend fallback]\n"
                                 "AutogradOther: registered at /x/f.c:1 [autograd kernel]\n"
                                 "AutogradCPU: registered at /x/f.c:1 [autograd kernel]\n"),
              "%s", table);
    free(table);
    aoticache_oplib_free(any);
    aoticache_oplib_free(def);
}

Test(dispatcher, implicit_kernel_next_to_a_sparse_one_is_ambiguous_for_autogradother)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, "f(Tensor x) -> Tensor");
    add(def, "f", NULL, plain_kernel(1));
    add(def, "f", "SparseCPU", plain_kernel(2));
    char *table = table_of("t::f");
    cr_assert_not_null(strstr(table, "\nAutogradOther: ambiguous_autogradother [ambiguous autogradother]\n"), "%s",
                       table);
    cr_assert_not_null(strstr(table, "\nAutogradCPU: registered at /x/f.c:1 [math kernel]\n"));
    cr_assert_not_null(strstr(table, "Undefined: registered at /x/f.c:1 [math kernel]\n"));
    free(table);
    cr_assert_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_AutogradOther), AOTICACHE_INVALID);
    aoticache_oplib_free(def);
}

/* ---- removing registrations ---- */

Test(dispatcher, oplib_free_brings_the_older_kernel_back)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *a = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 2),
                    *b = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 3);
    define(def, "f(Tensor x) -> Tensor");
    add(a, "f", NULL, plain_kernel(1));
    add(b, "f", NULL, plain_kernel(2));
    cr_assert_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 2);
    aoticache_oplib_free(b);
    cr_assert_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 1);
    aoticache_oplib_free(a);
    cr_assert_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_CPU), AOTICACHE_NOT_FOUND);
    aoticache_oplib_free(def);
}

Test(dispatcher, release_is_called_once_when_the_registration_goes)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, "f(Tensor x) -> Tensor");
    add(def, "f", "CPU", released_kernel(3));
    cr_assert_eq(releases[3], 0);
    aoticache_oplib_free(def);
    cr_assert_eq(releases[3], 1);
    aoticache_epoch_reclaim();
    cr_assert_eq(releases[3], 1);
}

Test(dispatcher, kernel_taken_back_by_itself_ends_after_its_call)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 2);
    define(def, "f(Tensor x) -> Tensor");
    add(impl, "f", NULL, suicidal_kernel(impl, 4));
    cr_assert_eq(call_with("t::f", AOTICACHE_DISPATCH_KEY_CPU), AOTICACHE_OK);
    cr_assert_eq(releases_inside, 0, "released while it ran");
    cr_assert_eq(releases[4], 1, "not released when the call was over");
    aoticache_oplib_free(def);
}

Test(dispatcher, failed_registration_releases_nothing_and_leaves_nothing)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    aoticache_boxed_kernel kernel = released_kernel(5);
    kernel.signature = "(Tensor _0) -> Tensor _0";
    cr_assert_eq(aoticache_oplib_def_kernel(def, "f(Tensor x, int y) -> Tensor", AOTICACHE_ALIAS_DEFAULT, "CPU",
                                            &kernel, &error),
                 AOTICACHE_MISMATCH);
    cr_assert_not_null(strstr(error.message, "2 arguments vs. 1"), "%s", error.message);
    cr_assert_not(aoticache_dispatcher_has_kernel(dispatcher, "t::f"));
    aoticache_oplib_free(def);
    cr_assert_eq(releases[5], 0);
}

Test(dispatcher, handle_stays_valid_and_works_again)
{
    aoticache_operator *again;
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, "f(Tensor x) -> Tensor");
    aoticache_operator *op = find("t::f");
    aoticache_oplib_free(def);
    cr_assert_null(aoticache_operator_schema(op));
    cr_assert_str_eq(aoticache_operator_name(op), "t::f");
    cr_assert_eq(aoticache_dispatcher_find(dispatcher, "t::f", &again, &error), AOTICACHE_NOT_FOUND);
    def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, "f(Tensor x, int y=2) -> Tensor");
    cr_assert_eq(find("t::f"), op);
    cr_assert_eq(aoticache_operator_schema(op)->argument_count, 2);
    aoticache_oplib_free(def);
}

static size_t count_names(void)
{
    char names[400] = "";
    succeeds(aoticache_dispatcher_list(dispatcher, false, append_name, names, &error));
    size_t count = 0;
    for (const char *at = names; *at != '\0'; at++)
        count += *at == ' ';
    return count;
}

Test(dispatcher, what_was_taken_back_leaves_no_trace_but_its_handle)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 2);
    define(def, "f(Tensor x) -> Tensor");
    define(def, "g(Tensor x) -> Tensor");
    add(def, "h", "CPU", plain_kernel(1));
    aoticache_operator *op = find("t::f");
    cr_expect_eq(count_names(), 3);
    aoticache_oplib_free(def);
    cr_expect_eq(count_names(), 0);
    aoticache_boxed_kernel kernel = plain_kernel(2);
    succeeds(aoticache_oplib_fallback(any, "CPU", &kernel, &error));
    cr_expect_not(aoticache_operator_has_computed_kernel(op, AOTICACHE_DISPATCH_KEY_CPU), "a fallback serves it");
    stack.count = 1;
    places[0] = tensor_of(aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_CPU));
    cr_expect_eq(aoticache_operator_redispatch(op, aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_CPU), &stack, &error),
                 AOTICACHE_NOT_FOUND);
    cr_expect_str_eq(error.message, "t::f is no longer defined");
    succeeds(aoticache_operator_check(op, &error));
    def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, "f(Tensor x) -> Tensor");
    cr_expect_eq(number_reached("t::f", AOTICACHE_DISPATCH_KEY_CPU), 2, "the fallback serves it again");
    cr_expect_eq(find("t::f"), op);
    cr_expect_eq(count_names(), 1);
    succeeds(aoticache_dispatcher_check(dispatcher, &error));
    aoticache_oplib_free(any);
    aoticache_oplib_free(def);
}

/* ---- warnings ---- */

static char warned[1000];

static void keep_warning(void *user, aoticache_log_level level, const char *line)
{
    cr_expect_eq(level, AOTICACHE_LOG_WARNING);
    aoticache_dispatcher_has_kernel(user, "t::f"); /* no lock is held */
    snprintf(warned, sizeof warned, "%s", line);
}

Test(dispatcher, override_is_warned_of)
{
    const aoticache_logger logger = {.log = keep_warning, .user = dispatcher};
    aoticache_boxed_kernel typed = typed_kernel(3, "(Tensor _0) -> Tensor _0");
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2);
    aoticache_dispatcher_set_logger(dispatcher, &logger);
    add(impl, "f", "CPU", plain_kernel(1));
    add(impl, "f", "CUDA", plain_kernel(1));
    add(impl, "f", "Meta", plain_kernel(1));
    add(impl, "f", "Meta", plain_kernel(2));
    cr_expect_str_eq(warned, "");
    add(def, "f", "CPU", plain_kernel(2));
    cr_expect_str_eq(warned, "t::f: the kernel for CPU (registered at /x/f.c:1) replaces another kernel (registered at "
                             "/x/f.c:2)");
    succeeds(aoticache_oplib_def_kernel(def, "f(Tensor x) -> Tensor", AOTICACHE_ALIAS_DEFAULT, "CUDA", &typed, &error));
    cr_expect_not_null(strstr(warned, "the kernel for CUDA"), "%s", warned);
    *warned = '\0';
    aoticache_dispatcher_set_logger(dispatcher, NULL);
    add(def, "f", "CPU", plain_kernel(2));
    cr_expect_str_eq(warned, "");
    aoticache_oplib_free(impl);
    aoticache_oplib_free(def);
}

/* ---- what is refused ---- */

Test(dispatcher, second_def_of_a_namespace_names_both_places)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1), *other = NULL;
    cr_assert_eq(aoticache_oplib_create(dispatcher, AOTICACHE_OPLIB_DEF, "t", NULL, "/y/g.c", 2, &other, &error),
                 AOTICACHE_EXISTS);
    cr_assert_not_null(strstr(error.message, "/x/f.c:1"));
    cr_assert_not_null(strstr(error.message, "/y/g.c:2"));
    aoticache_oplib_free(def);
    succeeds(aoticache_oplib_create(dispatcher, AOTICACHE_OPLIB_DEF, "t", NULL, "/y/g.c", 2, &other, &error));
    aoticache_oplib_free(other);
}

Test(dispatcher, oplib_of_wrong_kind_key_or_namespace_is_refused)
{
    aoticache_oplib *oplib = NULL;
    static const struct {
        int kind;
        const char *namespace_name, *key;
    } wrong[] = {{7, "t", NULL},
                 {AOTICACHE_OPLIB_DEF, "_", NULL},
                 {AOTICACHE_OPLIB_FRAGMENT, "_", NULL},
                 {AOTICACHE_OPLIB_DEF, "t", "CPU"},
                 {AOTICACHE_OPLIB_IMPL, "t", "CPUX"},
                 {AOTICACHE_OPLIB_IMPL, "", NULL},
                 {AOTICACHE_OPLIB_IMPL, NULL, NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_expect_eq(aoticache_oplib_create(dispatcher, (aoticache_oplib_kind)wrong[i].kind, wrong[i].namespace_name,
                                            wrong[i].key, "/x/f.c", 1, &oplib, &error),
                     AOTICACHE_INVALID, "%zu", i);
    cr_assert_null(oplib);
}

Test(dispatcher, def_that_is_wrong_says_why)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2);
    define(def, "f(Tensor x) -> Tensor");
    fails(aoticache_oplib_def(def, "f(Tensor x) -> Tensor", AOTICACHE_ALIAS_DEFAULT, &error), AOTICACHE_EXISTS,
          "/x/f.c:1, first");
    is_refused(aoticache_oplib_def(def, "g(Tensor x; int y) -> Tensor", AOTICACHE_ALIAS_DEFAULT, &error), "column 11");
    is_refused(aoticache_oplib_def(def, "u::g(Tensor x) -> Tensor", AOTICACHE_ALIAS_DEFAULT, &error),
               "namespace u in "
               "a library for t");
    is_refused(aoticache_oplib_def(impl, "g(Tensor x) -> Tensor", AOTICACHE_ALIAS_DEFAULT, &error), "kind IMPL");
    is_refused(aoticache_oplib_def(def, "g(tensor x) -> Tensor", AOTICACHE_ALIAS_DEFAULT, &error),
               "column 3: unknown "
               "type 'tensor'; did you mean Tensor?");
    is_refused(aoticache_oplib_def(def, "g", AOTICACHE_ALIAS_DEFAULT, &error), "requires a typed kernel");
    is_refused(aoticache_oplib_def(def, "g(Tensor x) -> Tensor", (aoticache_alias_analysis)9, &error), "alias "
                                                                                                       "analysis");
    cr_assert_not(aoticache_dispatcher_has_kernel(dispatcher, "t::g"));
    aoticache_oplib_free(impl);
    aoticache_oplib_free(def);
}

Test(dispatcher, def_of_more_than_64_arguments_is_refused)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    char text[65 * 16] = "f(int a0";
    for (int i = 1; i < 65; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", int a%d", i);
    strcat(text, ") -> ()");
    is_refused(aoticache_oplib_def(def, text, AOTICACHE_ALIAS_DEFAULT, &error), "65 arguments");
    aoticache_oplib_free(def);
}

Test(dispatcher, impl_that_is_wrong_says_why)
{
    aoticache_oplib *cpu = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 2),
                    *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 3);
    aoticache_boxed_kernel kernel = plain_kernel(1), unsized = {.call = kernel.call};
    is_refused(aoticache_oplib_impl(cpu, "f", "CUDA", &kernel, &error), "key CUDA in a library for CPU");
    is_refused(aoticache_oplib_impl(cpu, "f", "Cpu", &kernel, &error), "CPU");
    is_refused(aoticache_oplib_impl(cpu, "u::f", NULL, &kernel, &error), "namespace u");
    is_refused(aoticache_oplib_impl(any, "f", "CPU", &kernel, &error), "only accepts fallbacks");
    is_refused(aoticache_oplib_impl(cpu, "f g", NULL, &kernel, &error), "column");
    is_refused(aoticache_oplib_impl(cpu, "f", NULL, &unsized, &error), "size");
    is_refused(aoticache_oplib_impl(cpu, "f", NULL, NULL, &error), "registering a kernel: kernel is NULL");
    is_refused(aoticache_oplib_impl_for_key(cpu, "f", -1, &kernel, &error), "-1 is not the number of a key");
    is_refused(aoticache_oplib_impl_for_key(any, "f", 0, &kernel, &error), "only accepts fallbacks");
    is_refused(aoticache_oplib_fallback_for_key(any, 0, &kernel, &error), "needs a key");
    is_refused(aoticache_oplib_impl_for_key(cpu, "f", 999, &kernel, &error), "999");
    cr_assert_not(aoticache_dispatcher_has_kernel(dispatcher, "t::f"));
    aoticache_oplib_free(any);
    aoticache_oplib_free(cpu);
}

Test(dispatcher, undefined_stands_for_no_key_by_number_too)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *cpu = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 2);
    aoticache_boxed_kernel kernel = plain_kernel(1);
    define(def, "f(Tensor x) -> Tensor");
    succeeds(aoticache_oplib_impl_for_key(cpu, "f", AOTICACHE_DISPATCH_KEY_Undefined, &kernel, &error));
    succeeds(aoticache_oplib_impl_for_key(def, "f", AOTICACHE_DISPATCH_KEY_Undefined, &kernel, &error));
    cr_expect(aoticache_operator_has_kernel_for_key(find("t::f"), AOTICACHE_DISPATCH_KEY_CPU));
    cr_expect(aoticache_operator_has_kernel_for_key(find("t::f"), AOTICACHE_DISPATCH_KEY_CompositeImplicitAutograd));
    aoticache_oplib_free(cpu);
    aoticache_oplib_free(def);
}

Test(dispatcher, fallback_that_is_wrong_says_why)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", "CPU", 2),
                    *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL, 3);
    is_refused(aoticache_oplib_fallback(def, "CPU", fallthrough(), &error), "kind DEF");
    is_refused(aoticache_oplib_fallback(impl, NULL, fallthrough(), &error), "\"_\", not t");
    is_refused(aoticache_oplib_fallback(any, NULL, fallthrough(), &error), "needs a key");
    succeeds(aoticache_oplib_fallback(any, "AutogradCPU", fallthrough(), &error));
    fails(aoticache_oplib_fallback(any, "Autograd", fallthrough(), &error), AOTICACHE_EXISTS,
          "AutogradCPU already has a fallback");
    cr_assert(aoticache_dispatcher_has_fallback(dispatcher, AOTICACHE_DISPATCH_KEY_AutogradCPU));
    cr_assert_not(aoticache_dispatcher_has_fallback(dispatcher, AOTICACHE_DISPATCH_KEY_AutogradOther), "half of it is "
                                                                                                       "there");
    aoticache_oplib_free(any);
    cr_assert_not(aoticache_dispatcher_has_fallback(dispatcher, AOTICACHE_DISPATCH_KEY_AutogradCPU));
    aoticache_oplib_free(impl);
    aoticache_oplib_free(def);
}

/* ---- typed kernels ---- */

Test(dispatcher, typed_kernels_of_one_operator_have_one_signature)
{
    aoticache_oplib *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2);
    aoticache_boxed_kernel two = typed_kernel(2, "(Tensor _0, Tensor _1) -> Tensor _0");
    aoticache_boxed_kernel bad = typed_kernel(2, "Tensor -> Tensor");
    add(impl, "f", "CPU", typed_kernel(1, "(Tensor _0) -> Tensor _0"));
    fails(aoticache_oplib_impl(impl, "f", "CUDA", &two, &error), AOTICACHE_MISMATCH, "1 arguments vs. 2");
    is_refused(aoticache_oplib_impl(impl, "f", "CUDA", &bad, &error), "expected '('");
    /* The type is forgotten with the last registration. */
    aoticache_oplib_free(impl);
    impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2);
    add(impl, "f", "CUDA", two);
    aoticache_oplib_free(impl);
}

Test(dispatcher, typed_kernel_says_int_where_the_schema_says_dtype_or_symint)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    aoticache_boxed_kernel wrong = typed_kernel(2, "(Tensor _0, float _1, int[] _2) -> Tensor _0");
    define(def, "f(Tensor x, ScalarType d, SymInt[2] s) -> Tensor");
    add(def, "f", "CPU", typed_kernel(1, "(Tensor _0, int _1, int[] _2) -> Tensor _0"));
    add(def, "f", "CUDA", typed_kernel(1, "(Tensor _0, int _1, SymInt[] _2) -> Tensor _0"));
    fails(aoticache_oplib_impl(def, "f", "XLA", &wrong, &error), AOTICACHE_MISMATCH, "float");
    aoticache_oplib_free(def);
}

Test(dispatcher, def_of_a_name_takes_the_kernels_signature)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    aoticache_boxed_kernel kernel = typed_kernel(1, "(Tensor _0) -> Tensor _0"), untyped = plain_kernel(2);
    is_refused(aoticache_oplib_def_kernel(def, "f", AOTICACHE_ALIAS_DEFAULT, NULL, &untyped, &error),
               "requires a typed kernel");
    succeeds(aoticache_oplib_def_kernel(def, "f", AOTICACHE_ALIAS_DEFAULT, NULL, &kernel, &error));
    is_dump("t::f", "name: t::f\nschema: t::f(Tensor _0) -> Tensor _0\ndebug: registered at /x/f.c:1\n"
                    "alias analysis kind: CONSERVATIVE\nCompositeImplicitAutograd[alias]: registered at /x/f.c:1 :: "
                    "(Tensor _0) -> Tensor _0 [ boxed unboxed ]\n");
    aoticache_oplib_free(def);
}

Test(dispatcher, kernel_that_takes_symbolic_integers_is_not_marked_unboxed)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    aoticache_boxed_kernel wrong = typed_kernel(3, "(Tensor _0, int _1) -> int _0");
    define(def, "f(Tensor x, SymInt n) -> SymInt");
    add(def, "f", "CPU", typed_kernel(1, "(Tensor _0, SymInt _1) -> SymInt _0"));
    add(def, "f", "CUDA", typed_kernel(2, "(Tensor _0, int _1) -> SymInt _0"));
    fails(aoticache_oplib_impl(def, "f", "XLA", &wrong, &error), AOTICACHE_MISMATCH, "return 1");
    is_dump("t::f", "name: t::f\nschema: t::f(Tensor x, SymInt n) -> SymInt\ndebug: registered at /x/f.c:1\n"
                    "alias analysis kind: FROM_SCHEMA\n"
                    "CPU: registered at /x/f.c:1 :: (Tensor _0, SymInt _1) -> SymInt _0 [ boxed ]\n"
                    "CUDA: registered at /x/f.c:1 :: (Tensor _0, int _1) -> SymInt _0 [ boxed unboxed ]\n");
    aoticache_oplib_free(def);
}

/* ---- questions ---- */

Test(dispatcher, find_suggests_the_nearest_name)
{
    aoticache_operator *op;
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 1);
    define(def, "addmm(Tensor x) -> Tensor");
    add(impl, "dangling", "CPU", plain_kernel(1));
    cr_assert_eq(aoticache_dispatcher_find(dispatcher, "t::admm", &op, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "did you mean t::addmm?"), "%s", error.message);
    cr_assert_eq(aoticache_dispatcher_find(dispatcher, "t::dangling", &op, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, "not defined"), "%s", error.message);
    cr_assert_eq(aoticache_dispatcher_find_any(dispatcher, "t::dangling", &op, &error), AOTICACHE_OK);
    aoticache_oplib_free(impl);
    aoticache_oplib_free(def);
}

Test(dispatcher, names_are_read_as_pytorch_reads_them)
{
    aoticache_operator *op = NULL;
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    static const char *const same[] = {"t::f.o", " t :: f . o ", "t::f. o\n", "t::f.o # the one", "t::f \\\n.o"};
    static const char *const none[] = {"t::f.",        "x::y::z", "t::f.o.p", "t::",     "",
                                       "t::f.default", "t::f o",  "t::in",    "t::\nf.o"};
    define(def, " t :: f . o (Tensor x) -> Tensor");
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        cr_expect(aoticache_dispatcher_has_kernel(dispatcher, same[i]), "%s", same[i]);
        cr_expect_eq(aoticache_dispatcher_find(dispatcher, same[i], &op, &error), AOTICACHE_OK, "%s", same[i]);
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        is_refused(aoticache_dispatcher_find(dispatcher, none[i], &op, &error), "name of an operator: schema, "
                                                                                "column ");
        cr_expect_not(aoticache_dispatcher_has_kernel(dispatcher, none[i]), "%s", none[i]);
    }
    cr_expect_eq(aoticache_dispatcher_find(dispatcher, "t :: f", &op, &error), AOTICACHE_NOT_FOUND);
    cr_expect_str_eq(error.message, "unknown operator t::f; did you mean t::f.o?");
    add(def, "t :: f . o", "CPU", plain_kernel(5));
    cr_expect_eq(number_reached("t::f.o", AOTICACHE_DISPATCH_KEY_CPU), 5);
    aoticache_oplib_free(def);
}

static double best_seconds(const char *name, aoticache_error *ret_error)
{
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        aoticache_operator *op;
        struct timespec begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        for (int i = 0; i < 20; i++)
            cr_assert_eq(aoticache_dispatcher_find(dispatcher, name, &op, ret_error), AOTICACHE_NOT_FOUND);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        double seconds = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* The nearest name is searched only for the message. */
Test(dispatcher, absent_names_are_not_searched_for_without_a_text)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    for (int i = 0; i < 4000; i++) {
        char schema[64];
        snprintf(schema, sizeof schema, "scatter_add_%d(Tensor x) -> Tensor", i);
        define(def, schema);
    }
    double with_text = best_seconds("t::scatter_add_12345", &error);
    cr_expect_not_null(strstr(error.message, "did you mean t::scatter_add_1234?"), "%s", error.message);
    cr_expect_lt(best_seconds("t::scatter_add_12345", NULL), with_text / 8);
    aoticache_oplib_free(def);
}

Test(dispatcher, has_questions_tell_direct_computed_and_fallthrough_apart)
{
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, "f(Tensor x) -> Tensor");
    add(def, "f", "CompositeExplicitAutograd", plain_kernel(1));
    add(def, "f", "CUDA", fallthrough());
    const aoticache_operator *op = find("t::f");
    cr_expect_not(aoticache_operator_has_kernel_for_key(op, AOTICACHE_DISPATCH_KEY_CPU));
    cr_expect(aoticache_operator_has_computed_kernel(op, AOTICACHE_DISPATCH_KEY_CPU));
    cr_expect(aoticache_operator_has_kernel_for_key(op, AOTICACHE_DISPATCH_KEY_CompositeExplicitAutograd));
    cr_expect_not(aoticache_operator_has_computed_kernel(op, AOTICACHE_DISPATCH_KEY_CompositeExplicitAutograd));
    cr_expect_not(aoticache_operator_has_computed_kernel(op, AOTICACHE_DISPATCH_KEY_AutogradCPU));
    cr_expect(aoticache_operator_is_fallthrough(op, AOTICACHE_DISPATCH_KEY_CUDA));
    cr_expect_not(aoticache_operator_is_fallthrough(op, AOTICACHE_DISPATCH_KEY_CPU));
    cr_expect(aoticache_operator_has_kernel_for_any(op, aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_CUDA)));
    cr_expect_not(aoticache_operator_has_kernel_for_any(op, aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_CPU)));
    cr_expect_not(aoticache_operator_has_computed_kernel(op, 9999));
    cr_expect_not(aoticache_dispatcher_has_fallback(dispatcher, -3));
    aoticache_oplib_free(def);
}

Test(dispatcher, lists_are_sorted_and_know_dangling_ones_and_keys)
{
    char names[200] = "", dangling[200] = "", cpu[200] = "", all[200] = "", dumps[400] = "";
    aoticache_oplib *def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1),
                    *impl = open_oplib(AOTICACHE_OPLIB_IMPL, "t", NULL, 2);
    define(def, "f(Tensor x) -> Tensor");
    define(def, "b.out(Tensor x) -> Tensor");
    add(impl, "f", "CPU", plain_kernel(1));
    add(impl, "d", "CUDA", plain_kernel(1));
    succeeds(aoticache_dispatcher_list(dispatcher, false, append_name, names, &error));
    succeeds(aoticache_dispatcher_list(dispatcher, true, append_name, dangling, &error));
    succeeds(aoticache_dispatcher_list_registrations(dispatcher, "CPU", append_name, cpu, &error));
    succeeds(aoticache_dispatcher_list_registrations(dispatcher, NULL, append_name, all, &error));
    succeeds(aoticache_dispatcher_list_dangling_dumps(dispatcher, append_name, dumps, &error));
    is_refused(aoticache_dispatcher_list_registrations(dispatcher, "Nope", append_name, cpu, &error), "Nope");
    cr_expect_str_eq(names, "t::b.out t::d t::f ");
    cr_expect_str_eq(dangling, "t::d ");
    cr_expect_str_eq(cpu, "t::f ");
    cr_expect_str_eq(all, names);
    cr_expect_str_eq(dumps, "name: t::d\nschema: (none)\nCUDA: registered at /x/f.c:2 :: (none) [ boxed ]\n ");
    aoticache_oplib_free(impl);
    aoticache_oplib_free(def);
}

/* Makes random registrations; after each, every operator must match its registrations. */
Test(dispatcher, check_holds_through_random_registrations)
{
    static const char *const keys[] = {"CPU",
                                       "CUDA",
                                       "SparseCPU",
                                       "AutogradCPU",
                                       "AutogradOther",
                                       "Autograd",
                                       "Python",
                                       "NestedTensorCPU",
                                       "CompositeExplicitAutograd",
                                       "CompositeImplicitAutograd",
                                       "BackendSelect"};
    aoticache_oplib *libraries[8] = {NULL};
    unsigned seed = 11;
    for (int round = 0; round < 600; round++) {
        aoticache_oplib **one = &libraries[rand_r(&seed) % 8];
        if (*one == NULL || rand_r(&seed) % 5 == 0) {
            aoticache_oplib_free(*one);
            *one = open_oplib(rand_r(&seed) % 3 == 0 ? AOTICACHE_OPLIB_FRAGMENT : AOTICACHE_OPLIB_IMPL, "t", NULL,
                              (uint32_t)round);
        }
        aoticache_oplib_def(*one, rand_r(&seed) % 2 == 0 ? "f(Tensor x) -> Tensor" : "g(Tensor x) -> Tensor",
                            AOTICACHE_ALIAS_DEFAULT, NULL);
        add(*one, rand_r(&seed) % 2 == 0 ? "f" : "g", keys[rand_r(&seed) % 11],
            rand_r(&seed) % 4 == 0 ? *fallthrough() : plain_kernel(1));
        succeeds(aoticache_dispatcher_check(dispatcher, &error));
    }
    for (int i = 0; i < 8; i++)
        aoticache_oplib_free(libraries[i]);
    succeeds(aoticache_dispatcher_check(dispatcher, &error));
}

Test(dispatcher, process_has_one_of_its_own)
{
    cr_assert_not_null(aoticache_dispatcher_get());
    cr_assert_eq(aoticache_dispatcher_get(), aoticache_dispatcher_get());
    aoticache_dispatcher_free(NULL);
    aoticache_oplib_free(NULL);
}
