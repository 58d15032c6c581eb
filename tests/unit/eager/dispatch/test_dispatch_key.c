/*
 * eager/dispatch/key.c and key_parse.c: names, kinds, positions in a table, and what is refused with which message.
 * tests/python/dispatch/test_dispatch_keys.py compares numbers and sets with PyTorch's.
 */
#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/keys.h"

#include <criterion/criterion.h>
#include <string.h>

#define KEY(name) AOTICACHE_DISPATCH_KEY_##name

static aoticache_dispatch_key parse(const char *name)
{
    aoticache_dispatch_key key = -1;
    aoticache_error error = {.message = ""};
    cr_expect_eq(aoticache_dispatch_key_parse(name, &key, &error), AOTICACHE_OK, "%s: %s", name, error.message);
    return key;
}

typedef aoticache_status read_fn(const char *text, aoticache_dispatch_key *ret_key, aoticache_error *ret_error);

static void refuses(read_fn *read, const char *name, const char *message)
{
    aoticache_dispatch_key key = -7;
    aoticache_error error = {.message = ""};
    cr_expect_eq(read(name, &key, &error), AOTICACHE_INVALID, "%s", name);
    cr_expect_str_eq(error.message, message);
    cr_expect_eq(error.status, AOTICACHE_INVALID);
    cr_expect_eq(key, -7, "%s: written to", name);
    cr_expect_eq(read(name, &key, NULL), AOTICACHE_INVALID, "%s", name);
}

Test(dispatch_key, constants_are_the_numbers_of_their_names)
{
    cr_expect_eq(parse("Undefined"), KEY(Undefined));
    cr_expect_eq(parse("CPU"), KEY(CPU));
    cr_expect_eq(parse("AutogradCUDA"), KEY(AutogradCUDA));
    cr_expect_eq(parse("PythonDispatcher"), KEY(PythonDispatcher));
    cr_expect_eq(parse("CompositeExplicitAutogradNonFunctional"), KEY(CompositeExplicitAutogradNonFunctional));
    cr_expect_eq(KEY(CPU), 49);
    cr_expect_eq(KEY(AutogradMeta), 149);
}

Test(dispatch_key, name_of_every_parsed_key_reads_as_that_key)
{
    int32_t parsed = 0;
    for (int32_t key = 0; key < AOTICACHE_DISPATCH_KEY_COUNT; key++) {
        const char *name = aoticache_dispatch_key_name(key);
        aoticache_dispatch_key again = -1;
        if (aoticache_dispatch_key_parse(name, &again, NULL) != AOTICACHE_OK)
            continue;
        parsed++;
        if (key == KEY(CPU) - 1) /* "Undefined", which is 0 */
            cr_expect_eq(again, KEY(Undefined));
        else
            cr_expect_eq(again, key, "%s", name);
    }
    cr_expect_eq(parsed, 108);
}

Test(dispatch_key, name_of_a_number_outside_the_list_says_so)
{
    const int32_t outside[] = {-1, INT32_MIN, 47, 156, INT32_MAX};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        cr_expect_str_eq(aoticache_dispatch_key_name(outside[i]), "UnknownUnknown");
}

Test(dispatch_key, parse_of_an_unknown_name_suggests_the_nearest)
{
    refuses(aoticache_dispatch_key_parse, "cpu", "unknown dispatch key 'cpu'; did you mean CPU?");
    refuses(aoticache_dispatch_key_parse, "CompositeImplicit", "unknown dispatch key 'CompositeImplicit'");
    refuses(aoticache_dispatch_key_parse, "AutogradCDA",
            "unknown dispatch key 'AutogradCDA'; did you mean AutogradCUDA?");
    refuses(aoticache_dispatch_key_parse, "", "unknown dispatch key ''");
}

Test(dispatch_key, parse_of_a_key_that_pytorch_does_not_take_says_so)
{
    refuses(aoticache_dispatch_key_parse, "QuantizedHIP",
            "dispatch key QuantizedHIP: PyTorch accepts no kernels for it");
    refuses(aoticache_dispatch_key_parse, "QuantizedUndefined", "unknown dispatch key 'QuantizedUndefined'");
}

