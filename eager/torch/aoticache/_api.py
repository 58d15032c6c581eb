"""The public functions of the package. __init__.py imports this module when one of them is used for the first time."""


from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from . import _compile_cache, _stats
from ._core.errors import (
    AoticacheError,
    AoticacheWarning,
    LibraryNotFoundError,
    OperatorNotFoundError,
    OperatorRefusedError,
    SettingsError,
    TorchNotFoundError,
    warn_once,
)
from ._core.settings import Dynamic, Settings, current_settings, make_policy
from ._models import BackgroundModel, CompiledModel, ModelOrigin, PackagedModel, compile, load, load_package
from ._operators import PRESETS, Explanation, catalogue, install_backend, session, uninstall_backend
from ._stats import CacheStats, OperatorStats, Stats

__all__ = [
    "PRESETS",
    "AoticacheError",
    "AoticacheWarning",
    "BackgroundModel",
    "CacheStats",
    "CompiledModel",
    "Enabled",
    "Explanation",
    "LibraryNotFoundError",
    "ModelOrigin",
    "OperatorNotFoundError",
    "OperatorRefusedError",
    "OperatorStats",
    "PackagedModel",
    "Settings",
    "SettingsError",
    "Stats",
    "TorchNotFoundError",
    "compile",
    "compile_cache",
    "configure",
    "disable",
    "doctor",
    "enable",
    "enabled",
    "explain",
    "install_backend",
    "install_compile_cache",
    "is_enabled",
    "load",
    "load_package",
    "operators",
    "stats",
    "uninstall_backend",
    "uninstall_compile_cache",
    "wait",
]


@dataclass(frozen=True)
class Enabled:
    """What a call of `enable()` did. It is true if at least one operator is enabled or will be."""

    #: Operators that are now served.
    operators: tuple[str, ...] = ()
    #: Operators that will be served when the bridge has been compiled (once per machine).
    pending: tuple[str, ...] = ()
    #: Operators that match a pattern but are not served, and the reason.
    skipped: dict[str, str] = field(default_factory=dict)
    #: Why nothing is enabled; "" if something is.
    problem: str = ""

    def __bool__(self) -> bool:
        return bool(self.operators or self.pending)

    def __str__(self) -> str:
        if self.problem:
            return f"nothing is enabled: {self.problem}"
        parts = [f"{len(self.operators)} operators enabled"]
        if self.pending:
            parts.append(f"{len(self.pending)} as soon as the bridge is compiled")
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        return ", ".join(parts)


def enable(
    *operators: Any,
    device: Any = "cpu",
    mode: str = "background",
    dynamic: Dynamic = ("after", 4),
    **settings: Any,
) -> Enabled:
    """
    Serves operators of PyTorch from the cache.

    operators: names ("aten::abs", "aten::add.Tensor"; "aten::" may be left out), overloads (torch.ops.aten.abs.default),
    shell patterns ("aten::*norm*"), functions (torch.abs: all overloads that can be served), or presets: "pointwise" and
    "safe" (`PRESETS`); or lists of these. An operator that is already enabled gets the new policy.

    device: "cpu" or "cuda". On a GPU, kernels are not timed against PyTorch's, and calls on small tensors are slower than
    PyTorch's. Enable only single operators there, if a measurement shows a gain (docs/gpu.md).

    mode: what a call does if its kernel is missing. "background" (the default): PyTorch's kernel answers while the kernel is
    being compiled; "wait": the call waits; "never": nothing is compiled, and only kernels in the cache are used.

    dynamic: when to compile one kernel for all shapes instead of one per shape: ("after", 4): after 4 different shapes (the
    default), "never", "always".

    settings: those of `configure()`: cache_dir, workers, ... They apply to the process, so they can change only while
    nothing is enabled.

    Raises OperatorNotFoundError (with the nearest names), OperatorRefusedError (an operator was named exactly and cannot be
    served; `explain()` says why), SettingsError. If the machine lacks something, there is one warning, and PyTorch answers.

    >>> aoticache.enable("aten::abs", mode="wait")                                              # doctest: +SKIP
    Enabled(operators=('aten::abs',), pending=(), skipped={}, problem='')
    """
    if not operators:
        raise SettingsError('enable() needs operators: names, patterns, or a preset ("pointwise", "safe")')
    policy = make_policy(device, mode, dynamic)
    wanted = current_settings().changed(settings)
    choice = catalogue.choose(operators, policy.device)
    problem = session.problem_with_torch(policy.device)
    if not problem:
        try:
            outcome = session.enable(choice, policy, wanted)
            return Enabled(tuple(outcome.enabled), tuple(outcome.pending), outcome.skipped, outcome.problem)
        except (SettingsError, OperatorRefusedError):
            raise
        except AoticacheError as error:
            problem = str(error)
    warn_once("enable", f"aoticache: nothing is enabled, PyTorch's own kernels answer: {problem}")
    return Enabled(skipped=dict(choice.skipped), problem=problem)


def disable(*operators: Any) -> tuple[str, ...]:
    """
    Gives operators back to PyTorch's own kernels, for calls that begin afterwards: these operators (names and patterns as
    for `enable()`), or all if none is named. Returns when no call is inside a kernel of the cache any longer. Compiled
    kernels stay in the cache. Returns the operators that were enabled.
    """
    if not operators:
        return tuple(session.disable(None))
    names: list[str] = []
    devices = session.devices()  # the operators of a preset depend on it
    for request in catalogue.flatten(operators):
        if isinstance(request, str) and request in PRESETS:
            names.extend(name for device in devices for name in catalogue.expand_preset(request, device))
            continue
        if catalogue.is_function(request):
            names.extend(name for device in devices for name in catalogue.served_overloads(request, device))
            continue
        name = catalogue.name_of(request)
        if catalogue.is_pattern(name):
            names.extend(catalogue.match(name))
        else:
            catalogue.check_name(name)
            names.append(name)
    return tuple(session.disable(names))


