"""Compares convolutions with 8-bit elements with PyTorch's operators of the same names, as test_shim_quantized.py does.

With AMX, PyTorch's oneDNN computes dilated convolutions of bytes wrong, so this process disables AMX. Without AMX there is no
8-bit float, so the rest runs in a separate process. Environment: BUILD, the build directory.
"""
import ctypes
import os
import random

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"  # read when oneDNN is first used

import pytest
import torch

import shim_checks
import test_shim_blas as products
import test_shim_frozen as frozen
from test_shim_blas import i64, memory_format, numbers
from test_shim_frozen import place, scalar_list
from test_shim_quantized import OUTPUTS, UNARY, call, double, int8, near, onednn

pytestmark = pytest.mark.quick
shim, begin = shim_checks.each_way(frozen.Shim), shim_checks.seeded(2)


def convolution_case():
    axes = random.choice([1, 2, 2, 2, 3])
    groups = random.choice([1, 1, 2, 0])
    inputs, outputs = (8, 8) if groups == 0 else (groups * random.choice([1, 5, 16]), groups * random.choice([1, 7, 16]))
    groups = groups or 8
    kernel = [random.choice([1, 3]) for _ in range(axes)]
    size = [random.choice([5, 9]) for _ in range(axes)]
    lists = [[random.choice([1, 2]) for _ in range(axes)], [random.choice([0, 1]) for _ in range(axes)],
             [random.choice([1, 2]) for _ in range(axes)]]
    return [random.choice([1, 3]), inputs, *size], [outputs, inputs // groups, *kernel], lists, groups


def test_convolution(shim):
    for i in range(90):
        input_sizes, weight_sizes, (stride, padding, dilation), groups = convolution_case()
        x, zero_point = memory_format(torch.randint(0, 256, input_sizes, dtype=torch.uint8)), random.choice([0, 128, 255])
        outputs = weight_sizes[0]
        w, scales = int8(*weight_sizes, most=63), torch.rand(outputs) / 64 + 0.001
        bias = torch.randn(outputs) if random.random() < 0.6 else None
        packed = onednn.qconv_prepack(w, scales, 0.03, zero_point, stride, padding, dilation, groups, input_sizes)
        unary = random.choice(UNARY[:4] if len(input_sizes) == 4 else UNARY[:{3: 2, 5: 1}[len(input_sizes)]])
        dtype, scale, point = random.choice(OUTPUTS)
        binary = random.choice(["none", "sum"]) if len(input_sizes) == 4 else "none"
        number, handle = ctypes.c_int32(products.NUMBERS[dtype]), shim.wrap(bias) if bias is not None else None
        weight = shim.pack(packed, dtype=1)
        lists = [*numbers(stride), *numbers(padding), *numbers(dilation), i64(groups), double(scale), i64(point),
                 ctypes.byref(number)]
        tensors = [x, torch.tensor(0.03), torch.tensor(zero_point, dtype=torch.int32), packed, scales,
                   torch.zeros(outputs, dtype=torch.int64)]
        try:
            if binary == "none":
                wanted = onednn.qconv_pointwise.tensor(*tensors, bias, stride, padding, dilation, groups, scale, point, dtype, *unary)
                seen = call(shim, "qconv_pointwise_tensor", x, 0.03, zero_point, weight, scales, [place(handle)],
                            [*lists, unary[0].encode(), *scalar_list(unary[1]), ctypes.byref(ctypes.c_char_p(unary[2].encode()))])
            else:
                unary = random.choice(UNARY[:2])
                plain = onednn.qconv_pointwise.tensor(*tensors, bias, stride, padding, dilation, groups, scale, point, dtype, *UNARY[0])
                other = torch.empty_like(plain).copy_(torch.randn(plain.shape) if dtype.is_floating_point else
                                                      torch.randint(0, 100, plain.shape))
                other_scale, other_point = (1.0, 0) if dtype.is_floating_point else (0.05, 11)
                theirs, ours = other.clone(), other.clone()
                wanted = onednn.qconv2d_pointwise.binary_tensor(*tensors, theirs, bias, stride, padding, dilation, groups, scale, point,
                                                                dtype, other_scale, other_point, "sum", 1.0, *unary)
                second = shim.wrap(ours)
                seen = call(shim, "qconv2d_pointwise_binary_tensor", x, 0.03, zero_point, weight, scales, [second, place(handle)],
                            [*lists, double(other_scale), i64(other_point), b"sum", ctypes.byref(double(1)),
                             ctypes.byref(ctypes.c_char_p(unary[0].encode())), *scalar_list(unary[1]),
                             ctypes.byref(ctypes.c_char_p(b""))])
                near(ours, theirs)
                shim.drop(second)
            near(seen, wanted)
            sizes = [(a, b) for a, b, size in zip(seen.stride(), wanted.stride(), wanted.shape) if size > 1]
            assert all(a == b for a, b in sizes), "strides %s, PyTorch %s" % (seen.stride(), wanted.stride())
        except Exception as error:
            raise AssertionError("%s %s zero point %d by %s, %s, groups %d, %s %s, %s: %s" % (
                tuple(x.shape), x.dtype, zero_point, tuple(w.shape), [stride, padding, dilation], groups, binary, unary, dtype, error))
        shim.drop(handle)
