/*
 * eager/dispatch/key.c and thread.c: sets of dispatch keys at their edges, their text, the inline forms that
 * calls use, and this thread's sets. tests/python/dispatch/test_dispatch_keys.py compares random sets with PyTorch's.
 */
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/keys.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#define KEY(name) AOTICACHE_DISPATCH_KEY_##name

static aoticache_key_set set_of(aoticache_dispatch_key a, aoticache_dispatch_key b)
{
    return aoticache_key_set_of(a) | aoticache_key_set_of(b);
}

Test(key_set, of_a_key_has_its_bits)
{
    cr_expect_eq(aoticache_key_set_of(KEY(Undefined)), 0);
    cr_expect_eq(aoticache_key_set_of(KEY(CPU)), 0x10001);
    cr_expect_eq(aoticache_key_set_of(KEY(Dense)), 0x10000);
    cr_expect_eq(aoticache_key_set_of(KEY(PythonDispatcher)), UINT64_C(1) << 61);
    cr_expect_eq(aoticache_key_set_of(KEY(Autograd)), 0);
}

Test(key_set, of_a_number_outside_the_list_is_empty)
{
    cr_expect_eq(aoticache_key_set_of(-1), 0);
    cr_expect_eq(aoticache_key_set_of(INT32_MIN), 0);
    cr_expect_eq(aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_COUNT), 0);
    cr_expect_eq(aoticache_key_set_of(INT32_MAX), 0);
}

Test(key_set, remove_leaves_the_backend)
{
    aoticache_key_set set = set_of(KEY(CPU), KEY(AutogradCPU));
    cr_expect_eq(aoticache_key_set_remove(set, KEY(AutogradCPU)), aoticache_key_set_of(KEY(CPU)));
    cr_expect_eq(aoticache_key_set_minus(set, set), 1);
    cr_expect_eq(aoticache_key_set_remove(set, KEY(AutogradCUDA)), aoticache_key_set_of(KEY(CPU)));
}

Test(key_set, has_needs_functionality_and_backend)
{
    aoticache_key_set set = set_of(KEY(CPU), KEY(AutogradCUDA));
    cr_expect(aoticache_key_set_has(set, KEY(AutogradCPU)), "two bits are there, whoever set them");
    cr_expect_not(aoticache_key_set_has(set, KEY(SparseCPU)));
    cr_expect_not(aoticache_key_set_has(set, KEY(XPU)));
}

Test(key_set, highest_of_the_empty_set_is_undefined)
{
    cr_expect_eq(aoticache_key_set_highest(0), KEY(Undefined));
    cr_expect_eq(aoticache_key_set_entry(0), 0);
    cr_expect_eq(aoticache_key_set_highest(0xffff), KEY(Undefined));
    cr_expect_eq(aoticache_key_set_entry(0xffff), 0);
}

Test(key_set, highest_is_the_functionality_on_the_highest_backend)
{
    aoticache_key_set set = set_of(KEY(CPU), KEY(CUDA));
    cr_expect_eq(aoticache_key_set_highest(set), KEY(CUDA));
    set = aoticache_key_set_add(set, KEY(AutogradCPU));
    cr_expect_eq(aoticache_key_set_highest(set), KEY(AutogradCUDA));
    set = aoticache_key_set_add(set, KEY(Python));
    cr_expect_eq(aoticache_key_set_highest(set), KEY(AutogradCUDA));
    set = aoticache_key_set_add(set, KEY(Tracer));
    cr_expect_eq(aoticache_key_set_highest(set), KEY(Tracer));
}

Test(key_set, entry_of_a_runtime_keys_set_is_its_place)
{
    for (int32_t entry = 0; entry < aoticache_dispatch_num_entries(); entry++) {
        aoticache_key_set set = aoticache_key_set_of(aoticache_dispatch_key_of_entry(entry));
        cr_expect_eq(aoticache_key_set_entry(set), entry);
        cr_expect_eq(aoticache_key_set_entry(set | 1), entry, "the lowest backend changes nothing");
    }
}

Test(key_set, entry_of_any_bits_is_in_the_table)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        aoticache_key_set lowest = UINT64_C(1) << bit, all = lowest | (lowest - 1);
        cr_expect_lt((uint32_t)aoticache_key_set_entry(lowest), AOTICACHE_DISPATCH_ENTRIES);
        cr_expect_lt((uint32_t)aoticache_key_set_entry(all), AOTICACHE_DISPATCH_ENTRIES);
    }
    cr_expect_eq(aoticache_key_set_entry(UINT64_C(1) << 63), 0);
    cr_expect_eq(aoticache_key_set_entry(UINT64_MAX), 0);
}