@contextmanager
def enabled(
    *operators: Any,
    device: Any = "cpu",
    mode: str = "background",
    dynamic: Dynamic = ("after", 4),
    **settings: Any,
) -> Iterator[Enabled]:
    """
    Works as `enable()` for a block. Afterwards every operator has its previous state and policy again.

    It applies to the whole process, not to one thread.

    >>> with aoticache.enabled("pointwise", mode="wait"):                                       # doctest: +SKIP
    ...     y = model(x)
    """
    policy = make_policy(device, mode, dynamic)
    before = session.snapshot(catalogue.choose(operators, policy.device).operators) if operators else {}
    result = enable(*operators, device=device, mode=mode, dynamic=dynamic, **settings)
    try:
        yield result
    finally:
        session.restore(before)


def is_enabled(operator: Any) -> bool:
    """Returns whether calls of the operator now go to the cache."""
    live = session.current()
    return live is not None and catalogue.name_of(operator) in live.active


def wait(timeout: float | None = None, *, progress: bool | None = None) -> bool:
    """
    Waits until no compile is queued or running, including that of the bridge. Then writes usage counts to the cache.
    timeout: seconds at most; None: no limit. Returns False if the time ran out first.

    progress: whether to draw a progress bar on standard error; None: only if that is a terminal.

    Ctrl-C ends the wait (KeyboardInterrupt) but not the compiles: they continue as long as the process lives. Kernels that
    are not finished by then are compiled by the next process that needs them.
    """
    return session.wait(timeout, progress)


def stats() -> Stats:
    """
    Returns what happened in this process, for each operator, and the contents of the cache: `print(aoticache.stats())`.

    >>> aoticache.stats().total("hits")                                                         # doctest: +SKIP
    1000
    """
    return _stats.collect()


def explain(operator: Any, device: Any = "cpu") -> Explanation:
    """
    Returns whether an operator can be served, and if not, why.

    >>> print(aoticache.explain("aten::squeeze_"))                                              # doctest: +SKIP
    aten::squeeze_ is not served on cpu: it changes its argument's sizes, strides or memory in place
    """
    policy = make_policy(device, "never", "never")
    name = catalogue.name_of(operator)
    catalogue.check_name(name)
    return catalogue.explain_name(name, policy.device)


def operators(device: Any = "cpu") -> list[str]:
    """Returns all operators of PyTorch that can be served on a device."""
    return catalogue.known_operators(make_policy(device, "never", "never").device)


def configure(**settings: Any) -> Settings:
    """
    Changes settings of the process, and returns all settings (`Settings` describes them): cache_dir, workers,
    compile_timeout, cpu_features, memory_limit, max_loaded, max_loaded_bytes, fail_calls, cxx, wait_at_exit, record_file.
    Raises SettingsError for an unknown setting, and while operators are enabled.
    """
    return session.configure(**settings)


def install_compile_cache(*, any_compiler: bool = False, **settings: Any) -> bool:
    """
    Makes `torch.compile` use the cache, for the whole process and for compiles that begin afterwards: compiled code of
    Inductor is loaded from the cache, and stored there if it is missing. If everything is in the cache, no compiler is
    needed.

    any_compiler: also use code that a compiler other than this machine's has compiled. False: only if this machine has no
    compiler.

    settings: those of `configure()`: cache_dir, ...

    Returns whether it is installed. If the machine lacks something, or this version of PyTorch is not known, there is one
    AoticacheWarning, and PyTorch compiles without the cache.

    >>> aoticache.install_compile_cache()                                                       # doctest: +SKIP
    True
    """
    if settings:
        session.configure(**settings)
    return _compile_cache.install(any_compiler)


def uninstall_compile_cache() -> bool:
    """
    Makes `torch.compile` work without the cache again, for compiles that begin afterwards. Code that is compiled already
    stays in use. Returns whether the cache was installed.
    """
    return _compile_cache.uninstall()


@contextmanager
def compile_cache(*, any_compiler: bool = False, cache_dir: str | os.PathLike[str] | None = None) -> Iterator[bool]:
    """
    Works as `install_compile_cache()` for a block, and yields what that returns. `torch.compile` compiles at the first call of a
    function, so this call must be in the block.

    Blocks may be nested: the end of the outermost one uninstalls, unless `install_compile_cache()` was called before or
    meanwhile. It applies to the whole process, not to one thread.

    cache_dir: None: the directory of `configure()`, or of the block around this one. It changes no setting.

    Raises SettingsError if the compile cache is installed already with another directory or any_compiler.

    >>> with aoticache.compile_cache():                                                         # doctest: +SKIP
    ...     y = torch.compile(model)(x)
    """
    directory = None if cache_dir is None else os.path.abspath(os.fspath(cache_dir))
    with _compile_cache.installed(any_compiler, directory) as is_installed:
        yield is_installed


def doctor() -> str:
    """Returns a report on what is installed and what is missing; the same as `python -m aoticache doctor`."""
    from . import _doctor

    return _doctor.report()
