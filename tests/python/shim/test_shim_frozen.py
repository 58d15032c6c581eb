"""Compares the shim's functions for packages that were compiled with Inductor's `freezing` with PyTorch's operators of the same
names: weights packed for oneDNN, convolutions and linear layers with fused operations on their results. Random shapes from a
fixed seed.

Runs twice, as test_shim_blas.py does: with the oneDNN and BLAS of the machine, and without. tests/python/models/test_models.py runs
whole packages. Environment: BUILD, the build directory.
"""
import ctypes
import random

import pytest
import torch

import shim_checks
import test_shim_blas as products
from test_shim_blas import compare, i64, memory_format, numbers

pytestmark = pytest.mark.quick
mkldnn = torch.ops.mkldnn
MKLDNN_LAYOUT = 3
UNARY = [("none", [], ""), ("relu", [], ""), ("leaky_relu", [0.25], ""), ("hardtanh", [-0.5, 1.5], ""), ("hardswish", [], ""),
         ("hardsigmoid", [], ""), ("sigmoid", [], ""), ("swish", [], ""), ("tanh", [], ""), ("gelu", [], "none"),
         ("gelu", [], "tanh")]


class Shim(products.Shim):
    def pack(self, tensor, metadata=None, dtype=6):
        """Returns a handle like that of a constant of a frozen package; `tensor` has oneDNN's layout."""
        if metadata is None:
            metadata = bytes(mkldnn._get_mkldnn_serialized_md(tensor).tolist())
        sizes, handle = numbers(tensor.shape)[0], ctypes.c_void_p()
        self.call("aoti_torch_create_tensor_from_blob_v2", ctypes.c_void_p(mkldnn.data_ptr(tensor)), i64(tensor.dim()), sizes,
                  sizes, i64(0), dtype, 0, -1, ctypes.byref(handle), MKLDNN_LAYOUT, metadata, i64(len(metadata)))
        return handle

    def drop(self, *handles):
        for handle in handles:
            if handle is not None:
                self.call("aoti_torch_delete_tensor_object", handle)


shim, begin = shim_checks.each_way(Shim), shim_checks.seeded(2)


def place(handle):
    return ctypes.byref(handle) if handle is not None else None


def scalar_list(scalars):
    values = [ctypes.c_double(value) for value in scalars]
    pointers = (ctypes.POINTER(ctypes.c_double) * max(1, len(values)))(*[ctypes.pointer(value) for value in values])
    return pointers, i64(len(values))


def unary_arguments(name, scalars, algorithm):
    return (name.encode(), *scalar_list(scalars), ctypes.byref(ctypes.c_char_p(algorithm.encode())))


def small_or_large(i):
    """Returns a case of test_shim_blas.py, mostly in two dimensions, and whether it is transposed."""
    while True:
        case = products.convolution_case(large=i % 2 == 0)
        if len(case[0]) == 4:
            return case