Test(key_set, full_after_ends_below_the_key)
{
    aoticache_key_set set = aoticache_key_set_full_after(KEY(AutogradCPU));
    cr_expect(aoticache_key_set_has(set, KEY(AutogradOther)));
    cr_expect_not(aoticache_key_set_has(set, KEY(AutogradCPU)));
    cr_expect_not(aoticache_key_set_has(set, KEY(Tracer)));
    cr_expect(aoticache_key_set_has(set, KEY(PythonDispatcher)), "as in PyTorch");
}

struct taken {
    aoticache_dispatch_key keys[AOTICACHE_DISPATCH_ENTRIES];
    size_t count, most;
};

static bool take(void *user, aoticache_dispatch_key key)
{
    struct taken *taken = user;
    taken->keys[taken->count++] = key;
    return taken->count < taken->most;
}

Test(key_set, list_gives_runtime_keys_from_the_lowest)
{
    struct taken taken = {.most = AOTICACHE_DISPATCH_ENTRIES};
    aoticache_key_set_list(set_of(KEY(CPU), KEY(AutogradXLA)) | aoticache_key_set_of(KEY(Python)), take, &taken);
    const aoticache_dispatch_key wanted[] = {KEY(CPU), KEY(XLA), KEY(Python), KEY(AutogradCPU), KEY(AutogradXLA)};
    cr_assert_eq(taken.count, 5);
    for (size_t i = 0; i < 5; i++)
        cr_expect_eq(taken.keys[i], wanted[i]);
    aoticache_key_set_list(UINT64_MAX, NULL, NULL);
}

Test(key_set, list_of_the_full_set_gives_every_runtime_key)
{
    struct taken taken = {.most = AOTICACHE_DISPATCH_ENTRIES};
    aoticache_key_set_list(aoticache_key_set_full(), take, &taken);
    cr_assert_eq(taken.count, AOTICACHE_DISPATCH_ENTRIES - 1, "all but Undefined");
    for (size_t i = 0; i < taken.count; i++)
        cr_expect_eq(aoticache_dispatch_key_entry(taken.keys[i]), (int32_t)i + 1);
}

Test(key_set, list_ends_where_the_callback_says)
{
    for (size_t most = 1; most < 40; most++) {
        struct taken taken = {.most = most};
        aoticache_key_set_list(aoticache_key_set_full(), take, &taken);
        cr_expect_eq(taken.count, most);
    }
}

Test(key_set, format_prints_as_pytorch)
{
    char text[128];
    size_t length = aoticache_key_set_format(set_of(KEY(CPU), KEY(AutogradCPU)), text, sizeof text);
    cr_expect_str_eq(text, "DispatchKeySet(CPU, AutogradCPU)");
    cr_expect_eq(length, strlen(text));
    aoticache_key_set_format(0xffff, text, sizeof text);
    cr_expect_str_eq(text, "DispatchKeySet()");
}

Test(key_set, format_into_too_little_room_cuts_and_tells_the_length)
{
    const char wanted[] = "DispatchKeySet(CPU, AutogradCPU)";
    aoticache_key_set set = set_of(KEY(CPU), KEY(AutogradCPU));
    cr_expect_eq(aoticache_key_set_format(set, NULL, 0), strlen(wanted));
    for (size_t size = 1; size <= sizeof wanted; size++) {
        char text[sizeof wanted + 1];
        memset(text, '~', sizeof text);
        cr_expect_eq(aoticache_key_set_format(set, text, size), strlen(wanted));
        cr_expect_eq(strlen(text), size - 1);
        cr_expect_eq(strncmp(text, wanted, size - 1), 0);
        cr_expect_eq(text[size], '~', "written behind the end");
    }
}

Test(key_set, of_a_tensor_has_what_pytorch_gives_new_tensors)
{
    char text[128];
    aoticache_key_set_format(aoticache_key_set_of_tensor(KEY(CUDA), false), text, sizeof text);
    cr_expect_str_eq(text, "DispatchKeySet(CUDA, ADInplaceOrView, AutogradCUDA, AutocastCUDA)");
    aoticache_key_set_format(aoticache_key_set_of_tensor(KEY(CUDA), true), text, sizeof text);
    cr_expect_str_eq(text, "DispatchKeySet(CUDA, AutocastCUDA)");
    aoticache_key_set_format(aoticache_key_set_of_tensor(KEY(HIP), false), text, sizeof text);
    cr_expect_str_eq(text, "DispatchKeySet(HIP, ADInplaceOrView, AutogradOther)");
}

