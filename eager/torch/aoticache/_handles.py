"""Converts PyTorch's tensors to handles and back, and the values of its stable C interface (torch/csrc/stable/c/shim.h).

PyTorch returns a tensor's address in a capsule without a destructor. The holder of the address owns a tensor, and must pass it
on to an owner or delete it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p, py_object
from typing import Any

from ._operators import require_torch

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
    c.torch_list_size.argtypes = [c_void_p, ctypes.POINTER(c_size_t)]
    c.torch_list_get_item.argtypes = [c_void_p, c_size_t, ctypes.POINTER(c_uint64)]
    c.torch_list_push_back.argtypes = [c_void_p, c_uint64]
    c.torch_new_list_reserve_size.argtypes = [c_size_t, ctypes.POINTER(c_void_p)]
    c.torch_delete_list.argtypes = [c_void_p]
    c.torch_string_length.argtypes = [c_void_p, ctypes.POINTER(c_size_t)]
    c.torch_string_c_str.argtypes = [c_void_p, ctypes.POINTER(c_void_p)]
    c.torch_delete_string.argtypes = [c_void_p]
    c.aoti_torch_delete_tensor_object.argtypes = [c_void_p]
    return c


def delete_handles(handles: Iterable[int]) -> None:
    for handle in handles:
        torch_library().aoti_torch_delete_tensor_object(handle)


@functools.lru_cache(maxsize=1)
def _delete_optional() -> Callable[[int], Any]:
    """Returns the function that frees an optional value's box: PyTorch's own, before 2.13 C++'s operator delete."""
    function = getattr(torch_library(), "torch_delete_stable_ivalue", None)
    if function is None:
        function = ctypes.CDLL("libstdc++.so.6")._ZdlPv
        function.restype = None
    else:
        function.restype = c_int
    function.argtypes = [c_void_p]
    return function


# ---- values from PyTorch's stack: each function takes ownership of its argument ----

Unpack = Callable[[int], Any]


def _tensor(value: int) -> Any:
    return from_handles([value])[0]


def _int(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _float(value: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", value))[0])


def _bool(value: int) -> bool:
    return bool(value & 0xFF)


def _string(value: int) -> str:
    c, length, text = torch_library(), c_size_t(), c_void_p()
    c.torch_string_length(value, byref(length))
    c.torch_string_c_str(value, byref(text))
    content = ctypes.string_at(text.value or 0, length.value) if length.value else b""
    c.torch_delete_string(value)
    return content.decode(errors="surrogateescape")


def _device(value: int) -> Any:
    torch = require_torch()
    names = {0: "cpu", 1: "cuda", 12: "xpu", 13: "mps", 14: "meta", 20: "privateuseone"}
    index = _int32(value & 0xFFFFFFFF)
    name = names[value >> 32]
    return torch.device(name) if index < 0 else torch.device(name, index)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _optional(inner: Unpack) -> Unpack:
    def unpack(value: int) -> Any:
        if value == 0:
            return None
        content = c_uint64.from_address(value).value
        _delete_optional()(value)
        return inner(content)

    return unpack


def _list(inner: Unpack) -> Unpack:
    def unpack(value: int) -> list[Any]:
        c, size, item = torch_library(), c_size_t(), c_uint64()
        c.torch_list_size(value, byref(size))
        items = []
        for position in range(size.value):
            c.torch_list_get_item(value, position, byref(item))
            items.append(item.value)
        c.torch_delete_list(value)
        return [inner(one) for one in items]

    return unpack


#: Functions by the name of the type in a schema.
_SIMPLE: dict[str, Unpack] = {
    "Tensor": _tensor,
    "int": _int,
    "SymInt": _int,
    "float": _float,
    "bool": _bool,
    "str": _string,
    "Device": _device,
    # PyTorch represents these types by numbers, and also accepts numbers for them.
    "ScalarType": _int32,
    "Layout": _int32,
    "MemoryFormat": _int32,
}


def unpacker(kind: str) -> Unpack | None:
    """Returns the function for a type, as a schema writes it: "Tensor?[]", "int[2]?"; None if it cannot be passed."""
    if kind.endswith("?"):
        inner = unpacker(kind[:-1])
        return None if inner is None else _optional(inner)
    if kind.endswith("]"):
        inner = unpacker(kind[: kind.rindex("[")])
        return None if inner is None else _list(inner)
    return _SIMPLE.get(kind.partition("(")[0])


def pack_tensors(tensors: Sequence[Any]) -> int:
    """Creates a list of tensors as PyTorch's stack holds it."""
    c, made = torch_library(), c_void_p()
    c.torch_new_list_reserve_size(len(tensors), byref(made))
    for handle in to_handles(tensors):
        c.torch_list_push_back(made, handle)
    return made.value or 0
