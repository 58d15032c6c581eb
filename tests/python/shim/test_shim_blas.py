"""Compares matrix multiplications, convolutions and pooling of the shim with PyTorch's: random shapes, strides and dtypes from a
fixed seed.

Runs twice: in plain C, without BLAS and oneDNN, and with those of the machine. The shim is called on memory of PyTorch's tensors;
results must have PyTorch's sizes and strides too. Environment: BUILD, the build directory.
"""
import ctypes
import math
import random
import subprocess
import sys

import pytest
import torch

import shim_checks

NUMBERS = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
           torch.float32: 6, torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bfloat16: 15}
DTYPES = {number: dtype for dtype, number in NUMBERS.items()}
i64 = ctypes.c_int64
aten = torch.ops.aten


def numbers(values):
    return (i64 * len(values))(*values), i64(len(values))


class Shim:
    def __init__(self, path):
        self.library, self.is_plain = ctypes.CDLL(path), path != shim_checks.SHIM
        self.library.torch_exception_get_what_without_backtrace.restype = ctypes.c_char_p

    def call(self, function, *arguments):
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(self.library.torch_exception_get_what_without_backtrace().decode())

    def wrap(self, tensor):
        handle = ctypes.c_void_p()
        self.call("aoti_torch_create_tensor_from_blob", ctypes.c_void_p(tensor.data_ptr()), i64(tensor.dim()),
                  numbers(tensor.shape)[0], numbers(tensor.stride())[0], i64(0), NUMBERS[tensor.dtype], 0, -1,
                  ctypes.byref(handle))
        return handle

    def unwrap(self, handle):
        """Returns a copy of the tensor of a handle, and deletes the handle."""
        dim, dtype, data, bytes_ = i64(), ctypes.c_int32(), ctypes.c_void_p(), i64()
        sizes, strides = ctypes.POINTER(i64)(), ctypes.POINTER(i64)()
        self.call("aoti_torch_get_dim", handle, ctypes.byref(dim))
        self.call("aoti_torch_get_dtype", handle, ctypes.byref(dtype))
        self.call("aoti_torch_get_sizes", handle, ctypes.byref(sizes))
        self.call("aoti_torch_get_strides", handle, ctypes.byref(strides))
        self.call("aoti_torch_get_data_ptr", handle, ctypes.byref(data))
        self.call("aoti_torch_get_storage_size", handle, ctypes.byref(bytes_))
        copy = torch.empty(bytes_.value, dtype=torch.uint8)
        if bytes_.value > 0:
            ctypes.memmove(copy.data_ptr(), data.value, bytes_.value)
        result = torch.as_strided(copy.view(DTYPES[dtype.value]), sizes[:dim.value], strides[:dim.value])
        self.call("aoti_torch_delete_tensor_object", handle)
        return result

    def run(self, function, tensors, *arguments, results=1):
        """Calls a function: first the tensors, then the numbers, then the output pointers."""
        handles = [self.wrap(tensor) for tensor in tensors]
        places = [ctypes.c_void_p() for _ in range(results)]
        try:
            self.call(function, *handles, *arguments, *[ctypes.byref(place) for place in places])
        finally:
            for handle in handles:
                self.call("aoti_torch_delete_tensor_object", handle)
        return [self.unwrap(place) for place in places]


def compare(seen, wanted, scale=1):
    assert seen.shape == wanted.shape, "sizes %s, PyTorch %s" % (tuple(seen.shape), tuple(wanted.shape))
    strides = [(a, b) for a, b, size in zip(seen.stride(), wanted.stride(), wanted.shape) if size > 1]
    assert wanted.numel() == 0 or all(a == b for a, b in strides), "strides %s, PyTorch %s" % (
        seen.stride(), wanted.stride())
    tolerance = {torch.float32: (1e-5 * scale, 1.3e-6), torch.complex64: (1e-5 * scale, 1.3e-6),
                 torch.bfloat16: (1e-2 * scale, 1.6e-2), torch.float16: (1e-2 * scale, 1e-2),
                 torch.float64: (1e-11, 1e-7), torch.complex128: (1e-11, 1e-7)}.get(wanted.dtype, (0, 0))
    torch.testing.assert_close(seen, wanted, atol=tolerance[0], rtol=tolerance[1], equal_nan=True, check_stride=False)


def values(shape, dtype):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(-9 if dtype.is_signed else 0, 9, shape, dtype=dtype)


