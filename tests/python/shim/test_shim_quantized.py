"""Compares matrix multiplications and linear layers with elements of 8 and 4 bits with PyTorch's operators of the same
names. Random shapes from a fixed seed.

Weights of quantised layers are between -63 and 63: PyTorch's oneDNN saturates larger products on processors without VNNI,
and the shim does not. A package with layers of each kind, static and dynamic, is compiled and run without PyTorch.

Runs twice, as test_shim_blas.py does. Environment: BUILD, the build directory.
"""
import ctypes
import os
import random
import tempfile

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401: registers quantized_decomposed

import operator_table
import own_build
import shim_checks
import test_shim_blas as products
import test_shim_frozen as frozen
from test_shim_blas import i64, numbers
from test_shim_frozen import place, scalar_list

onednn, decomposed = torch.ops.onednn, torch.ops.quantized_decomposed
double = ctypes.c_double
MORE = {torch.uint8: 0, torch.int8: 1, torch.int32: 3, torch.float8_e5m2: 23, torch.float8_e4m3fn: 24}
products.NUMBERS.update(MORE)
products.DTYPES.update({number: dtype for dtype, number in MORE.items()})

operator_table.load_torch()
shim, begin = shim_checks.each_way(frozen.Shim), shim_checks.seeded(2)


def int8(*shape, most=127):
    return torch.randint(-most - (most == 127), most + 1, shape, dtype=torch.int8)


def test_int_mm(shim):
    for i in range(60):
        rows, depth, columns = random.choice([1, 2, 5, 70]), random.choice([0, 1, 15, 16, 33, 300]), random.choice([1, 4, 7, 65])
        a = int8(rows, depth) if i % 3 else torch.randint(0, 256, (rows, depth), dtype=torch.uint8)
        b = int8(depth, columns) if i % 2 else int8(columns, depth).t()
        a = a if i % 5 else a.t().contiguous().t()
        out = torch.full((columns, rows), 7, dtype=torch.int32).t() if i % 7 == 0 else torch.full((rows, columns), 7, dtype=torch.int32)
        shim.run("aoti_torch_cpu__int_mm_out", [out, a, b], results=0)
        assert torch.equal(out, (a.int() @ b.int())), (a.shape, a.dtype, b.shape, b.stride())
        if depth > 0 and i % 2 and i % 5:  # for transposed operands PyTorch computes wrong sums on some processors
            assert torch.equal(out, torch._int_mm(a, b))


def close(seen, wanted):
    assert seen.dtype == wanted.dtype, (seen.dtype, wanted.dtype)
    half = wanted.dtype in (torch.bfloat16, torch.float16)
    torch.testing.assert_close(seen, wanted, rtol=1.6e-2 if half else 1e-4, atol=2e-2 if half else 1e-3)


def test_weights_of_8_bits(shim):
    for i in range(40):
        dtype = [torch.bfloat16, torch.float32, torch.float16][i % 3]
        rows, depth, results = random.choice([1, 2, 5, 70]), random.choice([16, 64, 112]), random.choice([16, 48, 80])
        x, w, scales = torch.randn(rows, depth).to(dtype), int8(results, depth), (torch.rand(results) / 64).to(dtype)
        seen, = shim.run("aoti_torch_cpu__weight_int8pack_mm", [x, w, scales])
        close(seen, torch._weight_int8pack_mm(x, w, scales))


def test_weights_of_4_bits(shim):
    for i in range(90):
        dtype = [torch.bfloat16, torch.float32, torch.float16][i % 3]
        group = random.choice([32, 64])
        rows, depth = random.choice([1, 3, 4, 6, 9, 40]), group * random.choice([1, 2, 4, 19])
        results = random.choice([16, 32, 48, 64, 80, 128, 528])
        x, scales = torch.randn(rows, depth).to(dtype), (torch.rand(depth // group, results, 2) / 8).to(dtype)
        w = torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (results, depth), dtype=torch.int32), 1)
        seen, = shim.run("aoti_torch_cpu__weight_int4pack_mm_cpu_tensor", [x, w, torch.tensor(group), scales])
        close(seen, torch.ops.aten._weight_int4pack_mm_for_cpu(x, w, group, scales))


