"""Compares the shim's LSTM layer with PyTorch's, which uses oneDNN: lengths, directions, biases, dtypes, strides,
refusals.

Environment: BUILD, the build directory.
"""
import itertools

import pytest

import shim_checks
import test_shim_functions as functions
from test_shim_functions import call, int64, refused, same, torch

pytestmark = pytest.mark.quick
NAME = "aoti_torch_cpu_mkldnn_rnn_layer"
# oneDNN rounds the state to 16 bits between steps, which the shim does not.
TOLERANCES = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2}}
shim, begin = shim_checks.each_way(functions.load, autouse=True), shim_checks.seeded(0)


def make(steps, batch, inputs, units, dtype=torch.float32, state_dims=2):
    shapes = [(steps, batch, inputs), (4 * units, inputs), (4 * units, units), (4 * units,), (4 * units,),
              (1, batch, units)[-state_dims:], (1, batch, units)[-state_dims:]]
    return [(torch.randn(shape) / 2).to(dtype) for shape in shapes]


def ours(given, reverse=False, units=None, biases=True, mode=2, layers=1, bidirectional=0):
    units = given[2].shape[1] if units is None else units
    return call(NAME, *given, int(reverse), None, int64(0), int64(mode), int64(units), int64(layers), int(biases),
                bidirectional, 0, 0, results=4)


def compare(what, given, reverse=False, biases=True):
    seen = ours(given, reverse, biases=biases)
    dtype = given[0].dtype
    # If PyTorch's oneDNN has no bfloat16 (processors without AVX-512), its float32 on the same numbers is the reference.
    asked = torch.float32 if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported() else dtype
    dense = [tensor.contiguous().to(asked) for tensor in given]  # oneDNN assumes that they are contiguous
    wanted = torch.ops.aten.mkldnn_rnn_layer(*dense, reverse, [], 2, given[2].shape[1], 1, biases, False, False, False)
    wanted = [tensor.to(dtype) for tensor in wanted]
    for part, place in (("output", 0), ("state", 1), ("cell", 2)):
        same(seen[place], wanted[place], "%s: %s" % (what, part), **TOLERANCES[dtype])


def test_sizes():
    for steps, batch, inputs, units in ((1, 1, 1, 1), (5, 2, 3, 4), (17, 3, 65, 33), (9, 16, 128, 96)):
        for dtype, reverse, dims in itertools.product(TOLERANCES, (False, True), (2, 3)):
            compare("%dx%dx%d, %d units, %s, reverse %d" % (steps, batch, inputs, units, dtype, reverse),
                    make(steps, batch, inputs, units, dtype, dims), reverse)


def test_without_biases():
    given = make(5, 2, 3, 4)
    seen = ours(given, biases=False)
    wanted = ours(given[:3] + [torch.zeros(16), torch.zeros(16)] + given[5:])
    for a, b in zip(seen, wanted):
        same(a, b)


def test_strides():
    given = make(6, 3, 10, 8)
    given[0] = torch.randn(3, 6, 10).transpose(0, 1)
    given[1], given[2] = torch.randn(10, 32).t() / 2, torch.randn(8, 32).t() / 2
    given[5] = torch.randn(3, 16)[:, ::2]
    compare("strides", given)


def test_operands_stay():
    given = make(4, 2, 3, 4)
    before = [tensor.clone() for tensor in given]
    ours(given)
    for a, b in zip(given, before):
        same(a, b)


def test_empty():
    given = make(0, 2, 3, 4)
    output, state, cell, _ = ours(given)
    assert output.shape == (0, 2, 4)
    same(state, given[5])
    same(cell, given[6])
    assert ours(make(5, 0, 3, 4))[0].shape == (5, 0, 4)
    assert ours(make(5, 2, 0, 4))[0].abs().max() > 0


def test_refusals():
    def refuse(text, given, units=4, mode=2, layers=1, bidirectional=0):
        refused(text, NAME, *given, 0, None, int64(0), int64(mode), int64(units), int64(layers), 1, bidirectional, 0, 0,
                results=4)
    good = make(5, 2, 3, 4)
    refuse("this is mode 3 with 1 layers", good, mode=3)
    refuse("mode 2 with 2 layers", good, layers=2)
    refuse("bidirectional 1", good, bidirectional=1)
    refuse("the input's weight must be 20 x 3", good, units=5)
    refuse("the input must have 3 dimensions", [good[0][0]] + good[1:])
    refuse("one is float64", [good[0].double()] + good[1:])
    refuse("one is bfloat16", good[:1] + [good[1].bfloat16()] + good[2:])
    refuse("the state's weight must be 16 x 4", good[:2] + [good[2][:, :3]] + good[3:])
    refuse("a bias must have 16 elements, but has 15", good[:3] + [good[3][:15]] + good[4:])
    refuse("the cell must be 2 x 4", good[:6] + [good[6][:1]])
