/*
 * What the tests of calls share, on top of dispatcher_fixture.h: one operator t::f for each test, and calls of it.
 */
#ifndef TESTS_UNIT_DISPATCH_CALL_FIXTURE_H
#define TESTS_UNIT_DISPATCH_CALL_FIXTURE_H

#include "dispatcher_fixture.h"

static aoticache_oplib *def;

static aoticache_operator *begin(const char *schema)
{
    def = open_oplib(AOTICACHE_OPLIB_DEF, "t", NULL, 1);
    define(def, schema);
    return find("t::f");
}

static aoticache_status call_on(const aoticache_operator *op, const aoticache_value *values, size_t count)
{
    reached = -1;
    memcpy(places, values, count * sizeof *values);
    stack.count = count;
    return aoticache_operator_call(op, &stack, &error);
}

#define VALUES(...) \
    (const aoticache_value[]){__VA_ARGS__}, sizeof((const aoticache_value[]){__VA_ARGS__}) / sizeof(aoticache_value)
#define SET(name) aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_##name)

/* Numbers of kernels and modes in the order in which they were called. */
static int seen[8], seen_count;

#endif
