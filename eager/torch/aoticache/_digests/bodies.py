"""Digests of Python functions and classes, for the keys of code that was compiled from them.

A digest covers what runs: the code object, defaults, closure variables, and the globals that the code names, each by its own
content, recursively. Files, line numbers and names of modules are not part of it. Objects of PyTorch, of Python's library and
of Python itself are represented by their names, because the keys contain PyTorch's sources and Python's version.

Objects without content that can be compared (a file, a lock, a C function of another package) cannot be digested. Nor can
code that depends on things outside the digest: the environment, a file, computed names.
"""

from __future__ import annotations

import collections
import dis
import enum
import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import re
import struct
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

from .._core.errors import AoticacheError

#: Names of things that code may read and that a digest cannot cover.
UNSEEN = frozenset(("environ", "getenv", "eval", "exec", "globals", "open", "input", "__import__", "import_module"))
#: Maximum bytes of a tensor in a closure: reading it must cost less than the compile that it saves.
MAX_TENSOR = 1 << 20
#: Tables of PyTorch's compiler, by id(). surroundings.py digests what a program has added to them.
TABLES: dict[int, str] = {}
#: Attributes of classes that do not affect their behaviour.
_UNTOLD = frozenset(("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__qualname__", "__firstlineno__",
                     "__static_attributes__", "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__",
                     "__annotate__", "__annotate_func__", "__annotations_cache__"))  # fmt: skip
_PLAIN = (type(None), bool, int, str, bytes, type(Ellipsis), type(NotImplemented), range, complex)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
             types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType)  # fmt: skip


