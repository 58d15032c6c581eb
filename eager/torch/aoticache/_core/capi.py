"""libaoticache.so through ctypes: finding it, its structs, its functions.

The structs are those of the public headers, field by field; tests/python/binding/test_torch_package.py compares their sizes and
offsets with those that a C compiler computes from the headers. Functions whose last argument is an `aoticache_error *` are
called by `Library.call()`, which turns a failure into an AoticacheError.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from .errors import AoticacheError, LibraryNotFoundError
from .library_path import candidates

STATUS = (
    "OK",
    "NOT_FOUND",
    "INVALID",
    "NO_MEMORY",
    "IO",
    "CORRUPT",
    "LOCKED",
    "DENIED",
    "UNSUPPORTED",
    "COMPILE_FAILED",
    "LOAD_FAILED",
    "RUN_FAILED",
    "EXISTS",
    "MISMATCH",
)
DEVICE_TYPES = {"cpu": 0, "cuda": 1}

LOG = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
CONSTANT = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_void_p)
METADATA = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_char_p)


class Error(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 1024)]


class Logger(Structure):
    _fields_ = [("log", LOG), ("user", c_void_p)]


class Device(Structure):
    _fields_ = [("type", c_int32), ("index", c_int32)]


class Digest(Structure):
    _fields_ = [("bytes", c_uint8 * 32)]


class ConfigSetting(Structure):
    _fields_ = [
        *((name, c_char_p) for name in ("name", "variable", "description", "text", "origin")),
        ("number", c_uint64),
        ("share", c_double),
        ("list", POINTER(c_char_p)),
    ]


class ArtifactInfo(Structure):
    _fields_ = [
        ("digest", Digest),
        ("library", Digest),
        ("directory", c_char_p),
        ("guard", c_char_p),
        ("source", c_int),
        ("is_stored", c_bool),
        ("compile_ns", c_uint64),
    ]


class RunnerInfo(Structure):
    _fields_ = [
        ("library", c_void_p),
        ("device", c_char_p),
        ("num_inputs", c_size_t),
        ("num_outputs", c_size_t),
        ("num_constants", c_size_t),
    ]


class LibraryInfo(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("torch_kind", c_int),
        ("needs_proxy_executor", c_bool),
        ("bytes", c_uint64),
    ]


class RunOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("stream", c_void_p),
        ("proxy_executor", c_void_p),
        ("steal_inputs", c_bool),
    ]


class CacheInfo(Structure):
    _fields_ = [("directory", c_char_p), ("is_read_only", c_bool)]


class CacheOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("directory", c_char_p),
        ("read_only", c_bool),
        ("allow_shared", c_bool),
        ("must_exist", c_bool),
        ("lock_timeout_ms", c_uint32),
        ("compile_timeout_ms", c_uint32),
        ("failure_ttl_seconds", c_uint32),
        ("logger", Logger),
        ("failure_max_ttl_seconds", c_uint32),
        ("max_bytes", c_uint64),
        ("max_entries", c_uint64),
        ("may_use_reserve", c_bool),
        ("is_configured", c_bool),
        *((name, c_char_p) for name in ("trusted_keys", "revoked_keys", "sign_with", "key_directory")),
        ("signatures", c_int),
        ("remote", c_char_p),
        ("hash_always", c_bool),
    ]


class HookOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("program", c_char_p),
        ("arguments", POINTER(c_char_p)),
        ("kernels", c_char_p),
        ("cpu_features", c_char_p),
        ("timeout_seconds", c_uint32),
        ("logger", Logger),
        ("memory_limit_bytes", c_uint64),
        ("environment", POINTER(c_char_p)),
        ("workers", c_uint32),
        ("kernel_directories", POINTER(c_char_p)),
        ("source", c_void_p),
        ("source_user", c_void_p),
    ]


class HookInfo(Structure):
    _fields_ = [("producer", c_char_p), ("program", c_char_p)]


class ContextOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("cache", c_void_p),
        ("hook", c_void_p),
        ("miss", c_int),
        ("dynamic", c_int),
        ("dynamic_after", c_uint32),
        ("threads", c_uint32),
        ("queue_length", c_uint32),
        ("max_loaded", c_size_t),
        ("max_loaded_bytes", c_uint64),
        ("serve_requires_grad", c_bool),
        ("fail_calls", c_bool),
        ("record_file", c_char_p),
        ("logger", Logger),
        ("environment", POINTER(c_char_p)),
        ("judge", c_bool),
    ]


class HolderCounts(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("hits", "hits_dynamic", "loads", "misses", "compiles", "compile_failures")),
        *((name, c_uint64) for name in ("fallbacks", "queued", "dropped")),
        *((name, c_size_t) for name in ("entries", "libraries", "loaded")),
        ("calls_lost", c_uint64),
        *((name, c_size_t) for name in ("judged", "judged_slower", "on_trial")),
        ("gained_ns", c_uint64),
        ("dynamic_refused", c_uint64),
    ]


class ContextCompiles(Structure):
    _fields_ = [(name, c_uint64) for name in ("queued", "running", "ended")]


class BindingOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("context", c_void_p),
        ("bridge", c_char_p),
    ]


class OperatorOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("schema", c_char_p),
        ("dispatch_key", c_char_p),
        ("device", Device),
        ("dynamic", POINTER(c_int)),
    ]


class BindingCounts(Structure):
    _fields_ = [("holder", HolderCounts), ("calls", c_uint64), ("refused", c_uint64)]


class Counters(Structure):
    _fields_ = [
        (name, c_uint64)
        for name in (
            "hits hits_dynamic hits_loaded hits_remote misses misses_requirement misses_guard misses_damaged "
            "misses_failed waits lease_waits lease_wait_ns compiles compiles_fallback compile_failures compile_ns saved_ns lookup_ns "
            "loads load_ns stored_bytes not_stored damaged refused_untrusted evicted evicted_bytes judged judged_slower "
            "calls_lost fetched_bytes sent_bytes remote_errors remote_refused remote_backoffs"
        ).split()
    ]


class Latency(Structure):
    _fields_ = [(name, c_uint64) for name in ("count", "sum_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns")]


class Latencies(Structure):
    _fields_ = [(name, Latency) for name in ("lookup", "load", "compile", "lease_wait", "eviction_age", "fetch", "send")]


class Statistics(Structure):
    _fields_ = [
        ("counters", Counters),
        *((name, c_uint64) for name in ("entries", "artifacts", "objects", "bytes", "failures_remembered")),
        *((name, c_int64) for name in ("created_ns", "since_ns", "zeroed_ns")),
        ("latencies", Latencies),
    ]


class PackageModel(Structure):
    """The first member is enough: models are used by pointer."""

    _fields_ = [("name", c_char_p)]


class PackageOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("model", c_char_p),
        ("device", c_char_p),
        ("num_models", c_size_t),
        ("proxy_executor", c_void_p),
        ("weights", c_char_p),
        ("map_weights", c_bool),
        ("ignore_unknown_weights", c_bool),
    ]


class PackageReport(Structure):
    _fields_ = [
        ("key", Digest),
        ("model", c_char * 256),
        ("device", c_char * 32),
        ("added", c_bool),
        ("stored", c_bool),
        ("bytes", c_uint64),
        ("digest_ns", c_uint64),
        ("add_ns", c_uint64),
        ("load_ns", c_uint64),
    ]


class ModelOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        *((name, c_char_p) for name in ("weights", "framework", "device")),
        ("num_models", c_size_t),
        ("proxy_executor", c_void_p),
        ("partial_weights", c_bool),
        ("map_weights", c_bool),
    ]


class ModelReport(Structure):
    _fields_ = [
        ("key", Digest),
        ("name", c_char * 256),
        ("framework", c_char * 64),
        ("device", c_char * 32),
        ("tensors", c_size_t),
        ("missing", c_size_t),
        *((name, c_uint64) for name in ("weight_bytes", "lookup_ns", "load_ns", "weights_ns")),
    ]


class RunnerConstant(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("original_fqn", c_char_p),
        ("dtype", c_int32),
        ("type", c_int32),
        ("from_folded", c_bool),
        ("has_bytes", c_bool),
        ("bytes", c_uint64),
    ]


class UpdateOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("inactive", c_bool),
        ("partial", c_bool),
        ("user_managed", c_bool),
        ("from_cpu", c_bool),
        ("by_fqn", c_bool),
    ]


class ConstantPair(Structure):
    _fields_ = [("name", c_char_p), ("handle", c_void_p)]


class LibraryDescription(Structure):
    _fields_ = [
        ("needed_count", c_size_t),
        ("needed", POINTER(c_char_p)),
        ("symbol_count", c_size_t),
        ("symbols", POINTER(c_char_p)),
        ("missing_count", c_size_t),
        ("missing", POINTER(c_char_p)),
        ("export_count", c_size_t),
        ("exports", POINTER(c_char_p)),
        ("proxy_executor", c_bool),
        ("cuda", c_bool),
        ("machine", c_char_p),
    ]


class TensorMetadata(Structure):
    _fields_ = [
        ("dtype", c_int32),
        ("layout", c_int32),
        ("device", Device),
        ("requires_grad", c_bool),
        ("dispatch_key_set", c_uint64),
        ("ndim", c_uint32),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    ]


class ArgumentTensor(Structure):
    _fields_ = [("metadata", TensorMetadata), ("data_digest", Digest), ("has_digest", c_bool), ("data", c_void_p)]


class _ArgumentList(Structure):
    _fields_ = [("items", c_void_p), ("count", c_size_t)]


class _ArgumentValue(Union):
    _fields_ = [
        ("int_value", c_int64),
        ("double_value", c_double),
        ("bool_value", c_bool),
        ("complex_value", c_double * 2),
        ("string_value", c_char_p),
        ("device_value", Device),
        ("tensor", ArgumentTensor),
        ("list", _ArgumentList),
    ]


class Argument(Structure):
    _fields_ = [("kind", c_int), ("name", c_char_p), ("value", _ArgumentValue)]


# The kinds of Argument, in the order of their numbers.
ARGUMENT_KINDS = (
    *("none", "tensor", "constant", "int", "double", "bool", "complex", "string", "device", "dtype", "layout"),
    *("memory_format", "list"),
)


class Stored(Structure):
    _fields_ = [
        ("entry_id", c_int64),
        ("key", Digest),
        ("artifact", Digest),
        ("request", c_void_p),
        ("guard", c_char_p),
        ("compile_ns", c_uint64),
    ]


STORED = CFUNCTYPE(c_bool, c_void_p, POINTER(Stored))


class CpuFeatures(Structure):
    _fields_ = [("words", c_uint64 * 2)]


class File(Structure):
    _fields_ = [("name", c_char_p), ("path", c_char_p)]


class Product(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("files", POINTER(File)),
        ("file_count", c_size_t),
        ("requirements", CpuFeatures),
        ("guard", c_char_p),
        ("producer", c_char_p),
        ("compile_ns", c_uint64),
        ("output", c_char_p),
        ("metadata", c_char_p),
        ("fallback", c_char_p),
        ("in_manifest", c_bool),
    ]


GUARD = CFUNCTYPE(c_bool, c_void_p, c_char_p)


class GuardFilter(Structure):
    _fields_ = [("accept", GUARD), ("user", c_void_p)]


DELIVER = CFUNCTYPE(c_int, c_void_p, POINTER(Product))
COMPILE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p, DELIVER, c_void_p, c_void_p)

# Functions that are not called by Library.call(), or do not return a status: result, then arguments.
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "aoticache_version": (c_char_p, []),
    "aoticache_config_name_parse": (c_int, [c_char_p, c_void_p, c_void_p]),
    "aoticache_config_get": (ConfigSetting, [c_void_p, c_int]),
    "aoticache_config_free": (None, [c_void_p]),
    "aoticache_cache_at_exit": (None, [c_void_p]),
    "aoticache_cache_close": (None, [c_void_p]),
    "aoticache_cache_get_info": (CacheInfo, [c_void_p]),
    "aoticache_artifact_unref": (None, [c_void_p]),
    "aoticache_artifact_library_fd": (c_int, [c_void_p]),
    "aoticache_artifact_content": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "aoticache_artifact_get_info": (POINTER(ArtifactInfo), [c_void_p]),
    "aoticache_artifact_close_files": (None, [c_void_p]),
    "aoticache_request_free": (None, [c_void_p]),
    "aoticache_request_argument": (POINTER(Argument), [c_void_p, c_size_t]),
    "aoticache_request_get_environment": (c_char_p, [c_void_p, c_char_p]),
    "aoticache_hook_free": (None, [c_void_p]),
    "aoticache_hook_get_info": (HookInfo, [c_void_p]),
    "aoticache_context_free": (None, [c_void_p]),
    "aoticache_compiles_cancel": (None, []),
    "aoticache_context_get_compiles": (None, [c_void_p, POINTER(ContextCompiles)]),
    "aoticache_runner_unref": (None, [c_void_p]),
    "aoticache_runner_get_info": (POINTER(RunnerInfo), [c_void_p]),
    "aoticache_library_get_info": (POINTER(LibraryInfo), [c_void_p]),
    "aoticache_library_description_free": (None, [POINTER(LibraryDescription)]),
    "aoticache_dtype_name": (c_char_p, [c_int32]),
    "aoticache_layout_name": (c_char_p, [c_int32]),
    "aoticache_package_read_metadata": (c_int, [c_void_p, c_void_p, METADATA, c_void_p, c_void_p]),
    "aoticache_package_close": (None, [c_void_p]),
    "aoticache_package_model_at": (POINTER(PackageModel), [c_void_p, c_size_t]),
    "aoticache_package_list_metadata": (None, [c_void_p, c_void_p, METADATA, c_void_p]),
    "aoticache_binding_free": (None, [c_void_p]),
    "aoticache_binding_disable": (None, [c_void_p]),
    "aoticache_binding_get_counts": (None, [c_void_p, POINTER(BindingCounts)]),
}


def encode(text: str | os.PathLike[str] | None) -> bytes | None:
    """Converts text or a path for C; None becomes NULL."""
    return None if text is None else os.fsencode(text)


def strings(items: list[str]) -> Any:
    """Returns a NULL-terminated array of C strings."""
    return (c_char_p * (len(items) + 1))(*(os.fsencode(item) for item in items), None)


class Library:
    """The loaded library. `path` is its file; `home` the directory that contains its tools and data, if known."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.c = ctypes.CDLL(path)
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(self.c, name, None)
            if function is not None:
                function.restype = result
                function.argtypes = arguments

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status and takes an error last; raises unless it is OK."""
        error = Error()
        status: int = getattr(self.c, name)(*arguments, ctypes.byref(error))
        if status != 0:
            raise AoticacheError(error.message.decode(errors="replace") or name, status_name(status))

    def get(self, name: str, *arguments: Any) -> Any:
        """Calls a function of _PROTOTYPES and returns its result."""
        return getattr(self.c, name)(*arguments)

    def artifact_info(self, artifact: Any) -> ArtifactInfo:
        """Returns what is known of an artifact, valid as long as the artifact."""
        info: ArtifactInfo = self.c.aoticache_artifact_get_info(artifact).contents
        return info

    def runner_info(self, runner: Any) -> RunnerInfo:
        """Returns the facts about a runner, valid as long as the runner."""
        info: RunnerInfo = self.c.aoticache_runner_get_info(runner).contents
        return info

    def library_info(self, library: Any) -> LibraryInfo:
        """Returns the facts about a loaded kernel library, valid as long as the library."""
        info: LibraryInfo = self.c.aoticache_library_get_info(library).contents
        return info

    def add_argument(self, request: c_void_p, name: bytes | None, kind: str, **value: Any) -> None:
        """Appends an argument to a request. value: the member of _ArgumentValue that the kind has."""
        argument = Argument(ARGUMENT_KINDS.index(kind), name, _ArgumentValue(**value))
        self.call("aoticache_request_add", request, ctypes.byref(argument))

    @property
    def version(self) -> str:
        text: bytes = self.c.aoticache_version()
        return text.decode()

    @property
    def home(self) -> Path:
        """Returns the directory that contains `bin`, `lib`, `share` and `include`: two levels above the library, or more if a
        distribution has a directory per architecture below lib."""
        own = os.environ.get("AOTICACHE_HOME")
        if own:
            return Path(own)
        above = Path(self.path).resolve().parents[1:]
        return next((directory for directory in above if (directory / "share" / "aoticache").is_dir()), above[0])

    def has_binding(self) -> bool:
        return hasattr(self.c, "aoticache_binding_create")


def configured(library: Library, setting: str) -> str:
    """Returns a setting from the configuration files and the environment. Their errors are reported when a cache is opened."""
    config, name = c_void_p(), c_int()
    library.call("aoticache_config_read", None, Logger(), ctypes.byref(config))
    try:
        if library.get("aoticache_config_name_parse", encode(setting), ctypes.byref(name), None) != 0:
            raise AoticacheError(f"{library.path} does not know the setting {setting!r}", "UNSUPPORTED")
        found: ConfigSetting = library.get("aoticache_config_get", config, name)
        return os.fsdecode(found.text)
    finally:
        library.get("aoticache_config_free", config)


def problem_with_provider(library: Library) -> str:
    """Returns why PyTorch's tensors cannot be passed to kernels in this process; "" if they can. PyTorch must be imported."""
    torch = c_void_p()
    library.call("aoticache_torch_get", ctypes.byref(torch))
    if c_int.from_address(torch.value or 0).value == 0:  # AOTICACHE_TORCH_LIBTORCH, the first member
        return ""
    return (
        "this process ran a model without PyTorch (aoticache.runtime) before PyTorch was imported, and its kernels stay with "
        "libaoticache's own tensors; import torch first"
    )