/* ---- this thread's sets ---- */

static void set_local(aoticache_key_set included, aoticache_key_set excluded)
{
    aoticache_dispatch_set_local((aoticache_dispatch_local){included, excluded});
}

static void *change(void *user)
{
    aoticache_key_set *ret_before = user;
    *ret_before = aoticache_dispatch_get_local().included;
    set_local(aoticache_key_set_full(), 0);
    return NULL;
}

Test(dispatch_local, sets_belong_to_one_thread)
{
    aoticache_key_set defaults = aoticache_dispatch_get_local().included, other = 0;
    aoticache_dispatch_include(KEY(Python), true);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, change, &other), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(other, defaults);
    cr_expect_eq(defaults, set_of(KEY(BackendSelect), KEY(ADInplaceOrView)));
    cr_expect_eq(aoticache_dispatch_get_local().included, aoticache_key_set_add(defaults, KEY(Python)));
}

Test(dispatch_local, taking_back_a_key_that_is_not_there_changes_nothing)
{
    set_local(aoticache_key_set_of(KEY(AutogradCPU)), aoticache_key_set_of(KEY(CPU)));
    aoticache_dispatch_include(KEY(AutogradCUDA), false);
    aoticache_dispatch_exclude(KEY(CUDA), false);
    cr_expect_eq(aoticache_dispatch_get_local().included, aoticache_key_set_of(KEY(AutogradCPU)));
    cr_expect_eq(aoticache_dispatch_get_local().excluded, aoticache_key_set_of(KEY(CPU)));
    aoticache_dispatch_include(KEY(AutogradCPU), false);
    cr_expect_eq(aoticache_dispatch_get_local().included, 1, "the backend stays, as in PyTorch");
}

Test(dispatch_local, guards_bring_back_what_was_before)
{
    aoticache_key_set included = aoticache_dispatch_get_local().included,
                      excluded = aoticache_dispatch_get_local().excluded;
    aoticache_dispatch_local before_add =
        aoticache_dispatch_add_local(aoticache_key_set_of(KEY(AutogradCPU)), aoticache_key_set_of(KEY(Python)));
    cr_expect(before_add.included == included && before_add.excluded == excluded);
    cr_expect_eq(aoticache_dispatch_get_local().included, included | aoticache_key_set_of(KEY(AutogradCPU)));
    cr_expect_eq(aoticache_dispatch_get_local().excluded, excluded | aoticache_key_set_of(KEY(Python)));
    aoticache_dispatch_local before_set = aoticache_dispatch_get_local();
    set_local(0, 0);
    cr_expect_eq(aoticache_dispatch_get_local().included, 0);
    cr_expect_eq(aoticache_dispatch_get_local().excluded, 0);
    aoticache_dispatch_set_local(before_set);
    cr_expect_eq(aoticache_dispatch_get_local().included, included | aoticache_key_set_of(KEY(AutogradCPU)));
    aoticache_dispatch_set_local(before_add);
    cr_expect_eq(aoticache_dispatch_get_local().included, included);
    cr_expect_eq(aoticache_dispatch_get_local().excluded, excluded);
}

Test(dispatch_local, set_of_a_call_is_the_tensors_with_this_threads)
{
    set_local(aoticache_key_set_of(KEY(BackendSelect)), aoticache_key_set_of(KEY(AutogradCPU)));
    aoticache_key_set tensors = aoticache_key_set_of_tensor(KEY(CPU), false);
    aoticache_key_set set = key_set_of_call(tensors, UINT64_MAX);
    cr_expect_eq(aoticache_key_set_highest(set), KEY(AutocastCPU));
    aoticache_key_set mask = ~(aoticache_key_set_of(KEY(AutocastCPU)) & ~KEY_SET_BACKEND_BITS);
    cr_expect_eq(aoticache_key_set_highest(key_set_of_call(tensors, mask)), KEY(ADInplaceOrView));
    aoticache_dispatch_exclude(KEY(ADInplaceOrView), true);
    cr_expect_eq(aoticache_key_set_highest(key_set_of_call(tensors, mask)), KEY(BackendSelect));
    aoticache_dispatch_include(KEY(BackendSelect), false);
    set = key_set_of_call(tensors, mask);
    cr_expect_eq(key_set_entry(set), aoticache_dispatch_key_entry(KEY(CPU)));
}
