/* base/text/name_distance: which operator a typing error may stand for. */
#include <criterion/criterion.h>

#include "base/text/name_distance.h"

static bool is_near(const char *written, const char *known)
{
    return aoticache_operator_distance(written, known) != AOTICACHE_NOT_NEAR;
}

Test(name_distance, slips_stand_for_operators)
{
    cr_assert(is_near("aten::ad", "aten::add.Tensor"));
    cr_assert(is_near("aten::add", "aten::add.Tensor"));
    cr_assert(is_near("aten::abss", "aten::abs"));
    cr_assert(is_near("aten::asb", "aten::abs"));
    cr_assert(is_near("atn::abs", "aten::abs"));
    cr_assert(is_near("ATEN::ABS", "aten::abs"));
    cr_assert(is_near("abs", "aten::abs"));
    cr_assert(is_near("my_ops::fused_gleu", "my_ops::fused_gelu"));
    cr_assert(is_near("aten::add.tensor", "aten::add.Tensor"));
    cr_assert(is_near("theirs::scaled_dot", "ours::scaled_dot")); /* the same in another namespace */
}

Test(name_distance, other_operators_are_not_offered)
{
    cr_assert_not(is_near("aten::sub", "aten::sum"));
    cr_assert_not(is_near("aten::sub.Tensor", "aten::mul.Tensor"));
    cr_assert_not(is_near("aten::cos", "aten::abs"));
    cr_assert_not(is_near("aten::relu", "aten::abs"));
    cr_assert_not(is_near("", "aten::abs"));
    cr_assert_not(is_near("aten::", "aten::abs"));
    cr_assert_not(is_near("theirs::scaled_dots", "ours::scaled_dot"));
}

Test(name_distance, names_of_dtypes_are_found)
{
    cr_expect_str_eq(aoticache_nearest_dtype("flot32"), "float32");
    cr_expect_str_eq(aoticache_nearest_dtype("Float64"), "float64");
    cr_expect_str_eq(aoticache_nearest_dtype("float"), "float32");
    cr_expect_str_eq(aoticache_nearest_dtype("long"), "int64");
    cr_expect_null(aoticache_nearest_dtype("xyzzy"));
    cr_expect_null(aoticache_nearest_dtype(""));
    cr_expect_str_eq(aoticache_nearest_argument_word("gpu"), "cuda");
    cr_expect_str_eq(aoticache_nearest_argument_word("non"), "none");
    cr_expect_str_eq(aoticache_nearest_argument_word("chanels_last"), "channels_last");
    char hint[AOTICACHE_HINT_BYTES];
    aoticache_write_hint("float32", hint);
    cr_expect_str_eq(hint, "; did you mean float32?");
    aoticache_write_hint(NULL, hint);
    cr_expect_str_eq(hint, "");
}

Test(name_distance, the_nearer_one_is_nearer)
{
    cr_assert_lt(aoticache_operator_distance("aten::add.tensor", "aten::add.Tensor"),
                 aoticache_operator_distance("aten::add.tensor", "aten::add.Scalar"));
    cr_assert_lt(aoticache_operator_distance("aten::add", "aten::add.Scalar"),
                 aoticache_operator_distance("aten::add", "aten::addr"));
    cr_assert_lt(aoticache_operator_distance("aten::ad", "aten::add.Tensor"),
                 aoticache_operator_distance("aten::ad", "ours::ad"));
}
