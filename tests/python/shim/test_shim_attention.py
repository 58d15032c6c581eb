"""Compares the shim's attention with PyTorch's: shapes, strides, masks, causal, grouped heads, dtypes, refusals.

If PyTorch's function ends the process (it divides by the number of heads, queries or keys) the results are zeros.
PyTorch assumes that the innermost stride is 1, so operands with another one are compared with copies that have 1.
Environment: BUILD, the build directory.
"""
import ctypes
import hashlib
import itertools
import math

import pytest

import shim_checks
import test_shim_functions as functions
from test_shim_functions import call, refused, same, torch

pytestmark = pytest.mark.quick
NAME = "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu"
theirs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
INFINITY = float("inf")
# 16-bit results differ in their last bit; PyTorch also rounds the weights to 16 bits, which the shim does not.
TOLERANCES = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.float64: {"rtol": 1e-9, "atol": 1e-9},
              torch.bfloat16: {"rtol": 2e-2, "atol": 1.6e-2}, torch.float16: {"rtol": 2e-3, "atol": 2e-3}}
LOGSUMEXP = {"rtol": 1e-5, "atol": 1e-5}
LOGSUMEXP_SMALL = {"rtol": 1e-5, "atol": 1e-4}
shim, begin = shim_checks.each_way(functions.load, autouse=True), shim_checks.seeded(0)


def arguments(query, key, value, mask=None, causal=False, scale=None, dropout=0.0):
    keep = functions.Handle(mask) if mask is not None else None
    return [query, key, value, ctypes.c_double(dropout), ctypes.c_int32(causal),
            keep.pointer if keep is not None else None,
            ctypes.byref(ctypes.c_double(scale)) if scale is not None else None], keep


def ours(*given, **options):
    words, keep = arguments(*given, **options)
    return call(NAME, *words, results=2)


def compare(what, query, key, value, mask=None, causal=False, scale=None):
    seen = ours(query, key, value, mask, causal, scale)
    dense = [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (query, key, value)]
    wanted = theirs(*dense, 0.0, causal, attn_mask=mask, scale=scale)
    strides = torch.empty_like(query).stride()
    assert seen[0].stride() == strides, "%s: strides %s, %s wanted" % (what, seen[0].stride(), strides)
    same(seen[0].contiguous(), wanted[0].contiguous(), what, **TOLERANCES[query.dtype])
    same(seen[1], wanted[1], what + ": logsumexp", **(LOGSUMEXP if query.dtype.itemsize > 2 else LOGSUMEXP_SMALL))


def heads(batch, heads, length, width, dtype=torch.float32):
    return torch.randn(batch, heads, length, width).to(dtype)


LENGTHS = [(1, 1), (1, 700), (5, 7), (7, 5), (64, 64), (65, 513), (130, 1030), (200, 3)]


def test_lengths_and_dtypes():
    for dtype, (queries, keys), causal in itertools.product(TOLERANCES, LENGTHS, (False, True)):
        query, key, value = (heads(2, 3, n, 16, dtype) for n in (queries, keys, keys))
        compare("%s %dx%d causal %d" % (dtype, queries, keys, causal), query, key, value, causal=causal)


def test_widths_and_scales():
    for width, scale, dtype in itertools.product((1, 3, 40, 64, 130), (None, 0.0, 0.3, -0.4),
                                                 (torch.float32, torch.bfloat16)):
        for queries, keys in ((2, 33), (20, 33), (70, 600)):
            query, key, value = (heads(1, 2, n, width, dtype) for n in (queries, keys, keys))
            what = "width %d scale %s %s %dx%d" % (width, scale, dtype, queries, keys)
            compare(what, query, key, value, scale=scale)
            if scale is None or scale > 0:  # otherwise PyTorch multiplies -inf by it
                compare(what + " causal", query, key, value, causal=True, scale=scale)


def test_strides():
    batch, count, length, width = 2, 3, 70, 16
    forms = {"contiguous": heads(batch, count, length, width),
             "heads inside": torch.randn(batch, length, count, width).transpose(1, 2),
             "sequence first": torch.randn(length, batch, count, width).permute(1, 2, 0, 3),
             "part of a projection": torch.randn(batch, length, 3, count, width).permute(2, 0, 3, 1, 4)[1],
             "width outside": torch.randn(batch, count, width, length).mT,
             "every second": torch.randn(batch, count, length, 2 * width)[..., ::2],
             "with an offset": torch.randn(batch, count, length + 9, width)[:, :, 9:],
             "repeated": torch.randn(1, 1, length, width).expand(batch, count, length, width)}
    for (name, tensor), dtype in itertools.product(forms.items(), (torch.float32, torch.bfloat16)):
        plain = heads(batch, count, length, width, dtype)
        for place in range(3):
            given = [plain, plain, plain]
            given[place] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype).copy_(tensor) \
                if 0 not in tensor.stride() else tensor.to(dtype)[:1, :1].expand(tensor.shape)
            compare("%s at %d of %s" % (name, place, dtype), *given)