def reordered(w, input_sizes, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        return mkldnn._reorder_convolution_transpose_weight(w, padding, output_padding, stride, dilation, groups, input_sizes)
    return mkldnn._reorder_convolution_weight(w, padding, stride, dilation, groups, input_sizes)


def wrapped_weight(shim, w, packed, input_sizes, *rest):
    if not packed:
        return w, shim.wrap(w)
    theirs = reordered(w, input_sizes, *rest)
    return theirs, shim.pack(theirs)


def test_packed_weights(shim):
    for i in range(120):
        input_sizes, weight_sizes, _, *rest = small_or_large(i)
        if rest[3]:
            continue
        w = torch.randn(weight_sizes)
        handle = shim.pack(reordered(w, input_sizes, *rest))
        layout = ctypes.c_int32()
        shim.call("aoti_torch_get_layout", handle, ctypes.byref(layout))
        assert layout.value == MKLDNN_LAYOUT, layout.value
        assert torch.equal(shim.unwrap(handle), w), (weight_sizes, rest)
    for sizes in ((1000, 512), (64, 33), (7, 5), (300, 64)):
        w = torch.randn(sizes)
        assert torch.equal(shim.unwrap(shim.pack(mkldnn._reorder_linear_weight(w, 16))), w), sizes
    w = torch.randn(40, 64).bfloat16()
    if mkldnn._is_mkldnn_bf16_supported():
        assert torch.equal(shim.unwrap(shim.pack(mkldnn._reorder_linear_weight(w, 16), dtype=15)), w)


def refused(shim, word, *arguments, **named):
    try:
        shim.pack(*arguments, **named)
    except RuntimeError as error:
        assert word in str(error) and "freezing" in str(error), error
        return
    raise AssertionError("not refused: %s" % word)


def test_unknown_layouts(shim):
    packed = mkldnn._reorder_convolution_weight(torch.randn(32, 16, 3, 3), [1, 1], [1, 1], [1, 1], 1, [1, 16, 20, 20])
    metadata = bytes(mkldnn._get_mkldnn_serialized_md(packed).tolist())
    refused(shim, "772", packed, metadata[:-4])
    refused(shim, "0 bytes", packed, b"")
    # The kind; extra flags; a size; the dimension of a block; the number of blocks; the dtype; the number of dimensions; a
    # stride.
    for at, value in ((312, 4), (640, 1), (8, 31), (520, 4), (416, 13), (104, 2), (4, 13), (4, 0), (328, 1 << 20)):
        changed = metadata[:at] + value.to_bytes(4, "little") + metadata[at + 4:]
        refused(shim, "unsupported layout", packed, changed)
    refused(shim, "unsupported layout", packed, metadata, dtype=15)


def test_pointwise(shim):
    for i in range(150):
        input_sizes, weight_sizes, outputs, *rest = small_or_large(i)
        stride, padding, dilation, transposed, output_padding, groups = rest
        packed = random.random() < 0.6
        if transposed and output_padding != [0, 0]:
            continue
        x, w = memory_format(torch.randn(input_sizes)), torch.randn(weight_sizes) / 4
        bias = torch.randn(outputs) if random.random() < 0.5 else None
        unary = random.choice(UNARY)
        theirs, weight = wrapped_weight(shim, w, packed, input_sizes, *rest)
        handle = shim.wrap(bias) if bias is not None else None
        lists = [*numbers(padding)] + ([*numbers(output_padding)] if transposed else []) + [*numbers(stride), *numbers(dilation)]
        given, result = shim.wrap(x), ctypes.c_void_p()
        try:
            # twice: the first call keeps the weight in another form
            for _ in range(2):
                shim.call("aoti_torch_cpu_mkldnn__convolution_%spointwise" % ("transpose_" if transposed else ""), given, weight,
                          place(handle), *lists, i64(groups), *unary_arguments(*unary), ctypes.byref(result))
                seen = shim.unwrap(result)
                plain = torch.ops.aten.convolution(x, w, bias, *rest)
                compare(seen.contiguous(), reference(unary, plain).contiguous(), 30)
            wanted = mkldnn._convolution_transpose_pointwise(x, theirs, bias, padding, output_padding, stride, dilation, groups,
                                                             *unary) if transposed else \
                mkldnn._convolution_pointwise(x, theirs, bias, padding, stride, dilation, groups, *unary)
            compare(seen, wanted, 30)  # compares the strides, too
        except Exception as error:
            raise AssertionError("%s %s by %s, %s, packed %s, %s: %s" % (tuple(x.shape), x.stride(), weight_sizes, rest, packed,
                                                                        unary, error))
        shim.drop(given, weight, handle)


def reference(unary, x):
    name, scalars, algorithm = unary
    functional = torch.nn.functional
    return {"none": lambda: x, "relu": lambda: functional.relu(x), "leaky_relu": lambda: functional.leaky_relu(x, *scalars),
            "hardtanh": lambda: functional.hardtanh(x, *scalars), "hardswish": lambda: functional.hardswish(x),
            "hardsigmoid": lambda: functional.hardsigmoid(x), "sigmoid": lambda: torch.sigmoid(x),
            "swish": lambda: functional.silu(x), "tanh": lambda: torch.tanh(x),
            "gelu": lambda: functional.gelu(x, approximate=algorithm)}[name]()


def test_binary(shim):
    for i in range(150):
        input_sizes, weight_sizes, outputs, *rest = small_or_large(i)
        stride, padding, dilation, transposed, _, groups = rest
        if transposed:
            continue
        x, w = memory_format(torch.randn(input_sizes)), torch.randn(weight_sizes) / 4
        bias = torch.randn(outputs) if random.random() < 0.5 else None
        plain = torch.ops.aten.convolution(x, w, bias, *rest)
        other, in_place = memory_format(torch.randn(plain.shape)), random.random() < 0.6
        if random.random() < 0.5:
            other = torch.empty_like(plain).copy_(other)
        binary = random.choice(["add", "add", "sub", "mul"])
        alpha = random.choice([None, 1.0, 0.5]) if binary == "add" else None
        relu = random.random() < 0.5
        wanted = plain * other if binary == "mul" else plain + (-1 if binary == "sub" else alpha or 1) * other
        wanted = torch.relu(wanted) if relu else wanted
        theirs, weight = wrapped_weight(shim, w, random.random() < 0.6, input_sizes, *rest)
        handle = shim.wrap(bias) if bias is not None else None
        given, result, second = shim.wrap(x), ctypes.c_void_p(), shim.wrap(other)
        operands = (second, given) if in_place else (given, second)
        name = ctypes.c_char_p(b"relu")
        shim.call("aoti_torch_cpu_mkldnn__convolution_pointwise_binary" + "_" * in_place, *operands, weight, place(handle),
                  *numbers(padding), *numbers(stride), *numbers(dilation), i64(groups), binary.encode(),
                  place(ctypes.c_double(alpha) if alpha is not None else None), place(name if relu else None),
                  *scalar_list([]), None, ctypes.byref(result))
        try:
            seen = shim.unwrap(result)
            compare(seen.contiguous(), wanted.contiguous(), 30)
            if in_place:
                compare(other.contiguous(), wanted.contiguous(), 30)
            else:  # PyTorch's supports no other factor than 1
                pytorchs = mkldnn._convolution_pointwise.binary(x, other, theirs, bias, padding, stride, dilation, groups, binary,
                                                                None, "relu" if relu else None, [], None)
                compare(seen, pytorchs if alpha != 0.5 else torch.empty_like(pytorchs).copy_(wanted), 30)
        except Exception as error:
            raise AssertionError("%s %s by %s, %s, %s %s, in place %s: %s" % (
                tuple(x.shape), x.stride(), weight_sizes, rest, binary, other.stride(), in_place, error))
        shim.drop(given, weight, handle, second)


def test_many_channels(shim):
    """Images with adjacent channels, enough of them that oneDNN's own blocks are faster: the addend, too, is put into them."""
    for channels, outputs, stride in ((64, 64, 1), (80, 72, 2), (128, 64, 1)):
        x, w = torch.randn(2, channels, 14, 14).to(memory_format=torch.channels_last), torch.randn(outputs, channels, 3, 3) / 24
        plain = torch.conv2d(x, w, None, stride, 1)
        weight = shim.pack(reordered(w, x.shape, [stride] * 2, [1, 1], [1, 1], False, [0, 0], 1))
        for _ in range(2):
            other = torch.randn(plain.shape).to(memory_format=torch.channels_last)
            wanted = torch.relu(plain + other)
            given, second, result = shim.wrap(x), shim.wrap(other), ctypes.c_void_p()
            shim.call("aoti_torch_cpu_mkldnn__convolution_pointwise_binary_", second, given, weight, None, *numbers([1, 1]),
                      *numbers([stride] * 2), *numbers([1, 1]), i64(1), b"add", None, place(ctypes.c_char_p(b"relu")),
                      *scalar_list([]), None, ctypes.byref(result))
            compare(shim.unwrap(result).contiguous(), wanted.contiguous(), 30)
            compare(other.contiguous(), wanted.contiguous(), 30)
            shim.drop(given, second)
        shim.drop(weight)


def test_linear(shim):
    for i in range(160):
        rows, inputs = random.choice([0, 1, 2, 5, 8, 40, 251]), random.choice([1, 33, 64, 200, 600])
        outputs = random.choice([1, 10, 64, 300])
        front = random.choice([[rows], [2, rows], [rows, 3]])
        x, w = torch.randn([*front, inputs]), torch.randn(outputs, inputs)
        x = x.transpose(0, 1) if len(front) == 2 and random.random() < 0.3 else x
        bias = torch.randn(outputs) if random.random() < 0.5 else None
        packed = random.random() < 0.6 and rows > 0
        weight = shim.pack(mkldnn._reorder_linear_weight(w, rows)) if packed else shim.wrap(w)
        handle = shim.wrap(bias) if bias is not None else None
        given, result, plain = shim.wrap(x), ctypes.c_void_p(), torch.nn.functional.linear(x, w, bias)
        if i % 2 == 0:
            unary = random.choice(UNARY)
            for _ in range(2):  # the first call keeps the weight in another form
                shim.call("aoti_torch_cpu__linear_pointwise", given, weight, place(handle), *unary_arguments(*unary),
                          ctypes.byref(result))
                seen = shim.unwrap(result)
                compare(seen.contiguous(), reference(unary, plain).contiguous(), 30)
        else:
            binary, other = random.choice(["add", "sub", "mul"]), torch.randn(plain.shape)
            second = shim.wrap(other)
            shim.call("aoti_torch_cpu__linear_pointwise_binary", given, second, weight, place(handle), binary.encode(),
                      ctypes.byref(result))
            wanted = {"add": plain + other, "sub": plain - other, "mul": plain * other}[binary]
            shim.drop(second)
            compare(shim.unwrap(result).contiguous(), wanted.contiguous(), 30)
        shim.drop(given, weight, handle)


def test_lstm(shim):
    for steps, batch, inputs, units, reverse in ((11, 3, 24, 32, False), (5, 1, 32, 7, True), (3, 16, 40, 64, False)):
        layer = torch.nn.LSTM(inputs, units)
        x, state, cell = torch.randn(steps, batch, inputs), torch.randn(1, batch, units), torch.randn(1, batch, units)
        weights = [weight.detach() for weight in layer._flat_weights]
        rest = (reverse, [], 2, units, 1, True, False, False, False)
        wanted = torch.ops.aten.mkldnn_rnn_layer(x, *weights, state, cell, *rest)
        packed = mkldnn._reorder_mkldnn_rnn_layer_weight(weights[0], weights[1], units, reverse, True, False, [steps, batch, inputs])
        handles = [shim.wrap(x), *[shim.pack(weight) for weight in packed], *map(shim.wrap, weights[2:]), shim.wrap(state),
                   shim.wrap(cell)]
        results = [ctypes.c_void_p() for _ in range(4)]
        shim.call("aoti_torch_cpu_mkldnn_rnn_layer", *handles, reverse, None, i64(0), i64(2), i64(units), i64(1), 1, 0, 0, 0,
                  *map(ctypes.byref, results))
        for seen, other in zip(results[:3], wanted):
            torch.testing.assert_close(shim.unwrap(seen).flatten(), other.flatten(), atol=1e-5, rtol=1e-5)
        shim.drop(*handles, results[3])


def pack_half(shim, packed, dtype):
    """Returns the packed weight as `dtype`, in the same blocks: what PyTorch makes on a processor with instructions for it."""
    metadata = bytes(mkldnn._get_mkldnn_serialized_md(packed).tolist())
    count = 1
    for d in range(int.from_bytes(metadata[4:8], "little")):
        count *= int.from_bytes(metadata[112 + 8 * d:120 + 8 * d], "little")
    floats = torch.frombuffer(bytearray(ctypes.string_at(mkldnn.data_ptr(packed), 4 * count)), dtype=torch.float32)
    number = {torch.float16: 1, torch.bfloat16: 2}[dtype]
    metadata = metadata[:104] + number.to_bytes(4, "little") + metadata[108:]
    halves, handle = floats.to(dtype), ctypes.c_void_p()
    sizes = numbers(packed.shape)[0]
    shim.call("aoti_torch_create_tensor_from_blob_v2", ctypes.c_void_p(halves.data_ptr()), i64(packed.dim()), sizes, sizes, i64(0),
              products.NUMBERS[dtype], 0, -1, ctypes.byref(handle), MKLDNN_LAYOUT, metadata, i64(len(metadata)))
    return handle


def test_half(shim):
    """bfloat16 and float16: computed in float32, rounded once. PyTorch on this processor may lack these operators."""
    for i in range(120):
        dtype = [torch.bfloat16, torch.float16][i % 2]
        input_sizes, weight_sizes, outputs, *rest = small_or_large(i // 2)
        stride, padding, dilation, transposed, output_padding, groups = rest
        if transposed and output_padding != [0, 0]:
            continue
        if i % 5 == 0:  # a linear layer
            transposed, input_sizes, weight_sizes, outputs = False, [random.choice([1, 2, 40]), 64], [50, 64], 50
        x, w = torch.randn(input_sizes).to(dtype), (torch.randn(weight_sizes) / 4).to(dtype)
        x = memory_format(x) if len(input_sizes) == 4 else x
        bias = torch.randn(outputs).to(dtype) if random.random() < 0.5 else None
        floats = [x.float(), w.float(), bias.float() if bias is not None else None]
        plain = torch.nn.functional.linear(*floats) if i % 5 == 0 else torch.ops.aten.convolution(*floats, *rest)
        if random.random() < 0.6:
            packed = mkldnn._reorder_linear_weight(w.float(), input_sizes[0]) if i % 5 == 0 else reordered(w.float(), input_sizes, *rest)
            weight = pack_half(shim, packed, dtype)
        else:
            weight = shim.wrap(w)
        handle, given, result = shim.wrap(bias) if bias is not None else None, shim.wrap(x), ctypes.c_void_p()
        lists = [*numbers(padding)] + ([*numbers(output_padding)] if transposed else []) + [*numbers(stride), *numbers(dilation), i64(groups)]
        lists = [] if i % 5 == 0 else lists
        if transposed or random.random() < 0.5:
            unary = random.choice(UNARY)
            wanted, second, name = reference(unary, plain), None, "pointwise"
            arguments = [given, weight, place(handle), *lists, *unary_arguments(*unary)]
        else:
            other, in_place = torch.randn(plain.shape).to(dtype), random.random() < 0.5 and i % 5 != 0
            wanted, second, name = plain + other.float(), shim.wrap(other), "pointwise_binary" + "_" * in_place
            arguments = [*((second, given) if in_place else (given, second)), weight, place(handle), *lists, b"add"]
            arguments += [None, None, *scalar_list([]), None] if i % 5 else []
        prefix = "aoti_torch_cpu__linear_" if i % 5 == 0 else "aoti_torch_cpu_mkldnn__convolution_" + "transpose_" * transposed
        for again in range(1 if name.endswith("_") else 2):  # the first call keeps the weight as float32
            shim.call(prefix + name, *arguments, ctypes.byref(result))
            seen = shim.unwrap(result)
            assert seen.dtype == dtype, seen.dtype
            torch.testing.assert_close(seen.float(), wanted.to(dtype).float(), rtol=1e-2, atol=1e-2, check_stride=False)
        if name.endswith("_"):
            torch.testing.assert_close(other.float(), wanted.to(dtype).float(), rtol=1e-2, atol=1e-2)
        shim.drop(given, weight, handle, second)
