"""Plug mode: serves PyTorch's own AOTI-eager from the cache.

`torch.library.Library._impl_with_aoti_compile()` asks a compile backend for kernel libraries (2.12 and later,
torch._inductor.aoti_eager.register_aoti_compile_backend). Our backend answers from the cache: the worker compiles once per
machine, entries are verified whenever they are opened, and they are the same entries that `enable()` uses.

PyTorch keeps the libraries that it has loaded. It calls no fallback if a compile fails: the call raises an exception.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from ctypes import POINTER, Array, byref, c_int, c_int32, c_int64, c_void_p, cast
from typing import Any

from .._core import caches, capi
from .._core.errors import AoticacheError, SettingsError, warn_once
from .._core.pytorch import require_torch
from .._core.settings import Settings, current_settings
from . import session
from .catalogue import find_overload

_lock = threading.Lock()
_installed: dict[str, Any] = {}
_missing = object()


class Backend:
    """The backend that is registered for one type of device."""

    def __init__(self, device: str, settings: Settings) -> None:
        # Raises if operators are enabled with other settings, because a separate session would be a second cache.
        self.session = session.open_session(settings)
        self.device = device
        self.library = self.session.library
        self.held: dict[str, c_void_p] = {}  # by path: PyTorch has loaded them, so they are kept

    # ---- methods that PyTorch calls ----

    def compile(self, namespace: str, operator: str, *arguments: Any, **options: Any) -> str:
        """Returns the path of a library for a call; "" if there is none, which makes PyTorch raise."""
        try:
            return self._compile(namespace, operator, *arguments, **options)
        except AoticacheError as error:
            name = qualified_name(namespace, operator)
            caches.log.error("%s: %s", name, error)
            warn_once("plug " + name, f"aoticache: AOTI-eager gets no library for {name}: {error}")
            return ""

    def _compile(
        self,
        namespace: str,
        operator: str,
        device_type: str,
        dynamic: bool,
        function: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        **_options: Any,
    ) -> str:
        if dynamic:
            raise AoticacheError(
                f"{namespace}::{operator}: libraries for symbolic shapes have guards, which AOTI-eager does not check; "
                "aoticache.enable(..., dynamic=...) does",
                "UNSUPPORTED",
            )
        request = self._request(namespace, operator, device_type)
        try:
            if writes(qualified_name(namespace, operator)):
                self.library.call("aoticache_request_set_environment", request, b"results", b"all")
            for value in args:
                self._add(request, None, value, device_type)
            for name, value in kwargs.items():
                self._add(request, name.encode(), value, device_type)
            return self._get(request)
        finally:
            self.library.get("aoticache_request_free", request)

    def load(self, namespace: str, operator: str, device_type: str) -> list[dict[str, Any] | None]:
        """Returns the entries of an operator in the cache, in the form that AOTI-eager expects."""
        found: list[tuple[int, capi.Digest, list[dict[str, Any]]]] = []

        def take(_user: Any, stored: Any) -> bool:
            entry = stored.contents
            if not entry.guard and self._is_ours(entry.request):
                items = self._describe(entry.request, device_type)
                if items is not None:
                    artifact = capi.Digest.from_buffer_copy(entry.artifact)
                    found.append((entry.entry_id, artifact, items))
            return True

        name = qualified_name(namespace, operator).encode()
        try:
            self.library.call(
                "aoticache_cache_list_stored", self.session.cache.handle, name, c_int64(0), capi.STORED(take), None
            )
        except AoticacheError as error:
            warn_once("plug", f"aoticache: cannot list the cached kernels of {name.decode()}: {error}")
        kernels: list[dict[str, Any] | None] = []
        for entry_id, digest, items in found:
            artifact = c_void_p()
            try:
                self.library.call(
                    "aoticache_cache_open_stored",
                    self.session.cache.handle,
                    c_int64(entry_id),
                    byref(digest),
                    byref(artifact),
                )
                self._check(artifact)
            except AoticacheError:
                continue
            kernels.append({"meta_info": items, "kernel_path": self._keep(artifact)})
        return kernels

    # ---- requests ----

    def _request(self, namespace: str, operator: str, device_type: str) -> c_void_p:
        request = c_void_p()
        device = capi.Device(capi.DEVICE_TYPES[device_type], -1)
        self.library.call(
            "aoticache_request_create", qualified_name(namespace, operator).encode(), device, byref(request)
        )
        return request

    def _add(self, request: c_void_p, name: bytes | None, value: Any, device_type: str) -> None:
        torch = require_torch()

        def add(kind: str, **content: Any) -> None:
            self.library.add_argument(request, name, kind, **content)

        if isinstance(value, torch.Tensor):
            metadata, keep = tensor_metadata(value)
            add("tensor", tensor=capi.ArgumentTensor(metadata))
            del keep
        elif value is None:
            add("none")
        elif isinstance(value, bool):
            add("bool", bool_value=value)
        elif isinstance(value, int):
            add("int", int_value=value)
        elif isinstance(value, float):
            add("double", double_value=value)
        elif isinstance(value, complex):
            add("complex", complex_value=(value.real, value.imag))
        elif isinstance(value, str):
            add("string", string_value=value.encode())
        elif isinstance(value, torch.device):
            index = -1 if value.index is None or value.type == "cpu" else value.index
            add("device", device_value=capi.Device(capi.DEVICE_TYPES[value.type], index))
        elif isinstance(value, torch.dtype):
            add("dtype", int_value=self._number("aoticache_dtype_parse", value))
        elif isinstance(value, torch.layout):
            add("layout", int_value=self._number("aoticache_layout_parse", value))
        elif isinstance(value, torch.memory_format):
            add("memory_format", int_value=self._number("aoticache_memory_format_parse", value))
        elif isinstance(value, (list, tuple)):
            self.library.call("aoticache_request_begin_list", request, name)
            for item in value:
                self._add(request, None, item, device_type)
            self.library.call("aoticache_request_end_list", request)
        else:
            raise AoticacheError(f"an argument of type {type(value).__name__} cannot be compiled for", "UNSUPPORTED")

    def _number(self, function: str, value: Any) -> int:
        number = c_int32()
        if self.library.get(function, str(value).removeprefix("torch.").encode(), byref(number)) != 0:
            raise AoticacheError(f"{value} is unknown", "UNSUPPORTED")
        return number.value

    def _named(self, kind: str, number: int) -> Any:
        """Returns torch.float32 for the dtype 6."""
        text: bytes = self.library.get(f"aoticache_{kind}_name", c_int32(number))
        return getattr(require_torch(), text.decode())

    def _get(self, request: c_void_p) -> str:
        hook = self.session.get_hook()
        if hook is None:
            raise AoticacheError(f"no compile worker: {self.session.hook_problem}", "NOT_FOUND")
        self.library.call("aoticache_hook_set_environment", hook, request)
        artifact = c_void_p()
        self.library.call(
            "aoticache_cache_get_or_compile",
            self.session.cache.handle,
            request,
            None,
            self.library.c.aoticache_hook_compile,
            hook,
            byref(artifact),
        )
        self._check(artifact)
        return self._keep(artifact)

    def _check(self, artifact: c_void_p) -> None:
        """Refuses a library that needs a proxy executor, because AOTI-eager would run it without one."""
        description = POINTER(capi.LibraryDescription)()
        descriptor = c_int(self.library.get("aoticache_artifact_library_fd", artifact))
        self.library.call("aoticache_library_describe", descriptor, byref(description))
        needed = bool(description.contents.proxy_executor)
        self.library.get("aoticache_library_description_free", description)
        if needed:
            self.library.get("aoticache_artifact_unref", artifact)
            raise AoticacheError("PyTorch's compiler only turns it into a call of PyTorch's own kernel", "UNSUPPORTED")

    def _keep(self, artifact: c_void_p) -> str:
        """Returns the path of the library. Keeps the artifact, so that no collector removes what PyTorch has loaded."""
        descriptor = self.library.get("aoticache_artifact_library_fd", artifact)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        directory = self.library.artifact_info(artifact).directory
        if directory:
            path = next(
                (entry.path for entry in os.scandir(os.fsdecode(directory)) if os.path.samefile(entry.path, path)), path
            )
        with _lock:
            if path in self.held:
                self.library.get("aoticache_artifact_unref", artifact)
            else:
                self.held[path] = artifact
                self.library.get("aoticache_artifact_close_files", artifact)
        return path

    # ---- entries ----

    def _is_ours(self, request: int) -> bool:
        """Returns whether this version of PyTorch compiled it, with all results that AOTI-eager expects."""
        if self.library.get("aoticache_request_get_environment", request, b"results") == b"new":
            return False
        if self.library.get("aoticache_request_get_environment", request, b"numbers"):
            return False  # it takes tensors instead of numbers
        return all(
            self.library.get("aoticache_request_get_environment", request, name.encode()) == value.encode()
            for name, value in self.session.environment().items()
        )

    def _describe(self, request: int, device_type: str) -> list[dict[str, Any]] | None:
        """Returns the arguments as AOTI-eager compares them; None if it cannot express one of them."""
        items = []
        for place in itertools.count():
            argument = self.library.get("aoticache_request_argument", request, place)
            if not argument:
                break
            item = self._describe_one(argument.contents, device_type)
            if item is None:
                return None
            item["arg_order"] = place
            items.append(item)
        return items

    def _describe_one(self, argument: capi.Argument, device_type: str) -> dict[str, Any] | None:
        torch, value = require_torch(), argument.value
        kinds = capi.ARGUMENT_KINDS
        kind = kinds[argument.kind] if argument.kind < len(kinds) else ""
        if kind == "tensor":
            return self._describe_tensor(value.tensor.metadata)
        scalars = {"int": (torch.int64, value.int_value), "double": (torch.float64, value.double_value)}
        if kind in scalars or kind == "bool":
            dtype, content = scalars.get(kind, (torch.bool, value.bool_value))
            index = -1 if device_type == "cpu" else 0
            return {
                "is_dynamic": False,
                "device_type": device_type,
                "device_index": index,
                "dtype": dtype,
                "scalar_value": content,
            }
        if kind == "string":
            return {"string_value": value.string_value.decode()}
        if kind in ("dtype", "layout"):
            return {f"{kind}_value": self._named(kind, value.int_value)}
        if kind == "list" and value.list.count > 0:
            inside = cast(value.list.items, POINTER(capi.Argument))[: value.list.count]
            if all(item.kind == kinds.index("tensor") for item in inside):
                return {"tensor_list": [self._describe_tensor(item.value.tensor.metadata) for item in inside]}
        return None

    def _describe_tensor(self, metadata: capi.TensorMetadata) -> dict[str, Any]:
        torch = require_torch()
        dtype = self._named("dtype", metadata.dtype)
        device = "cpu" if metadata.device.type == 0 else "cuda"
        return {
            "is_dynamic": False,
            "device_type": device,
            "device_index": -1 if device == "cpu" else max(0, metadata.device.index),
            "dtype": dtype,
            "sizes": list(metadata.sizes[: metadata.ndim]),
            "strides": list(metadata.strides[: metadata.ndim]),
            "requires_grad": False,
            # Entries are valid for all key sets; this is that of an ordinary tensor. Calls with others hit in compile().
            "dispatch_key_set": torch._C._dispatch_keys(torch.empty(0, dtype=dtype)).raw_repr(),
        }


def qualified_name(namespace: str, operator: str) -> str:
    """Returns the dispatcher's name for AOTI-eager's "abs" or "add.Tensor"."""
    return f"{namespace}::{operator}".removesuffix(".default")


def writes(name: str) -> bool:
    """Returns whether an operator's schema says that it writes to an argument."""
    operator = find_overload(name)
    return operator is not None and bool(operator._schema.is_mutable)