def strided(shape, dtype):
    """Returns a tensor that is contiguous, transposed, with gaps, or with a stride of 0."""
    kind = random.choice(["plain", "plain", "transposed", "gaps", "both", "expanded"])
    if kind == "transposed":
        return values([*shape[:-2], shape[-1], shape[-2]], dtype).transpose(-1, -2)
    if kind == "gaps":
        return values([*shape[:-1], shape[-1] + 3], dtype)[..., :shape[-1]]
    if kind == "both":
        return values([*shape[:-1], 2 * shape[-1]], dtype)[..., ::2]
    if kind == "expanded":
        return values([*shape[:-1], 1], dtype).expand(shape)
    return values(shape, dtype)


torch.set_num_threads(2)
shim, begin = shim_checks.each_way(Shim), shim_checks.seeded(1)
PRODUCT_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128,
                  torch.int64, torch.int8]


def test_products(shim):
    for i in range(160):
        dtype = PRODUCT_DTYPES[i % len(PRODUCT_DTYPES)]
        m, n, k = [random.choice([1, 2, 3, 5, 17, 64, 70, 129]) for _ in range(3)]
        batch = random.choice([None, 1, 3, 40]) if m * n * k < 70000 else random.choice([None, 1, 3])
        front = [] if batch is None else [batch]
        a, b = strided([*front, m, k], dtype), strided([*front, k, n], dtype)
        out = values([*front, n, m], dtype).transpose(-1, -2) if i % 3 == 0 else values([*front, m, n], dtype)
        if i % 2 == 0:
            function, tensors, factors = ("mm_out" if batch is None else "bmm_out"), [a, b], []
            wanted = a @ b
        else:
            beta, alpha = (2, 3) if dtype in (torch.int64, torch.int8) else (random.choice([0.0, 1.0, 0.5]), 1.5)
            addend = values(random.choice([[n], [m, 1], [m, n]]) if batch is None else [batch, m, n], dtype)
            if beta == 0:
                addend.fill_(float("nan"))
            function, tensors = ("addmm_out" if batch is None else "baddbmm_out"), [addend, a, b]
            factors = [ctypes.c_double(beta), ctypes.c_double(alpha)]
            wanted = (torch.addmm if batch is None else torch.baddbmm)(addend, a, b, beta=beta, alpha=alpha)
        shim.run("aoti_torch_cpu_" + function, [out, *tensors], *factors, results=0)
        torch.testing.assert_close(out, wanted, check_stride=False, atol=tolerance_of(dtype, k),
                                   rtol=1e-2 if dtype.itemsize == 2 else 1e-5)


def tolerance_of(dtype, depth):
    if dtype in (torch.bfloat16, torch.float16):
        return 2e-2 * depth ** 0.5
    return 1e-5 * depth ** 0.5 if dtype in (torch.float32, torch.complex64) else 1e-10 if dtype.is_floating_point or \
        dtype.is_complex else 0


def test_bfloat16(shim):
    """Large enough for oneDNN: orders, gaps, addends that it can add and others. Rounded once."""
    for i in range(48):
        m, n, k = random.choice([1, 2, 8, 33, 130]), random.choice([64, 97, 520]), random.choice([64, 100, 777])
        a, b = (torch.randn(m, k) / 4).bfloat16(), (torch.randn(k, n) / 4).bfloat16()
        a = a.t().contiguous().t() if i % 3 == 0 else a
        b = b.t().contiguous().t() if i % 2 == 0 else b
        out = values([m, n + 5], torch.bfloat16)[:, :n] if i % 4 == 0 else values([m, n], torch.bfloat16)
        product = a.double() @ b.double()
        if i % 6 == 0:
            wanted = product
            shim.run("aoti_torch_cpu_mm_out", [out, a, b], results=0)
        else:
            addend = out if i % 6 == 1 else values(random.choice([[n], [m, 1], [m, n]]), torch.bfloat16)
            beta, alpha = (1.0, 1.0) if i % 6 != 2 else (0.5, 2.0)
            wanted = beta * addend.double() + alpha * product
            shim.run("aoti_torch_cpu_addmm_out", [out, addend, a, b], ctypes.c_double(beta), ctypes.c_double(alpha), results=0)
        torch.testing.assert_close(out.double(), wanted, rtol=2 ** -8, atol=1e-4 * k ** 0.5)