class NotDigestible(AoticacheError):
    """Raised for an object that has no digest; the message names it."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "UNSUPPORTED")


def digest(value: Any) -> str:
    """Returns the SHA-256 of a function, a class or a value. Raises NotDigestible."""
    return Digest().add(value).hex()


class Digest:
    """A digest of several values, and the names that their code mentions."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps them alive, so that no id() in _seen is used again
        #: Attributes, globals and short strings in the code, including the operators that a body calls.
        self.names: set[str] = set()

    def add(self, value: Any) -> Digest:
        try:
            self._value(value)
        except RecursionError:
            raise NotDigestible(f"{_name(value)} refers to too many objects for a digest") from None
        return self

    def hex(self) -> str:
        return self._hash.hexdigest()

    # ---- values ----

    def _text(self, kind: str, *parts: object) -> None:
        for part in (kind, *parts):
            content = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            self._hash.update(struct.pack("<Q", len(content)) + content)

    def _value(self, value: Any) -> None:
        if type(value) in _PLAIN:
            self._text(type(value).__name__, repr(value))
        elif type(value) is float:
            self._text("float", struct.pack("<d", value))
        elif isinstance(value, (tuple, frozenset, types.CodeType)):
            self._object(value)  # whether two constants are one object depends on how they were loaded
        elif id(value) in TABLES:
            self._text("table", TABLES[id(value)])
        elif id(value) in self._seen:
            self._text("again", self._seen[id(value)])
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._object(value)

    def _object(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, types.CodeType):
            self._code(value)
        elif isinstance(value, types.ModuleType):
            self._text("module", value.__name__)
        elif kind in (tuple, list):
            self._items(kind.__name__, value)
        elif kind in (set, frozenset):
            self._text(kind.__name__, *sorted(Digest()._with(self, item) for item in value))
        elif kind in (dict, collections.OrderedDict, types.MappingProxyType):
            self._items(kind.__name__, [part for item in value.items() for part in item])
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._items("method", (value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            self._items("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod)):
            self._items(kind.__name__, (value.__func__,))
        elif isinstance(value, property):
            self._items("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, functools.cached_property):
            self._items("cached_property", (value.func,))
        elif isinstance(value, enum.Enum):
            self._items("enum", (type(value), value.name, value.value))
        elif isinstance(value, _BUILT_IN):
            self._built_in(value)
        elif isinstance(value, types.CellType):
            self._cell(value)
        elif isinstance(value, (logging.Logger, types.GenericAlias)) or kind.__module__ in ("typing", "types"):
            self._text("named", repr(value))
        else:
            self._instance(value)

    def _with(self, whole: Digest, value: Any) -> str:
        """Returns the digest of an item of a set; its names count for the whole."""
        self.names = whole.names
        return self.add(value).hex()

    def _items(self, kind: str, items: Any) -> None:
        self._text(kind, len(items))
        for item in items:
            self._value(item)

    def _cell(self, cell: types.CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            self._text("empty cell")
            return
        self._value(content)

    def _built_in(self, value: Any) -> None:
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            self._text("built in", value.__name__)
            self._value(owner)
        elif is_known_module(getattr(value, "__module__", None)):
            self._text("built in", value.__module__, value.__name__)
        else:
            raise NotDigestible(f"{_name(value)} is compiled code")

    def _instance(self, value: Any) -> None:
        torch: Any = sys.modules.get("torch")
        kind = type(value)
        if torch is not None:
            if isinstance(value, torch.Tensor):
                self._tensor(value)
                return
            if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch._C.Tag)):
                self._text(kind.__name__, value)
                return
            if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace)):
                self.names.update(re.findall(r"\w+", str(value)))
                self._text("operator", value)
                return
            if isinstance(value, torch._ops.HigherOrderOperator):
                self._text("operator", value.name())
                return
            if isinstance(value, torch._library.custom_ops.CustomOpDef):
                self.names.update((value._namespace, value._name))
                self._text("operator", value._qualname)
                return
            if isinstance(value, torch.library.Library):
                self._text("library", value.ns, value.kind)
                return
        if not all(map(_is_written_in_python, kind.__mro__)):
            raise NotDigestible(f"{_name(value)} has content in C, which cannot be compared")
        slots = [name for base in kind.__mro__ for name in _slots_of(base) if hasattr(value, name)]
        self._text("instance")
        self._value(kind)
        self._items("slots", [part for name in slots for part in (name, getattr(value, name))])
        self._value(getattr(value, "__dict__", {}))

    def _tensor(self, tensor: Any) -> None:
        import torch

        is_read = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        size = tensor.numel() * tensor.element_size() if is_read else 0
        if not is_read or tensor.device.type != "cpu" or size > MAX_TENSOR or torch._is_functional_tensor(tensor):
            raise NotDigestible(f"a tensor ({type(tensor).__name__}, {tuple(tensor.shape)}, {tensor.device}) is closed over")
        with torch.no_grad():
            content = tensor.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
        self._text("tensor", tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad, bytes(content.tolist()))

    # ---- code ----

    def _class(self, value: type) -> None:
        if is_known(value):
            self._text("class", value.__module__, value.__qualname__)
            return
        self._text("class", value.__qualname__)
        self._items("bases", value.__mro__[1:])
        told = [(name, item) for name, item in sorted(vars(value).items()) if name not in _UNTOLD]
        self._items("attributes", [part for item in told for part in item])

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if is_known(function):  # perhaps a decorator of PyTorch: the function it wraps is in its closure
            self._text("known function", os.path.basename(code.co_filename), code.co_name, code.co_firstlineno)
            self._items("closure", function.__closure__ or ())
            return
        self._text("function")
        self._code(code)
        self._items("defaults", function.__defaults__ or ())
        self._value(function.__kwdefaults__ or {})
        self._items("closure", function.__closure__ or ())
        own = {name: item for name, item in vars(function).items() if name != "__wrapped__" and not name.startswith("_torch")}
        self._value(own)
        for one in _codes(code):
            self._globals(function, one)

    def _code(self, code: types.CodeType) -> None:
        self._text("code", code.co_code, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
                   *code.co_names, "/", *code.co_varnames, "/", *code.co_freevars, "/", *code.co_cellvars,
                   getattr(code, "co_exceptiontable", b""))  # fmt: skip
        self._items("constants", code.co_consts)
        self.names.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, str) and len(constant) < 200:
                self.names.update(re.findall(r"\w+", constant))

    def _globals(self, function: types.FunctionType, code: types.CodeType) -> None:
        built_in = function.__globals__.get("__builtins__", {})
        built_in = vars(built_in) if isinstance(built_in, types.ModuleType) else built_in
        modules = []
        named = set(code.co_names)
        if unseen := named & UNSEEN:
            raise NotDigestible(f"{_name(function)} calls {sorted(unseen)[0]}, which reads values that no digest covers")
        for name in sorted(_names_of_globals(code)):
            value = function.__globals__.get(name, built_in.get(name, NotImplemented))
            self._text("global", name)
            self._value(value)
            modules.append(value)
        for name in sorted(_names_of_imports(code)):
            modules.append(_imported(function, name))
        for module in modules:
            if isinstance(module, types.ModuleType):
                self._attributes(module, named)

    def _attributes(self, module: types.ModuleType, named: set[str], depth: int = 0) -> None:
        """Digests the attributes of a module that the code names; they may have been replaced."""
        for name in sorted(named & vars(module).keys()):
            value = vars(module)[name]
            if isinstance(value, types.ModuleType):
                if value is not module and depth < 4:
                    self._text("module", value.__name__)
                    self._attributes(value, named, depth + 1)
            elif not (is_known_module(module.__name__) and not isinstance(value, (types.FunctionType, type))):
                self._text("attribute", name)
                self._value(value)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=4096)