def test_scaled_mm(shim):
    for i in range(30):
        rows, depth, columns = random.choice([1, 5, 33]), random.choice([16, 48]), random.choice([1, 7, 64])
        dtype = random.choice([torch.float8_e4m3fn, torch.float8_e5m2])
        out_dtype = [torch.float32, torch.bfloat16, torch.float16][i % 3]
        a, b = torch.randn(rows, depth).to(dtype), torch.randn(columns, depth).to(dtype).t()
        scales = [torch.tensor(1.5), torch.tensor(0.25)] if i % 2 else [torch.rand(rows, 1), torch.rand(1, columns)]
        bias = torch.randn(columns) if i % 3 == 0 else None
        wanted = torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=out_dtype)
        out, handle = torch.empty(rows, columns, dtype=out_dtype), shim.wrap(bias) if bias is not None else None
        shim.run("aoti_torch_cpu__scaled_mm_out", [out, a, b, *scales], place(handle), None, None, 0, results=0)
        close(out, wanted)
        number = ctypes.c_int32(products.NUMBERS[out_dtype])
        seen, = shim.run("aoti_torch_cpu__scaled_mm", [a, b, *scales], place(handle), None, ctypes.byref(number), 0)
        close(seen, wanted)
        shim.drop(handle)


# ---- linear layers and convolutions ----

UNARY = [("none", [], ""), ("relu", [], ""), ("hardtanh", [-0.5, 1.5], ""), ("hardswish", [], ""), ("swish", [], ""),
         ("gelu", [], "none"), ("gelu", [], "tanh")]
OUTPUTS = [(torch.uint8, 0.11, 7), (torch.int8, 0.09, -3), (torch.float32, 1.0, 0), (torch.bfloat16, 1.0, 0)]


def near(seen, wanted):
    """Compares bytes. They may differ by one if a float is between two bytes, which is rare."""
    assert seen.dtype == wanted.dtype and seen.shape == wanted.shape, (seen.dtype, seen.shape, wanted.dtype, wanted.shape)
    if seen.is_floating_point():
        close(seen, wanted)
        return
    apart = (seen.int() - wanted.int()).abs()
    assert apart.numel() == 0 or (apart.max() <= 1 and (apart > 0).float().mean() < 0.02), (apart.max(), (apart > 0).float().mean())


def quantised_input(shape):
    if random.random() < 0.3:
        return int8(*shape, most=120), -5
    return torch.randint(0, 256, shape, dtype=torch.uint8), random.choice([0, 128, 255])


def call(shim, function, x, x_scale, zero_point, weight, scales, middle, last):
    """Returns the result; `weight` is a handle, `middle` has bias and other tensors."""
    result = ctypes.c_void_p()
    held = [torch.tensor(x_scale), torch.tensor(zero_point, dtype=torch.int32), scales, torch.zeros(len(scales), dtype=torch.int64)]
    handles = [shim.wrap(x), shim.wrap(held[0]), shim.wrap(held[1]), weight, shim.wrap(held[2]), shim.wrap(held[3])]
    shim.call("aoti_torch_cpu__" + function, *handles, *middle, *last, ctypes.byref(result))
    shim.drop(*handles)
    return shim.unwrap(result)


def test_linear(shim):
    for i in range(90):
        rows, inputs, outputs = random.choice([0, 1, 2, 40]), random.choice([1, 33, 64, 200]), random.choice([1, 10, 64, 130])
        x, zero_point = quantised_input(random.choice([[rows, inputs], [2, rows, inputs]]) if rows > 0 else [0, inputs])
        w, scales = int8(outputs, inputs, most=63), torch.rand(random.choice([1, outputs])) / 64 + 0.001
        bias = torch.randn(outputs) if random.random() < 0.6 else None
        packed, unary, (dtype, scale, point) = onednn.qlinear_prepack(w, [rows, inputs]), random.choice(UNARY), random.choice(OUTPUTS)
        binary = random.choice(["none", "none", "sum", "add"]) if rows > 0 else "none"
        unary = random.choice(UNARY[:2]) if binary != "none" else unary
        number, handle = ctypes.c_int32(products.NUMBERS[dtype]), shim.wrap(bias) if bias is not None else None
        weight = shim.pack(packed, dtype=1)
        after = (unary[0].encode(), *scalar_list(unary[1]), unary[2].encode())
        tensors = [x, torch.tensor(0.03), torch.tensor(zero_point, dtype=torch.int32), packed, scales,
                   torch.zeros(len(scales), dtype=torch.int64)]
        if binary == "none":
            wanted = onednn.qlinear_pointwise(*tensors, bias, scale, point, dtype, *unary)
            seen = call(shim, "qlinear_pointwise_tensor", x, 0.03, zero_point, weight, scales, [place(handle)],
                        [double(scale), i64(point), ctypes.byref(number), *after])
        else:
            is_float = dtype.is_floating_point or binary == "add"
            shape = [*x.shape[:-1], outputs]
            other = torch.randn(shape).to(dtype if binary == "sum" else torch.float32) if is_float else \
                torch.randint(0, 100, shape, dtype=dtype)
            other_scale, other_point = (1.0, 0) if dtype.is_floating_point else (0.05, 11)  # PyTorch's "add" reads neither
            theirs, ours, second = other.clone(), other.clone(), None
            wanted = onednn.qlinear_pointwise.binary_tensor(*tensors, theirs, bias, scale, point, dtype, other_scale,
                                                            other_point, binary, 1.0, *unary)
            second = shim.wrap(ours)
            seen = call(shim, "qlinear_pointwise_binary_tensor", x, 0.03, zero_point, weight, scales,
                        [place(second), place(handle)],
                        [double(scale), i64(point), ctypes.byref(number), double(other_scale), i64(other_point), binary.encode(),
                         double(1), *after])
            if binary == "sum":
                near(ours, theirs)
            shim.drop(second)
        try:
            near(seen, wanted)
        except AssertionError as error:
            raise AssertionError("%s %s zero point %d by %s, %s %s, %s: %s" % (tuple(x.shape), x.dtype, zero_point, tuple(w.shape),
                                                                               binary, unary, dtype, error))
        shim.drop(handle)


