"""Makes `torch.compile` use the cache: installing and uninstalling.

PyTorch's compiler is imported at the first compile. Nothing is replaced earlier: a finder on `sys.meta_path` waits for
`torch._inductor.codecache`, so install_compile_cache() costs nothing in programs that compile nothing.

Everything is checked before it is replaced: PyTorch's version must be a tested one, and every function must have the same
parameters as in that version. Otherwise PyTorch is left unchanged, with one warning.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .._core import caches, triton_keys
from .._core.errors import AoticacheError, SettingsError, warn_once
from .._core.imports import Finder, after_import
from .._core.records import TRITON, KindStats
from .._core.settings import current_settings
from .state import State

TRIGGER = "torch._inductor.codecache"
#: The variable that Triton reads, and Inductor's Triton compile processes; and the class that it names.
TRITON_VARIABLE, TRITON_MANAGER = "TRITON_CACHE_MANAGER", "aoticache.triton:CacheManager"
#: Versions of PyTorch that the tests run with: major and minor.
VERSIONS = ((2, 10), (2, 11), (2, 12), (2, 13), (2, 14), (2, 15))
#: Functions that are replaced or called: module, name, parameters.
FUNCTIONS = (
    ("torch._inductor.cpp_builder", "CppBuilder.build", ("self",)),
    ("torch._inductor.cpp_builder", "CppBuilder.get_command_line", ("self",)),
    ("torch._inductor.cpp_builder", "CppBuilder.get_target_file_path", ("self",)),
    ("torch._inductor.cpp_builder", "cpp_compiler_search", ("search",)),
    ("torch._inductor.cpp_builder", "_is_intel_compiler", ("cpp_compiler",)),
    ("torch._inductor.cpp_builder", "get_compiler_version_info", ("compiler",)),
    ("torch._inductor.cpu_vec_isa", "VecISA.check_build", ("self", "code")),
    ("torch._inductor.cpu_vec_isa", "pick_vec_isa", ()),
    ("torch._inductor.codecache", "_precompile_header", ("header", "hashable_cmd_line", "compile_command")),
    ("torch._inductor.codecache", "CppCodeCache._load_library", ("path", "key")),
    ("torch._inductor.codecache", "torch_key", ()),
    ("torch._inductor.codecache", "torch_key.set", ("val",)),
    ("torch._inductor.codecache", "GuardedCache.iterate_over_candidates", ("local", "remote_cache", "key")),
    (
        "torch._inductor.codecache",
        "FxGraphHashDetails.__init__",
        ("self", "gm", "example_inputs", "fx_kwargs", "inputs_to_check"),
    ),
    (
        "torch._inductor.codecache",
        "FxGraphCache.prepare_key",
        ("gm", "example_inputs", "fx_kwargs", "inputs_to_check", "remote"),
    ),
    ("torch._dynamo.callback", "CompilationCallbackHandler.install_callbacks", ("self", "trigger", "compile_id")),
    ("torch._inductor.remote_cache", "RemoteCacheBackend._get", ("self", "key")),
    ("torch._inductor.remote_cache", "RemoteCacheBackend._put", ("self", "key", "data")),
    ("torch.compiler._cache", "CacheArtifactManager.serialize", ()),
    ("torch.compiler._cache", "CacheArtifactManager.populate_caches", ("artifacts",)),
)

_lock = threading.RLock()
_state: State | None = None
_variable_is_ours = False  # whether this module set Triton's variable
_finder: Finder | None = None


def install(any_compiler: bool = False) -> bool:
    """See aoticache.install_compile_cache()."""
    with _lock:
        state = _state or _install(any_compiler, current_settings().cache_dir)
        if state is not None:
            state.is_kept = True
        return _state is not None


@contextmanager
def installed(any_compiler: bool, cache_dir: str | None) -> Iterator[bool]:
    """See aoticache.compile_cache()."""
    with _lock:
        if _state is not None:
            _check_same(_state, any_compiler, cache_dir)
        state = _state or _install(any_compiler, cache_dir or current_settings().cache_dir)
        if state is not None:
            state.blocks += 1
    try:
        yield state is not None
    finally:
        with _lock:
            if state is not None:
                state.blocks -= 1
                if state is _state and not state.blocks and not state.is_kept:
                    uninstall()


def _check_same(state: State, any_compiler: bool, cache_dir: str | None) -> None:
    """Raises SettingsError if the compile cache is installed with other options than these."""
    directory = state.records.cache.directory
    if cache_dir is not None and os.path.realpath(cache_dir) != os.path.realpath(directory):
        raise SettingsError(
            f"torch.compile uses the cache {directory}; a second one ({cache_dir}) cannot be used at the same time: call "
            "aoticache.uninstall_compile_cache() or leave the block first"
        )
    if any_compiler != state.any_compiler:
        raise SettingsError(f"the compile cache is installed with any_compiler={state.any_compiler}, which cannot change meanwhile")


def _install(any_compiler: bool, cache_dir: str | None) -> State | None:
    """Returns the state, or None after a warning. The caller holds the lock, and nothing is installed."""
    global _state, _finder
    if not version_is_known():
        return None
    try:
        _state = State(caches.open_cache(cache_dir), any_compiler)
    except AoticacheError as error:
        warn_once("compile-install", f"aoticache: torch.compile works without the cache: {error}")
        return None
    _serve_triton()
    _finder = after_import(TRIGGER, lambda module: patch())
    return _state


def uninstall() -> bool:
    """See aoticache.uninstall_compile_cache()."""
    global _state, _finder
    with _lock:
        state, _state = _state, None
        if _finder is not None:
            _finder.remove()
            _finder = None
        if state is not None:
            state.patches.restore()
        _leave_triton()
        return state is not None


def _serve_triton() -> None:
    """Sets the variable by which Triton uses another cache than its own. A value that the program has set stays."""
    global _variable_is_ours
    if importlib.util.find_spec("triton") is None:
        return
    triton_keys.install()
    if not os.environ.get(TRITON_VARIABLE):
        os.environ[TRITON_VARIABLE] = TRITON_MANAGER
        _variable_is_ours = True


def _leave_triton() -> None:
    global _variable_is_ours
    if _variable_is_ours and os.environ.get(TRITON_VARIABLE) == TRITON_MANAGER:
        del os.environ[TRITON_VARIABLE]
    _variable_is_ours = False


def stats() -> Mapping[str, KindStats]:
    state = _state
    found = state.snapshot() if state is not None else {}
    triton = sys.modules.get("aoticache.triton")  # Triton itself loads it, even if nothing is installed here
    return {**found, TRITON: triton.counts} if triton is not None else found


def is_installed() -> bool:
    return _state is not None


def version_is_known() -> bool:
    torch = sys.modules.get("torch")
    try:
        version = str(getattr(torch, "__version__", None) or importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        warn_once("compile-install", "aoticache: PyTorch is not installed, so there is no torch.compile to serve")
        return False
    if is_known(version):
        return True
    known = ", ".join(known_versions())
    warn_once("compile-install", f"aoticache: the compile cache supports PyTorch {known}; {version} compiles without it")
    return False


def is_known(version: str) -> bool:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) in VERSIONS


def known_versions() -> list[str]:
    return [".".join(map(str, one)) for one in VERSIONS]


def missing_function() -> str | None:
    """Returns the first function of FUNCTIONS that differs from the expected one."""
    for module_name, name, parameters in FUNCTIONS:
        try:
            found: Any = importlib.import_module(module_name)
            for part in name.split("."):
                found = getattr(found, part)
            actual = tuple(inspect.signature(found).parameters)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            return f"{module_name}.{name} ({error})"
        if actual != parameters:
            return f"{module_name}.{name}{actual}, not {parameters}"
    return None


def patch() -> bool:
    """Replaces the functions. If anything fails, PyTorch stays unchanged. Called with or without the lock."""
    global _state
    with _lock:
        state = _state
        if state is None:
            return False
        try:
            missing = missing_function()
            if missing is not None:
                raise AoticacheError(f"this PyTorch has no {missing}", "UNSUPPORTED")
            from . import cpp, graphs, keys, portable_artifacts, sources

            state.used = portable_artifacts.Used()
            cpp.Cpp(state)
            sources.Sources(state)
            graphs.install(state)
            keys.install(state)
            portable_artifacts.install(state)
            return True
        except Exception as error:  # noqa: BLE001 - a fault of the cache must not become one of the program
            state.patches.restore()
            _leave_triton()
            _state = None
            warn_once("compile-install", f"aoticache: torch.compile works without the cache: {error}")
            return False