def _names_of_globals(code: types.CodeType) -> frozenset[str]:
    return frozenset(one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


@functools.lru_cache(maxsize=4096)
def _names_of_imports(code: types.CodeType) -> frozenset[str]:
    """Returns the modules that code imports when it runs, with one dot for each level above its own module."""
    found, level = [], 0
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and isinstance(one.argval, int):
            level = one.argval
        elif one.opname == "IMPORT_NAME":
            found.append("." * level + str(one.argval))
    return frozenset(found)


def _imported(function: types.FunctionType, name: str) -> types.ModuleType:
    try:
        whole = importlib.util.resolve_name(name, function.__globals__.get("__package__"))
    except ImportError:
        whole = name
    module = sys.modules.get(whole)
    if module is None and is_known_module(whole):
        return types.ModuleType(whole)
    if module is None:
        raise NotDigestible(f"{_name(function)} imports {name}, which is not imported yet")
    return module


def _is_written_in_python(kind: type) -> bool:
    """Returns whether everything in an instance is in readable attributes."""
    if kind is object:
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    if kind.__module__ in sys.builtin_module_names or file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return False
    return "__slots__" in vars(kind) or any("__dict__" in vars(base) for base in kind.__mro__)


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", None)
    if isinstance(name, str):
        return f"{module}.{name}" if isinstance(module, str) else name
    return f"a value of type {type(value).__module__}.{type(value).__qualname__}"


# ---- what the keys already contain ----


@functools.lru_cache(maxsize=1)
def _torch_directory() -> str:
    spec = importlib.util.find_spec("torch")
    return os.path.dirname(spec.origin) + os.sep if spec is not None and spec.origin else "\0"


@functools.lru_cache(maxsize=1)
def _library_directories() -> tuple[str, ...]:
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return tuple(path + os.sep for path in paths if path)


@functools.lru_cache(maxsize=4096)
def is_known_file(path: str) -> bool:
    """Returns whether a source file belongs to PyTorch or to Python's library."""
    if path.startswith(_torch_directory()):
        return True
    if path.startswith("<frozen "):
        return True
    in_library = path.startswith(_library_directories())
    return in_library and f"{os.sep}site-packages{os.sep}" not in path and f"{os.sep}dist-packages{os.sep}" not in path


@functools.lru_cache(maxsize=4096)
def is_known_module(name: str | None) -> bool:
    """Returns whether a module belongs to PyTorch or to Python's library, or is built in."""
    top = (name or "").partition(".")[0]
    return top in ("torch", "builtins", "functorch") or top in sys.stdlib_module_names and top != "__main__"


def is_known(value: Any) -> bool:
    """Returns whether a function or class belongs to PyTorch or Python, according to its file."""
    code = getattr(value, "__code__", None)
    if code is not None and code.co_filename == "<string>":  # generated code: the file of its module counts
        return is_known_module(getattr(value, "__globals__", {}).get("__name__"))
    if code is not None:
        return is_known_file(code.co_filename)
    module = getattr(value, "__module__", None)
    if not is_known_module(module):
        return False
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return file is None or is_known_file(file)