Test(dispatch_key, parse_of_a_long_or_unprintable_name_shows_what_it_can)
{
    char name[4096];
    memset(name, 'C', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    refuses(aoticache_dispatch_key_parse, name,
            "unknown dispatch key 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC...'");
    refuses(aoticache_dispatch_key_parse, "CPU\nCUDA\xff", "unknown dispatch key 'CPU?CUDA?'");
}

Test(dispatch_key, parse_of_null_is_invalid)
{
    aoticache_dispatch_key key;
    cr_expect_eq(aoticache_dispatch_key_parse(NULL, &key, NULL), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_dispatch_key_parse("CPU", NULL, NULL), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_dispatch_key_for_device(NULL, &key, NULL), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_dispatch_key_for_device("cpu", NULL, NULL), AOTICACHE_INVALID);
}

Test(dispatch_key, device_has_its_backends_key)
{
    aoticache_dispatch_key key = -1;
    cr_expect_eq(aoticache_dispatch_key_for_device("privateuseone", &key, NULL), AOTICACHE_OK);
    cr_expect_eq(key, KEY(PrivateUse1));
    cr_expect_eq(aoticache_dispatch_key_for_device("vulkan", &key, NULL), AOTICACHE_OK);
    cr_expect_eq(key, KEY(Vulkan));
}

Test(dispatch_key, device_without_a_key_or_with_an_index_is_refused)
{
    refuses(aoticache_dispatch_key_for_device, "opengl", "device type opengl has no dispatch key");
    refuses(aoticache_dispatch_key_for_device, "cuda:1",
            "device type 'cuda:1': expected one without an index, such as \"cuda\"");
    refuses(aoticache_dispatch_key_for_device, "CPU",
            "device type 'CPU': expected one of cpu, cuda, xpu, mps, meta, privateuseone, hip, xla, ipu, hpu, ve, "
            "lazy, mtia, maia, fpga, vulkan");
}

Test(dispatch_key, functionality_and_backend_make_the_key_again)
{
    for (int32_t backend = 0; backend < aoticache_dispatch_num_backends(); backend++) {
        aoticache_dispatch_key key = aoticache_dispatch_key_of(KEY(Sparse), backend);
        cr_expect_eq(aoticache_dispatch_key_functionality(key), KEY(Sparse));
        cr_expect_eq(aoticache_dispatch_key_backend(key), backend);
    }
    cr_expect_eq(aoticache_dispatch_key_of(KEY(Sparse), 0), KEY(SparseCPU));
    cr_expect_eq(aoticache_dispatch_key_functionality(KEY(Python)), KEY(Python));
    cr_expect_eq(aoticache_dispatch_key_backend(KEY(Python)), -1);
    cr_expect_eq(aoticache_dispatch_key_backend(KEY(MkldnnCPU)), -1);
}

Test(dispatch_key, functionality_on_a_backend_that_is_none_is_undefined)
{
    cr_expect_eq(aoticache_dispatch_key_of(KEY(Python), 0), KEY(Undefined));
    cr_expect_eq(aoticache_dispatch_key_of(KEY(Dense), -1), KEY(Undefined));
    cr_expect_eq(aoticache_dispatch_key_of(KEY(Dense), 16), KEY(Undefined));
    cr_expect_eq(aoticache_dispatch_key_functionality(KEY(Autograd)), KEY(Undefined));
}

Test(dispatch_key, places_of_a_table_and_runtime_keys_are_one_to_one)
{
    int32_t runtime = 0;
    for (int32_t key = -2; key < AOTICACHE_DISPATCH_KEY_COUNT + 2; key++) {
        int32_t entry = aoticache_dispatch_key_entry(key);
        cr_expect_eq(entry >= 0, aoticache_dispatch_key_is_runtime(key), "%d", (int)key);
        runtime += entry >= 0;
        if (entry >= 0)
            cr_expect_eq(aoticache_dispatch_key_of_entry(entry), key, "%s", aoticache_dispatch_key_name(key));
    }
    cr_expect_eq(runtime, aoticache_dispatch_num_entries());
    cr_expect_eq(aoticache_dispatch_key_of_entry(-1), KEY(Undefined));
    cr_expect_eq(aoticache_dispatch_key_of_entry(runtime), KEY(Undefined));
}

Test(dispatch_key, alias_keys_stand_for_their_keys_alone)
{
    cr_expect(aoticache_dispatch_key_in_alias(KEY(AutogradCPU), KEY(Autograd)));
    cr_expect_not(aoticache_dispatch_key_in_alias(KEY(CPU), KEY(Autograd)));
    cr_expect(aoticache_dispatch_key_in_alias(KEY(CPU), KEY(CompositeExplicitAutograd)));
    cr_expect_not(aoticache_dispatch_key_in_alias(KEY(NestedTensorCPU), KEY(CompositeExplicitAutograd)));
    cr_expect_not(aoticache_dispatch_key_in_alias(KEY(SparseCPU), KEY(CompositeExplicitAutogradNonFunctional)));
    cr_expect(aoticache_dispatch_key_in_alias(KEY(CPU), KEY(CPU)));
    cr_expect_not(aoticache_dispatch_key_in_alias(KEY(CPU), KEY(CUDA)));
    cr_expect_not(aoticache_dispatch_key_in_alias(KEY(Undefined), KEY(CompositeImplicitAutograd)));
    cr_expect_not(aoticache_dispatch_key_in_alias(KEY(CPU), KEY(Undefined)));
}

Test(dispatch_key, autograd_key_of_a_backend)
{
    cr_expect_eq(aoticache_dispatch_key_autograd_of(KEY(CPU)), KEY(AutogradCPU));
    cr_expect_eq(aoticache_dispatch_key_autograd_of(KEY(SparseCUDA)), KEY(AutogradCUDA));
    cr_expect_eq(aoticache_dispatch_key_autograd_of(KEY(HIP)), KEY(AutogradOther));
    cr_expect_eq(aoticache_dispatch_key_autograd_of(KEY(MkldnnCPU)), KEY(AutogradOther));
    cr_expect(aoticache_dispatch_key_is_backend(KEY(SparseCUDA)));
    cr_expect_not(aoticache_dispatch_key_is_backend(KEY(AutogradCUDA)));
    cr_expect_not(aoticache_dispatch_key_is_backend(KEY(Undefined)));
    cr_expect_not(aoticache_dispatch_key_is_backend(1000));
}

/* PyTorch's numbers, as torch._C.DispatchKey has them. */
Test(dispatch_key, marks_between_the_numbers_are_pytorchs)
{
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_StartOfDenseBackends, 48);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_EndOfDenseBackends, AOTICACHE_DISPATCH_KEY_Meta);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_StartOfSparseCsrBackends, 99);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_EndOfNestedTensorBackends, 132);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_StartOfAutogradFunctionalityBackends, 133);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_EndOfRuntimeBackendKeys,
                 AOTICACHE_DISPATCH_KEY_EndOfAutogradFunctionalityBackends);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_EndOfFunctionalityKeys, AOTICACHE_DISPATCH_FUNCTIONALITIES);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_StartOfAliasKeys, 150);
    cr_expect_eq(AOTICACHE_DISPATCH_KEY_EndOfAliasKeys, AOTICACHE_DISPATCH_KEY_COUNT - 1);
}

#define COUNT(name, number) +1
#define COUNT_BACKEND(name, backend, a, b) +1
#define COUNT_BLOCK(functionality, number, prefix, first, parsed, a) \
    +(0 AOTICACHE_DISPATCH_BACKEND_LIST(COUNT_BACKEND, a, a))

Test(dispatch_key, lists_of_the_header_have_every_key)
{
    int listed = 0 AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(COUNT) AOTICACHE_DISPATCH_BLOCK_LIST(COUNT_BLOCK, unused)
        AOTICACHE_DISPATCH_ALIAS_LIST(COUNT);
    int count = 0, up_to_cuda = 0;
    for (aoticache_dispatch_key key = 0; key < AOTICACHE_DISPATCH_KEY_COUNT; key++) {
        count += key < AOTICACHE_DISPATCH_FUNCTIONALITIES || aoticache_dispatch_key_is_runtime(key) ||
                 aoticache_dispatch_key_is_alias(key);
        up_to_cuda = key == AOTICACHE_DISPATCH_KEY_CUDA ? count : up_to_cuda;
    }
    cr_expect_eq(count, listed);
    cr_expect_eq(up_to_cuda, 47 + 2);
}