def test_vectors_and_sums(shim):
    for i in range(60):
        dtype = PRODUCT_DTYPES[i % len(PRODUCT_DTYPES)]
        m, n, k = [random.choice([1, 3, 17, 64]) for _ in range(3)]
        beta, alpha = (2, 3) if dtype in (torch.int64, torch.int8) else (random.choice([0.0, 0.5]), 1.5)
        factors = [ctypes.c_double(beta), ctypes.c_double(alpha)]
        matrix, vector = strided([m, k], dtype), strided([1, k], dtype)[0]
        addend = values([random.choice([1, m])], dtype)
        if beta == 0:
            addend.fill_(float("nan"))
        seen, = shim.run("aoti_torch_cpu_addmv", [addend, matrix, vector], *factors)
        wanted = torch.addmv(addend, matrix, vector, beta=beta, alpha=alpha)
        torch.testing.assert_close(seen, wanted, atol=tolerance_of(dtype, k),
                                   rtol=1e-2 if dtype.itemsize == 2 else 1e-5)
        batches = random.choice([0, 1, 4])
        a, b = strided([batches, m, k], dtype), strided([batches, k, n], dtype)
        addend = values(random.choice([[n], [m, 1], [m, n]]), dtype)
        seen, = shim.run("aoti_torch_cpu_addbmm", [addend, a, b], *factors)
        wanted = torch.addbmm(addend, a, b, beta=beta, alpha=alpha)
        torch.testing.assert_close(seen, wanted, atol=tolerance_of(dtype, 4 * k),
                                   rtol=1e-2 if dtype.itemsize == 2 else 1e-5)


def test_in_place(shim):
    """The addend is also the result."""
    for size in (5, 96):
        a, b, out = [torch.randn(size, size) for _ in range(3)]
        wanted = torch.addmm(out, a, b, beta=0.5)
        shim.run("aoti_torch_cpu_addmm_out", [out, out, a, b], ctypes.c_double(0.5), ctypes.c_double(1), results=0)
        compare(out, wanted, 20)


def test_large(shim):
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        a, b, out = [torch.randn(n, m).to(dtype) for n, m in ((520, 1100), (1100, 2100), (520, 2100))]
        wanted = a @ b
        shim.run("aoti_torch_cpu_mm_out", [out, a, b], results=0)
        torch.testing.assert_close(out, wanted, atol=1e-3 if dtype != torch.bfloat16 else 0.5, rtol=1e-2)