def test_grouped_heads():
    for (count, groups), queries, dtype in itertools.product(((4, 2), (6, 1), (8, 8)), (1, 9, 40),
                                                             (torch.float32, torch.bfloat16)):
        query, key, value = (heads(2, n, length, 8, dtype) for n, length in ((count, queries), (groups, 70), (groups, 70)))
        compare("%d heads of %d" % (count, groups), query, key, value)
        wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        same(ours(query, key, value)[0], wanted, "%d heads of %d" % (count, groups), **TOLERANCES[dtype])


def test_masks():
    queries, keys = 70, 530
    shapes = [(queries, keys), (1, keys), (queries, 1), (1, 1), (1, 1, queries, keys), (2, 1, 1, keys),
              (2, 3, queries, keys), (1, 3, 1, keys)]
    for shape, dtype, causal in itertools.product(shapes, (torch.float32, torch.bfloat16, torch.float64), (0, 1)):
        query, key, value = (heads(2, 3, n, 8, dtype) for n in (queries, keys, keys))
        of_numbers = torch.randn(shape).to(dtype)
        of_bools = torch.zeros(shape, dtype=dtype).masked_fill(torch.rand(shape) < 0.4, -INFINITY)
        for mask in (of_numbers, of_bools):
            compare("mask %s %s causal %d" % (shape, dtype, causal), query, key, value, mask, bool(causal))
    query, key = heads(1, 1, 9, 8, torch.bfloat16), heads(1, 1, 12, 8, torch.bfloat16)
    compare("a mask of float", query, key, key, torch.randn(9, 12))
    compare("a mask with strides", query.float(), key.float(), key.float(), torch.randn(24, 9).t()[:, ::2])


def test_special_values():
    """Rows that are masked, completely or except for one late key; NaN and infinity stay in their rows."""
    query, key, value = heads(1, 2, 6, 8), heads(1, 2, 1600, 8), heads(1, 2, 1600, 8)
    mask = torch.randn(6, 1600)
    mask[0] = -INFINITY
    mask[1] = -INFINITY
    mask[1, 1500] = 0
    mask[2] = math.nan
    mask[3, 700] = INFINITY
    mask[4, 3] = math.nan
    mask[5, :1200] = -INFINITY
    compare("special values", query, key, value, mask)
    compare("special values, causal", query, key, value, mask, True)
    assert ours(query, key, value, mask)[0][0, 0, 0].abs().max() == 0
    for dtype in (torch.float32, torch.bfloat16):
        large = heads(1, 1, 40, 8, dtype) * 300
        compare("large scores", large, large, large)
    query, key, value = (heads(1, 2, n, 32, torch.bfloat16) for n in (64, 700, 700))
    query[0, 0, 5], query[0, 1, 7, 3], value[0, 1, 650, 3] = math.nan, INFINITY, math.nan
    compare("special bfloat16 values", query, key, value)


def test_nothing_to_attend_to():
    for batch, count, queries, keys, width in ((0, 2, 3, 4, 8), (1, 0, 3, 4, 8), (1, 2, 0, 4, 8), (1, 2, 3, 0, 8),
                                               (1, 2, 3, 4, 0)):
        query, key = heads(batch, count, queries, width), heads(batch, count, keys, width)
        out, logsumexp = ours(query, key, key)
        same(out, torch.zeros_like(query))
        assert logsumexp.shape == (batch, count, queries)


def test_threads():
    """The result is bit for bit the same with any number of threads."""
    runtime = ctypes.CDLL("libgomp.so.1")  # the one that the shim uses
    before, seen = runtime.omp_get_max_threads(), set()
    query, key = heads(2, 4, 300, 32), heads(2, 4, 900, 32)
    for threads in (1, 2, 5):
        runtime.omp_set_num_threads(threads)
        assert runtime.omp_get_max_threads() == threads
        seen.add(hashlib.sha256(ours(query, key, key, causal=True)[0].numpy().tobytes()).hexdigest())
    runtime.omp_set_num_threads(before)
    assert len(seen) == 1, seen


def test_refusals():
    query, key = heads(1, 4, 5, 8), heads(1, 4, 7, 8)
    bad = {"must have 4 dimensions; these have 3, 4 and 4": ([query[0], key, key], {}),
           "must have the same dtype; these are float32, bfloat16 and float32": ([query, key.bfloat16(), key], {}),
           "not supported for int64": ([query.long(), key.long(), key.long()], {}),
           "1 x 4 x 7 x 8 keys, but 1 x 4 x 6 x 8 values": ([query, key, key[:, :, :6]], {}),
           "keys of batch 2 and width 8": ([query, key.expand(2, 4, 7, 8), key.expand(2, 4, 7, 8)], {}),
           "keys of batch 1 and width 4": ([query, key[..., :4], key[..., :4]], {}),
           "4 heads of queries are not a multiple of 3": ([query, key[:, :3], key[:, :3]], {}),
           "dropout is 0.5": ([query, key, key], {"dropout": 0.5}),
           "a mask of bool for a query of float32": ([query, key, key], {"mask": torch.ones(5, 7) > 0}),
           "but has 3": ([query, key, key], {"mask": torch.ones(4, 5, 7)}),
           "dimension 0 of the mask has size 4; it must be 5 or 1": ([query, key, key], {"mask": torch.ones(4, 7)})}
    for text, (given, options) in bad.items():
        words, keep = arguments(*given, **options)
        refused(text, NAME, *words, results=2)