def tensor_metadata(tensor: Any) -> tuple[capi.TensorMetadata, tuple[Array[c_int64], Array[c_int64]]]:
    """Returns a request's metadata of a tensor, and the arrays it points to. As in the holder, without key set."""
    ndim = tensor.dim()
    sizes, strides = (c_int64 * max(1, ndim))(*tensor.shape), (c_int64 * max(1, ndim))(*tensor.stride())
    number = c_int32()
    library = capi.load()
    if library.get("aoticache_dtype_parse", str(tensor.dtype).removeprefix("torch.").encode(), byref(number)) != 0:
        raise AoticacheError(f"a tensor of {tensor.dtype} cannot be compiled for", "UNSUPPORTED")
    index = -1 if tensor.device.index is None or tensor.device.type == "cpu" else tensor.device.index
    metadata = capi.TensorMetadata(
        dtype=number.value,
        layout=0,
        device=capi.Device(capi.DEVICE_TYPES[tensor.device.type], index),
        requires_grad=False,
        dispatch_key_set=0,
        ndim=ndim,
        sizes=cast(sizes, POINTER(c_int64)),
        strides=cast(strides, POINTER(c_int64)),
    )
    return metadata, (sizes, strides)


def install_backend(device: str = "cpu", **settings: Any) -> bool:
    """
    Makes `torch.library.Library._impl_with_aoti_compile()` compile and load through the cache, for operators that are
    registered afterwards. settings: those of `configure()`.

    >>> aoticache.install_backend("cpu")                                                        # doctest: +SKIP
    >>> library = torch.library.Library("aten", "IMPL")                                         # doctest: +SKIP
    >>> library._impl_with_aoti_compile("abs", "CPU")                                           # doctest: +SKIP

    Returns False, with one warning, if this PyTorch has no such backends (before 2.12) or the cache cannot be opened:
    AOTI-eager then uses its own backend.
    """
    if device not in capi.DEVICE_TYPES:
        raise SettingsError(f"device {device!r} is not supported; use 'cpu' or 'cuda'")
    torch = require_torch()
    from torch._inductor import aoti_eager

    wanted = current_settings().changed(settings)
    if not hasattr(aoti_eager, "register_aoti_compile_backend"):
        warn_once("plug", f"aoticache: PyTorch {torch.__version__} has no compile backends for AOTI-eager; 2.12 has")
        return False
    try:
        backend = Backend(device, wanted)
    except SettingsError:
        raise
    except AoticacheError as error:
        warn_once("plug", f"aoticache: AOTI-eager continues with its own cache: {error}")
        return False
    if device not in _installed:
        backend.session.users += 1
        _installed[device] = aoti_eager._aoti_compile_backends.get(device, _missing)
    aoti_eager.register_aoti_compile_backend(device, backend.compile, backend.load)
    return True


def uninstall_backend(device: str = "cpu") -> bool:
    """Restores AOTI-eager's own backend, for calls that are not compiled yet. Returns False if ours is not installed."""
    if device not in _installed:
        return False
    from torch._inductor import aoti_eager

    before = _installed.pop(device)
    live = session.current()
    if live is not None:
        live.users -= 1
    if before is _missing:
        aoti_eager._aoti_compile_backends.pop(device, None)
    else:
        aoti_eager._aoti_compile_backends[device] = before
    return True