def memory_format(tensor):
    """Returns the tensor unchanged, channels last, or with gaps."""
    kind = random.choice(["plain", "plain", "channels last", "gaps"])
    if kind == "channels last" and tensor.dim() in (4, 5):
        return tensor.to(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
    if kind == "gaps":
        wide = torch.empty([*tensor.shape[:-1], tensor.shape[-1] + 2], dtype=tensor.dtype)
        wide[..., :-2] = tensor
        return wide[..., :-2]
    return tensor


def convolution_case(large=False):
    """large: enough multiplications for oneDNN, if the input is not very small; channels that fill its blocks or do not."""
    axes = random.choice([1, 2, 2, 2, 3])
    groups = random.choice([1, 1, 2, 4])
    inputs, outputs = groups * random.choice([1, 2, 5]), groups * random.choice([1, 3, 8])
    if large:
        inputs, outputs = groups * random.choice([3, 16, 20]), groups * random.choice([7, 16, 33])
    if large and random.random() < 0.3: # depthwise
        groups = inputs = outputs = random.choice([16, 35, 64])
    transposed = random.random() < 0.35
    kernel = [random.choice([1, 2, 3] if axes > 1 else [1, 3, 7]) for _ in range(axes)]
    if random.random() < 0.25:
        kernel = [1] * axes
    stride = [random.choice([1, 1, 2, 3]) for _ in range(axes)]
    dilation = [random.choice([1, 1, 2]) for _ in range(axes)]
    padding = [random.choice([0, 1, 2]) for _ in range(axes)]
    output_padding = [random.randrange(max(s, d)) for s, d in zip(stride, dilation)] if transposed else [0] * axes
    sizes = [random.choice([6, 9, 13]) if axes > 1 else 40 for _ in range(axes)]
    if large and axes < 3:
        sizes = [size * random.choice([2, 3]) for size in sizes]
    input_sizes = [random.choice([1, 2, 3]), inputs, *sizes]
    weight_sizes = [inputs, outputs // groups, *kernel] if transposed else [outputs, inputs // groups, *kernel]
    return input_sizes, weight_sizes, outputs, stride, padding, dilation, transposed, output_padding, groups


def run_convolution(shim, x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    handle = shim.wrap(bias) if bias is not None else None
    place = ctypes.byref(handle) if bias is not None else None
    result, = shim.run("aoti_torch_cpu_convolution", [x, w], place, *numbers(stride), *numbers(padding),
                       *numbers(dilation), ctypes.c_int32(transposed), *numbers(output_padding), i64(groups))
    if handle is not None:
        shim.call("aoti_torch_delete_tensor_object", handle)
    return result


def test_convolutions(shim):
    for i in range(240):
        dtype = [torch.float32, torch.float64, torch.bfloat16, torch.float32][i % 4]
        input_sizes, weight_sizes, outputs, *rest = convolution_case()
        x, w = memory_format(values(input_sizes, dtype)), memory_format(values(weight_sizes, dtype))
        bias = values([outputs], dtype) if random.random() < 0.5 else None
        wanted = aten.convolution(x, w, bias, *rest)
        try:
            compare(run_convolution(shim, x, w, bias, *rest), wanted, 10)
        except Exception as error:
            raise AssertionError("%s %s %s by %s %s, %s: %s" % (dtype, tuple(x.shape), x.stride(), tuple(w.shape),
                                                               w.stride(), rest, error))


def test_convolutions_for_onednn(shim):
    for _ in range(200):
        input_sizes, weight_sizes, outputs, *rest = convolution_case(large=True)
        x, w = memory_format(values(input_sizes, torch.float32)), memory_format(values(weight_sizes, torch.float32))
        bias = values([2 * outputs], torch.float32)[::random.choice([1, 2])][:outputs] if random.random() < 0.5 else None
        try:
            for _ in range(2): # first made, then found again
                compare(run_convolution(shim, x, w, bias, *rest), aten.convolution(x, w, bias, *rest), 30)
        except Exception as error:
            raise AssertionError("%s %s by %s %s, %s: %s" % (tuple(x.shape), x.stride(), tuple(w.shape), w.stride(), rest,
                                                            error))
    used, there = "libdnnl.so" in shim_checks.loaded(), not shim.is_plain and has_onednn()
    assert used == there, "oneDNN was %sloaded, and it is %sthere" % (("not ", "")[used], ("not ", "")[there])


def has_onednn():
    """Returns whether oneDNN is available; a new process tries to load it."""
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    return any(subprocess.call([sys.executable, "-S", "-E", "-c", script, name], stderr=subprocess.DEVNULL) == 0
               for name in shim_checks.NAMES if "dnnl" in name)


def test_large_convolution(shim):
    for dtype in (torch.float32, torch.bfloat16):
        x, w = torch.randn(2, 64, 40, 40).to(dtype), torch.randn(96, 64, 3, 3).to(dtype)
        for format_ in (torch.contiguous_format, torch.channels_last):
            x = x.to(memory_format=format_)
            rest = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
            compare(run_convolution(shim, x, w, None, *rest), aten.convolution(x, w, None, *rest), 30)


def pooled_input(axes, dtype):
    sizes = [random.choice([5, 8, 11]) for _ in range(axes)]
    front = random.choice([[3], [2, 3], [1, 1], [2, 4]])
    x = values([*front, *sizes], dtype)
    if len(front) == 2:
        x = memory_format(x)
    if random.random() < 0.2:
        x[..., ::3] = float("nan")
    return x


def test_pooling(shim):
    for i in range(200):
        axes = random.choice([2, 3])
        # PyTorch has no average pooling over volumes of 16-bit numbers.
        dtype = random.choice([torch.float32, torch.float64] + [torch.bfloat16, torch.float16] * (axes == 2))
        x = pooled_input(axes, dtype)
        kernel = [random.choice([2, 3, 4]) for _ in range(axes)]
        stride = random.choice([[], [1] * axes, [2] * axes, [3] * axes])
        padding = [random.randrange(k // 2 + 1) for k in kernel]
        ceil = random.random() < 0.5
        if i % 2 == 0:
            dilation = [1] * axes if random.random() < 0.7 else [random.choice([1, 2])] * axes
            if any((k - 1) * d + 1 > s + 2 * p for k, d, s, p in zip(kernel, dilation, x.shape[-axes:], padding)):
                continue
            wanted = getattr(aten, "max_pool%dd_with_indices" % axes)(x, kernel, stride, padding, dilation, ceil)
            seen = shim.run("aoti_torch_cpu_max_pool%dd_with_indices" % axes, [x], *numbers(kernel), *numbers(stride),
                            *numbers(padding), *numbers(dilation), ctypes.c_int32(ceil), results=2)
        else:
            count, divisor = random.random() < 0.5, random.choice([None, None, 5])
            wanted = [getattr(aten, "avg_pool%dd" % axes)(x, kernel, stride, padding, ceil, count, divisor)]
            seen = shim.run("aoti_torch_cpu_avg_pool%dd" % axes, [x], *numbers(kernel), *numbers(stride),
                            *numbers(padding), ctypes.c_int32(ceil), ctypes.c_int32(count),
                            ctypes.byref(i64(divisor)) if divisor else None)
        for one, other in zip(seen, wanted):
            compare(one, other)


def test_wide_pooling(shim):
    """Rows and channels of several vectors, windows that no kernel of Inductor takes; equal elements, NaN, -inf."""
    for i in range(60):
        axes, dtype = (3, torch.float32) if i % 6 == 0 else (2, [torch.float32, torch.float64, torch.bfloat16][i % 3])
        sizes = [random.choice([9, 17, 40]) for _ in range(2)] + [random.choice([3, 5])] * (axes - 2)
        x = torch.randint(-2, 3, [2, random.choice([1, 3, 20, 37]), *sizes]).to(dtype)
        # If all are -inf, PyTorch's kernel for channels_last_3d gives some channels another index than the others.
        for value in (math.nan, -math.inf)[:4 - axes]:
            x[torch.rand(x.shape) < random.choice([0, 0.02, 0.9])] = value
        if i % 2 == 0:
            x = x.to(memory_format=torch.channels_last if axes == 2 else torch.channels_last_3d)
        kernel, stride = [random.choice([5, 9])] * 2 + [3] * (axes - 2), [random.choice([1, 1, 2])] * axes
        padding = [k // 2 for k in kernel]
        wanted = getattr(aten, "max_pool%dd_with_indices" % axes)(x, kernel, stride, padding)
        seen = shim.run("aoti_torch_cpu_max_pool%dd_with_indices" % axes, [x], *numbers(kernel), *numbers(stride),
                        *numbers(padding), *numbers([1] * axes), ctypes.c_int32(0), results=2)
        for one, other in zip(seen, wanted):
            compare(one, other)
        x = torch.randn(x.shape).to(dtype).to(memory_format=torch.channels_last) if axes == 2 and i % 2 else torch.randn(x.shape)
        wanted = getattr(aten, "avg_pool%dd" % axes)(x, kernel, stride, padding)
        seen = shim.run("aoti_torch_cpu_avg_pool%dd" % axes, [x], *numbers(kernel), *numbers(stride), *numbers(padding),
                        ctypes.c_int32(0), ctypes.c_int32(1), None)
        compare(seen[0], wanted)


def test_adaptive_pooling(shim):
    for i in range(120):
        axes = random.choice([2, 3])
        dtype = [torch.float32, torch.float64, torch.bfloat16, torch.float32][i % 4]
        x = pooled_input(axes, dtype)
        size = [random.choice([1, 2, 3, 7, 13]) for _ in range(axes)]
        if i % 2 == 0:
            wanted = getattr(aten, "adaptive_max_pool%dd" % axes)(x, size)
            seen = shim.run("aoti_torch_cpu_adaptive_max_pool%dd" % axes, [x], *numbers(size), results=2)
        else:
            wanted = [getattr(aten, "_adaptive_avg_pool%dd" % axes)(x, size)]
            seen = shim.run("aoti_torch_cpu__adaptive_avg_pool%dd" % axes, [x], *numbers(size))
        for one, other in zip(seen, wanted):
            compare(one, other)


def test_fractional_pooling(shim):
    for i in range(60):
        axes = random.choice([2, 3])
        x = memory_format(values([2, 3, *[random.choice([6, 9, 12]) for _ in range(axes)]],
                                 torch.float32 if i % 2 else torch.float64))
        kernel, size = [random.choice([2, 3])] * axes, [random.choice([1, 2, 3])] * axes
        samples = torch.rand(2, 3, axes, dtype=x.dtype)
        wanted = getattr(aten, "fractional_max_pool%dd" % axes)(x, kernel, size, samples)
        handle = shim.wrap(samples)
        seen = shim.run("aoti_torch_cpu_fractional_max_pool%dd" % axes, [x], *numbers(kernel), *numbers(size), handle,
                        results=2)
        shim.call("aoti_torch_delete_tensor_object", handle)
        for one, other in zip(seen, wanted):
            compare(one, other)
