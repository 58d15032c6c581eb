"""Compares aoti_torch_copy_ of the shim with torch.Tensor.copy_, bit by bit, for every pair of dtypes.

The shim is called in this process, on memory of PyTorch's tensors; PyTorch does not notice it. Environment: BUILD,
the build directory.
"""
import ctypes

import pytest
import torch

import shim_checks

pytestmark = pytest.mark.quick
NUMBERS = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7, "complex32": 8,
    "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15, "float8_e5m2": 23, "float8_e4m3fn": 24,
    "float8_e5m2fnuz": 25, "float8_e4m3fnuz": 26, "uint16": 27, "uint32": 28, "uint64": 29, "float8_e8m0fnu": 44,
}
INTEGERS = {"uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32, "uint64": 64}


def wrap(shim, tensor, name):
    handle = ctypes.c_void_p()
    shape = (ctypes.c_int64 * 1)(tensor.numel())
    stride = (ctypes.c_int64 * 1)(1)
    status = shim.aoti_torch_create_tensor_from_blob(
        ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(1), shape, stride, ctypes.c_int64(0), NUMBERS[name], 0, -1,
        ctypes.byref(handle))
    assert status == 0, shim.torch_exception_get_what_without_backtrace()
    return handle


def values_of(name):
    """Returns every code of a small dtype; for a large one, random bits and special numbers."""
    dtype = getattr(torch, name)
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.itemsize <= 2 and not dtype.is_complex:
        codes = torch.arange(256 ** dtype.itemsize, dtype=torch.int32)
        return codes.to(torch.uint8 if dtype.itemsize == 1 else torch.uint16).view(dtype)
    generator = torch.Generator().manual_seed(1)
    if name in INTEGERS:
        bits = torch.randint(-2 ** 63, 2 ** 63 - 1, (4000,), generator=generator)
        return torch.cat([(bits >> shift) for shift in (0, 10, 30, 40, 55, 62)]).to(dtype)
    part = {"complex32": torch.float16, "float32": torch.float32, "complex64": torch.float32}.get(name, torch.float64)
    exponents = torch.linspace(-60, 60, 2000, dtype=torch.float64)
    normal = torch.randn(2000, dtype=torch.float64, generator=generator) * torch.exp2(exponents)
    ties = (torch.arange(-4096, 4096, dtype=torch.float64) + 0.5) / 16
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 65519.0, 65520.0, 448.0, 464.0, 465.0, 61440.0,
                            57345.0, 240.0, 248.0, 2.0 ** -149, 2.0 ** -133, 2.0 ** -127, 1.5 * 2.0 ** -127])
    numbers = torch.cat([normal, ties, special.double(), torch.tensor([float("nan")], dtype=torch.float64)]).to(part)
    if not dtype.is_complex:
        return numbers
    # From parts: arithmetic with the imaginary unit would turn infinity into NaN.
    return torch.view_as_complex(torch.stack([numbers, numbers.flip(0)], 1).contiguous())


def defined(values, to):
    """Returns where C defines the conversion: a number with a fraction converts to an integer only if it fits."""
    name = str(values.dtype)[6:]
    if to not in INTEGERS or name in INTEGERS or name == "bool":
        return torch.ones(values.numel(), dtype=torch.bool)
    real = (torch.view_as_real(values)[:, 0] if values.dtype.is_complex else values).double()
    low = 0.0 if to.startswith("u") else -(2.0 ** INTEGERS[to])
    return (real > low - 1) & (real < 2.0 ** INTEGERS[to])


def comparable(tensor):
    """Returns the bits, with one payload for all NaNs: nothing promises their payload."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor).reshape(-1)
    if not tensor.dtype.is_floating_point:
        return tensor.long() if tensor.dtype != torch.uint64 else tensor.view(torch.int64)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    return torch.where(tensor.to(torch.float64).isnan(), -7, tensor.view(whole).long())


def check(shim, source_name, target_name):
    values = values_of(source_name)
    values = values[defined(values, target_name)].contiguous() if values.dtype.itemsize > 1 else values.view(
        torch.uint8)[defined(values, target_name)].contiguous().view(values.dtype)
    wanted = torch.empty(values.numel(), dtype=getattr(torch, target_name))
    seen = torch.empty_like(wanted)
    wanted.copy_(values)
    source, target = wrap(shim, values, source_name), wrap(shim, seen, target_name)
    assert shim.aoti_torch_copy_(target, source, 0) == 0, shim.torch_exception_get_what_without_backtrace()
    shim.aoti_torch_delete_tensor_object(source)
    shim.aoti_torch_delete_tensor_object(target)
    different = (comparable(seen) != comparable(wanted)).nonzero().reshape(-1)
    if different.numel() > 0:
        at = int(different[0])
        element = at // 2 if wanted.dtype.is_complex else at
        raise AssertionError("%d of %d differ; %s gives %s, PyTorch %s" % (
            different.numel(), values.numel(), values[element].item(), comparable(seen)[at].item(),
            comparable(wanted)[at].item()))


@pytest.fixture(scope="module")
def shim():
    library = ctypes.CDLL(shim_checks.SHIM)
    library.torch_exception_get_what_without_backtrace.restype = ctypes.c_char_p
    return library


@pytest.mark.parametrize("source", NUMBERS)
def test_from(shim, source):
    problems = []
    for target in NUMBERS:
        try:
            check(shim, source, target)
        except AssertionError as error:
            problems.append("to %s: %s" % (target, error))
    assert not problems, "; ".join(problems)
