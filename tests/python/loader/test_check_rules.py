"""Compares the memory formats of loader/check/check.h with PyTorch's tensor.is_contiguous(memory_format=...).

Tests thousands of shapes and strides: those of real tensors (transposed, expanded, sliced, without elements, with
dimensions of size 1) and random ones. Environment: BUILD, the build directory.
"""
import ctypes
import functools
import os
import random

import pytest
import torch

from c_types import Device, Error, View

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
pytestmark = pytest.mark.quick


class Check:
    def __init__(self, c, text):
        self.c, self.handle, error = c, ctypes.c_void_p(), Error()
        if c.aoticache_check_parse(text.encode(), ctypes.byref(self.handle), ctypes.byref(error)) != 0:
            raise RuntimeError(f"{text}: {error.message.decode()}")

    def passes(self, tensor):
        numbers = ctypes.c_int64 * max(tensor.dim(), 1)
        view = View(dtype=6, device=Device(0, -1), ndim=tensor.dim(), sizes=numbers(*tensor.shape),
                    strides=numbers(*tensor.stride()))
        passes = self.c.aoticache_check_passes(self.handle, ctypes.byref(view), ctypes.c_size_t(1))
        explained = self.c.aoticache_check_explain(self.handle, ctypes.byref(view), ctypes.c_size_t(1), None, None)
        assert passes == (explained == 0), f"{tuple(tensor.shape)} {tensor.stride()}: passing and explaining differ"
        return passes

    def free(self):
        self.c.aoticache_check_free(self.handle)


def load_library():
    c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
    c.aoticache_check_passes.restype = ctypes.c_bool
    c.aoticache_check_free.argtypes = [ctypes.c_void_p]
    return c


def laid_out(torch, choose):
    """Returns a tensor of a random shape in some memory format, changed by an operation or two."""
    ndim = choose.choice((0, 1, 2, 3, 4, 4, 4, 5, 5))
    shape = [choose.choice((0, 1, 1, 2, 3, 4)) for _ in range(ndim)]
    tensor = torch.empty(shape)
    if ndim == 4 and choose.random() < 0.6:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    if ndim == 5 and choose.random() < 0.6:
        tensor = tensor.contiguous(memory_format=torch.channels_last_3d)
    for _ in range(choose.randrange(3)):
        change = choose.randrange(5)
        if change == 0 and ndim > 1:
            tensor = tensor.transpose(*choose.sample(range(ndim), 2))
        elif change == 1 and ndim > 0:
            tensor = tensor.expand([choose.choice((2, 1)) if size == 1 else size for size in tensor.shape])
        elif change == 2 and ndim > 0:
            dim = choose.randrange(ndim)
            tensor = tensor.narrow(dim, 0, choose.randrange(tensor.shape[dim] + 1))
        elif change == 3 and ndim > 0:
            tensor = tensor[tuple(slice(None, None, choose.choice((1, 1, 2))) for _ in range(ndim))]
    return tensor


def strided(torch, storage, choose):
    """Returns strides for a known order of dimensions, sometimes with one of them changed."""
    ndim = choose.choice((1, 2, 3, 4, 4, 5, 5))
    shape = [choose.choice((0, 1, 1, 2, 3)) for _ in range(ndim)]
    order = choose.choice((list(range(ndim))[::-1], [1, *range(ndim - 1, 1, -1), 0][:ndim] if ndim > 1 else [0],
                           choose.sample(range(ndim), ndim)))
    strides, expected = [0] * ndim, 1
    for dim in order:
        strides[dim] = expected
        expected *= shape[dim] if choose.random() < 0.9 else max(shape[dim], 1)
    for dim in range(ndim):
        if choose.random() < (0.3 if shape[dim] == 1 else 0.04):
            strides[dim] = choose.randrange(5)
    return torch.as_strided(storage, shape, strides)


@functools.cache
def tensors():
    choose, storage = random.Random(5), torch.empty(4096)
    made = [laid_out(torch, choose) if i % 2 else strided(torch, storage, choose) for i in range(8000)]
    # Every shape, also without elements, with exactly the strides that PyTorch gives it.
    for ndim, memory_format in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        for number in range(3 ** ndim):
            shape = [number // 3 ** i % 3 for i in range(ndim)]
            made += [torch.empty(shape, memory_format=memory_format), torch.empty(shape)]
    return made


@pytest.mark.parametrize("text, memory_format, ndim", [
    pytest.param("*[...]{contiguous}", torch.contiguous_format, None, id="contiguous"),
    pytest.param("*[*, *, *, *]{channels_last}", torch.channels_last, 4, id="channels_last"),
    pytest.param("*[*, *, *, *, *]{channels_last_3d}", torch.channels_last_3d, 5, id="channels_last_3d")])
def test_memory_format(text, memory_format, ndim):
    check, counts, wrong = Check(load_library(), text), [0, 0], []
    for tensor in tensors():
        wanted = ndim in (None, tensor.dim()) and tensor.is_contiguous(memory_format=memory_format)
        counts[wanted] += 1
        if check.passes(tensor) != wanted:
            wrong.append(f"{tuple(tensor.shape)} {tensor.stride()}: PyTorch says {wanted}")
    check.free()
    assert not wrong, wrong[:10]
    assert min(counts) >= 300, f"too few of one kind: {counts}"
