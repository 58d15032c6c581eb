/*
 * What the tests of the dispatcher share: one dispatcher for each test, kernels that record by a number which of them
 * ran, and shorthands that assert success.
 */
#ifndef TESTS_UNIT_DISPATCHER_FIXTURE_H
#define TESTS_UNIT_DISPATCHER_FIXTURE_H

#include "eager/dispatch/dispatcher.h"
#include "eager/dispatch/questions.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"

enum { KERNELS = 16, PLACES = 16 };

static aoticache_dispatcher *dispatcher;
static aoticache_error error;
static int numbers[KERNELS], reached, releases[KERNELS], releases_inside;
static aoticache_key_set reached_keys;
static aoticache_oplib *to_take_back;

static void dispatcher_begin(void)
{
    cr_assert_eq(aoticache_dispatcher_create(&dispatcher, &error), AOTICACHE_OK);
    for (int i = 0; i < KERNELS; i++)
        numbers[i] = i;
    aoticache_dispatch_set_local((aoticache_dispatch_local){0, 0}); /* tests of thread-local key sets set their own */
}

static void dispatcher_end(void)
{
    aoticache_dispatcher_free(dispatcher);
}

#define succeeds(call) cr_assert_eq(call, AOTICACHE_OK, "%s", error.message)
#define fails(call, status, why)                                             \
    do {                                                                     \
        cr_expect_eq(call, status);                                          \
        cr_expect_not_null(strstr(error.message, why), "%s", error.message); \
    } while (0)
#define is_refused(call, why) fails(call, AOTICACHE_INVALID, why)

/* ---- kernels ---- */

/* Runs a kernel that removes all its arguments from the stack. */
static aoticache_status run_kernel(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                   aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)op, (void)ret_error;
    reached = *(const int *)user;
    reached_keys = keys;
    stack->count = 0;
    return AOTICACHE_OK;
}

static void release_kernel(void *user)
{
    releases[*(const int *)user]++;
}

static aoticache_boxed_kernel plain_kernel(int number)
{
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = run_kernel;
    kernel.user = &numbers[number];
    return kernel;
}

static aoticache_boxed_kernel typed_kernel(int number, const char *signature)
{
    aoticache_boxed_kernel kernel = plain_kernel(number);
    kernel.signature = signature;
    return kernel;
}

static aoticache_boxed_kernel released_kernel(int number)
{
    aoticache_boxed_kernel kernel = plain_kernel(number);
    kernel.release = release_kernel;
    return kernel;
}

static const aoticache_boxed_kernel *fallthrough(void)
{
    static const aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    return &kernel;
}

static aoticache_status take_back(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                  aoticache_stack *stack, aoticache_error *ret_error)
{
    aoticache_oplib_free(to_take_back);
    releases_inside = releases[*(const int *)user];
    return run_kernel(user, op, keys, stack, ret_error);
}

/* Makes a kernel that frees its own oplib while it runs. */
static aoticache_boxed_kernel suicidal_kernel(aoticache_oplib *oplib, int number)
{
    aoticache_boxed_kernel kernel = released_kernel(number);
    to_take_back = oplib;
    kernel.call = take_back;
    return kernel;
}

/* ---- registering ---- */

static aoticache_oplib *open_oplib(aoticache_oplib_kind kind, const char *namespace_name, const char *key,
                                   uint32_t line)
{
    aoticache_oplib *oplib = NULL;
    succeeds(aoticache_oplib_create(dispatcher, kind, namespace_name, key, "/x/f.c", line, &oplib, &error));
    return oplib;
}

static void define(aoticache_oplib *oplib, const char *schema)
{
    succeeds(aoticache_oplib_def(oplib, schema, AOTICACHE_ALIAS_DEFAULT, &error));
}

static void add_kernel(aoticache_oplib *oplib, const char *name, const char *key, const aoticache_boxed_kernel *kernel)
{
    succeeds(aoticache_oplib_impl(oplib, name, key, kernel, &error));
}

/* kernel: a struct or a pointer to one. */
#define add(oplib, name, key, kernel) \
    add_kernel(                       \
        oplib, name, key,             \
        _Generic((kernel), const aoticache_boxed_kernel *: add_pointer, aoticache_boxed_kernel: add_struct)(kernel))

static const aoticache_boxed_kernel *add_pointer(const aoticache_boxed_kernel *kernel)
{
    return kernel;
}

static const aoticache_boxed_kernel *add_struct(aoticache_boxed_kernel kernel)
{
    static aoticache_boxed_kernel kept;
    kept = kernel;
    return &kept;
}

static aoticache_operator *find(const char *name)
{
    aoticache_operator *op = NULL;
    succeeds(aoticache_dispatcher_find_any(dispatcher, name, &op, &error));
    return op;
}

/* ---- dumps ---- */

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void is_dump(const char *name, const char *expected)
{
    char *text = NULL;
    succeeds(aoticache_operator_dump(find(name), &text, &error));
    cr_expect_str_eq(text, expected);
    free(text);
}

static char *table_of(const char *name)
{
    char *text = NULL;
    succeeds(aoticache_operator_dump_table(find(name), &text, &error));
    return text;
}

/* ---- calls ---- */

static aoticache_value places[PLACES];
static aoticache_stack stack = {.values = places, .capacity = PLACES};

static aoticache_value tensor_of(aoticache_key_set keys)
{
    static aoticache_tensor_view views[PLACES];
    static unsigned next;
    aoticache_tensor_view *view = &views[next++ % PLACES];
    *view =
        (aoticache_tensor_view){.dispatch_key_set = keys, .device = {.type = AOTICACHE_DEVICE_TYPE_CPU, .index = -1}};
    return (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = view};
}

static aoticache_value int_of(int64_t number)
{
    return (aoticache_value){.kind = AOTICACHE_VALUE_INT, .as.int_value = number};
}

/* Calls with one tensor that has the key. */
static aoticache_status call_with(const char *name, aoticache_dispatch_key key)
{
    reached = -1;
    places[0] = tensor_of(aoticache_key_set_of(key));
    stack.count = 1;
    return aoticache_operator_call(find(name), &stack, &error);
}

/* Returns the number of the kernel that ran; -1: the call failed. */
static int number_reached(const char *name, aoticache_dispatch_key key)
{
    return call_with(name, key) == AOTICACHE_OK ? reached : -1;
}

#endif
