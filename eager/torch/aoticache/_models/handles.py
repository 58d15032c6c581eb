"""Converts PyTorch's tensors to handles and back.

PyTorch returns a tensor's address in a capsule without a destructor. The holder of the address owns a tensor, and must pass it
on to an owner or delete it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable, Sequence
from ctypes import c_char_p, c_void_p, py_object
from typing import Any

from .._core.pytorch import require_torch

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = c_void_p
_get_pointer.argtypes = [py_object, c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]


def to_handles(tensors: Sequence[Any]) -> list[int]:
    """Returns an address for each tensor; the caller owns them."""
    capsules = require_torch()._C._aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
    return [_get_pointer(capsule, None) for capsule in capsules]


def from_handles(handles: Iterable[int]) -> list[Any]:
    """Returns the tensors of addresses and takes ownership of these."""
    capsules = [_new_capsule(handle, None, None) for handle in handles]
    return list(require_torch()._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(capsules))


@functools.lru_cache(maxsize=1)
def torch_library() -> Any:
    """Returns PyTorch's C interface: libtorch_cpu.so, which this process has loaded."""
    torch = require_torch()
    path = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "lib", "libtorch_cpu.so")
    c = ctypes.CDLL(path if os.path.exists(path) else "libtorch_cpu.so")
    c.aoti_torch_delete_tensor_object.argtypes = [c_void_p]
    return c


def delete_handles(handles: Iterable[int]) -> None:
    for handle in handles:
        torch_library().aoti_torch_delete_tensor_object(handle)