def test_refusals(shim):
    x, w, scales = torch.randint(0, 256, (3, 8), dtype=torch.uint8), int8(8, 5), torch.rand(5)
    number = ctypes.c_int32(6)
    rest = [double(1), i64(0), ctypes.byref(number), b"none", *scalar_list([]), b""]
    cases = [("uint8 or int8", x.float(), w, scales, rest), ("must be int8", x, w.float(), scales, rest),
             ("does not match", x, int8(7, 5), scales, rest), ("3 scales", x, w, torch.rand(3), rest),
             ("scale 1", x, w, scales, [double(2), *rest[1:]]), ("not supported", x, w, scales, [*rest[:3], b"cosh", *rest[4:]])]
    for word, given, weight, factors, arguments in cases:
        try:
            call(shim, "qlinear_pointwise_tensor", given, 0.1, 3, shim.wrap(weight), factors, [None], arguments)
        except RuntimeError as error:
            assert word in str(error), error
        else:
            raise AssertionError("not refused: " + word)


# ---- packages ----

class Quantised(torch.nn.Module):
    """The result of a quantiser for this processor: convolution, function, linear layer, static or dynamic."""

    def __init__(self, dynamic):
        super().__init__()
        self.dynamic = dynamic
        for name, w in (("c", int8(8, 3, 3, 3, most=63)), ("l", int8(10, 128, most=63))):
            self.register_buffer(name, w)
            self.register_buffer(name + "_scale", torch.rand(len(w)) / 64 + 0.001)
            self.register_buffer(name + "_zero", torch.zeros(len(w), dtype=torch.int64))

    def through(self, x, scale, point):
        if not self.dynamic:
            x = decomposed.quantize_per_tensor(x, scale, point, 0, 255, torch.uint8)
            return decomposed.dequantize_per_tensor(x, scale, point, 0, 255, torch.uint8)
        scale, point = decomposed.choose_qparams.tensor(x, 0, 255, 1.1920928955078125e-07, torch.uint8)
        x = decomposed.quantize_per_tensor.tensor(x, scale, point, 0, 255, torch.uint8)
        return decomposed.dequantize_per_tensor.tensor(x, scale, point, 0, 255, torch.uint8)

    def weight(self, name):
        return decomposed.dequantize_per_channel(getattr(self, name), getattr(self, name + "_scale"), getattr(self, name + "_zero"), 0,
                                                 -128, 127, torch.int8)

    def forward(self, x):
        if not self.dynamic:
            x = torch.relu(torch.nn.functional.conv2d(self.through(x, 0.03, 128), self.weight("c"), stride=2, padding=1))
        return torch.nn.functional.linear(self.through(x.flatten(1), 0.05, 3), self.weight("l"))


class Both(torch.nn.Module):
    """Both in one package, since compiling it takes PyTorch nearly as long as compiling one of them."""

    def __init__(self):
        super().__init__()
        self.static, self.dynamic = Quantised(False), Quantised(True)

    def forward(self, x, y):
        return self.static(x), self.dynamic(y)


def test_packages():
    """Built our way, which is faster: the code that calls the shim is the same."""
    module, inputs = Both().eval(), [torch.randn(2, 3, 8, 8), torch.randn(4, 128)]
    with torch.no_grad(), tempfile.TemporaryDirectory() as directory, own_build.make_builder(torch).active():
        wanted, path = module(*inputs), os.path.join(directory, "model.pt2")
        torch._inductor.aoti_compile_and_package(torch.export.export(module, tuple(inputs)), package_path=path,
                                                 inductor_configs={"freezing": True})
        seen, why = operator_table.run_alone(path, inputs)
        assert why is None, why
        theirs = torch._inductor.aoti_load_package(path)(*inputs)
    assert len(seen) == len(theirs) == 2
    for ours, one, eager in zip(seen, theirs, wanted):
        torch.testing.assert_close(ours, one, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, eager, rtol=1e-2, atol=0.1)