def require_libtorch(library: Library) -> None:
    problem = problem_with_provider(library)
    if problem:
        raise AoticacheError(problem, "UNSUPPORTED")


def free(text: c_char_p) -> None:
    """Frees a text that the library allocated."""
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [c_void_p]
    libc.free.restype = None
    libc.free(ctypes.cast(text, c_void_p))


def status_name(status: int) -> str:
    return STATUS[status] if 0 <= status < len(STATUS) else "UNKNOWN"


_library: Library | None = None
_lock = threading.Lock()


def load() -> Library:
    """Returns the library, which is loaded once per process. Raises LibraryNotFoundError."""
    global _library
    with _lock:
        if _library is None:
            _library = _load()
        return _library


def _load() -> Library:
    tried = []
    for path in candidates():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path}: there is no such file")
            continue
        try:
            library = Library(path)
        except OSError as error:
            tried.append(f"{path}: {error}")
            continue
        if os.path.isabs(path):
            return library
        library.path = _mapped_path(path) or path
        return library
    if not sys.platform.startswith("linux"):
        tried.append(f"this is {sys.platform}; libaoticache is for Linux")
    raise LibraryNotFoundError("libaoticache.so cannot be loaded: " + "; ".join(tried))


def _mapped_path(name: str) -> str | None:
    """Returns the file of a library that the dynamic linker found by its name."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = (line.split(None, 5)[5].strip() for line in maps if line.count(" ") >= 5 and "/" in line)
            return next((path for path in paths if os.path.basename(path).startswith(name)), None)
    except OSError:
        return None


def make_logger(sink: Callable[[int, str], None]) -> Any:
    """Returns a C function that passes log lines to `sink(level, line)`; keep it as long as the library may log."""

    def log(_user: Any, level: int, line: bytes | None) -> None:
        try:
            sink(level, (line or b"").decode(errors="replace"))
        except Exception:  # noqa: BLE001 - no exception may leave a callback from C
            pass

    return LOG(log)
