"""What `import aoticache` gives: the functions of the package. __init__.py imports this module when the first of them is used."""


from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from . import _caches, _compile_cache, _operators, _session, _stats
from ._errors import (
    AoticacheError,
    AoticacheWarning,
    LibraryNotFoundError,
    OperatorNotFoundError,
    OperatorRefusedError,
    SettingsError,
    TorchNotFoundError,
    warn_once,
)
from ._models import BackgroundModel, CompiledModel, ModelOrigin, compile, load
from ._operators import PRESETS, Explanation
from ._package import PackagedModel, load_package
from ._plug import install_backend, uninstall_backend
from ._settings import Dynamic, Settings, make_policy
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
    """What a call of `enable()` did. True where at least one operator is enabled or will be."""

    #: Operators that are served from now on.
    operators: tuple[str, ...] = ()
    #: Operators that are served as soon as the bridge has been compiled, once per machine.
    pending: tuple[str, ...] = ()
    #: Operators that a pattern matches and that are not served, and why.
    skipped: dict[str, str] = field(default_factory=dict)
    #: Why nothing is enabled; "" where something is.
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
    Puts the cache behind operators of PyTorch.

    operators: names ("aten::abs", "aten::add.Tensor"; "aten::" may be left out), overloads (torch.ops.aten.abs.default),
    shell patterns ("aten::*norm*"), functions (torch.abs: all overloads that can be served), or presets: "pointwise" and
    "safe" (`PRESETS`); or lists of these. An operator that is enabled already gets the new policy.

    device: "cpu" or "cuda". On a GPU nothing is judged by time, and calls on small tensors are slower than PyTorch's: enable
    single operators there, where a measurement shows a gain (docs/gpu.md).

    mode: what a call does whose kernel is not there. "background" (the default): PyTorch's kernel answers while it is
    compiled; "wait": the call waits; "never": nothing is compiled, only what the cache has is used.

    dynamic: when a kernel is compiled for all shapes instead of one: ("after", 4) different ones (the default), "never",
    "always".

    settings: those of `configure()`: cache_dir, workers, ... They hold for the process, so they can change only while
    nothing is enabled.

    Raises OperatorNotFoundError (with the nearest names), OperatorRefusedError (an operator named exactly that cannot be
    served: `explain()` says why), SettingsError. What the machine lacks is one warning, and PyTorch goes on by itself.

    >>> aoticache.enable("aten::abs", mode="wait")                                              # doctest: +SKIP
    Enabled(operators=('aten::abs',), pending=(), skipped={}, problem='')
    """
    if not operators:
        raise SettingsError('enable() needs operators: names, patterns, or a preset ("pointwise", "safe")')
    policy = make_policy(device, mode, dynamic)
    wanted = _session.current_settings().changed(settings)
    choice = _operators.choose(operators, policy.device)
    problem = _session.problem_with_torch(policy.device)
    if not problem:
        try:
            outcome = _session.enable(choice, policy, wanted)
            return Enabled(tuple(outcome.enabled), tuple(outcome.pending), outcome.skipped)
        except (SettingsError, OperatorRefusedError):
            raise
        except AoticacheError as error:
            problem = str(error)
    warn_once("enable", f"aoticache: nothing is enabled, PyTorch's own kernels answer: {problem}")
    return Enabled(skipped=dict(choice.skipped), problem=problem)


def disable(*operators: Any) -> tuple[str, ...]:
    """
    PyTorch's own kernels are back, for calls that begin afterwards: of these operators (names and patterns as for
    `enable()`), or of all without any. Returns when no call is inside a kernel of the cache any longer. What was compiled
    stays in the cache. Returns the operators that were enabled.
    """
    if not operators:
        return tuple(_session.disable(None))
    names: list[str] = []
    devices = _session.devices()  # what a preset holds depends on it
    for request in _operators.flatten(operators):
        if isinstance(request, str) and request in PRESETS:
            names.extend(name for device in devices for name in _operators.expand_preset(request, device))
            continue
        if _operators.is_function(request):
            names.extend(name for device in devices for name in _operators.served_overloads(request, device))
            continue
        name = _operators.name_of(request)
        if _operators.is_pattern(name):
            names.extend(_operators.match(name))
        else:
            _operators.check_name(name)
            names.append(name)
    return tuple(_session.disable(names))


@contextmanager
def enabled(
    *operators: Any,
    device: Any = "cpu",
    mode: str = "background",
    dynamic: Dynamic = ("after", 4),
    **settings: Any,
) -> Iterator[Enabled]:
    """
    `enable()` for a block; afterwards every operator is as it was before, with the policy that it had.

    It holds for the whole process, not for one thread.

    >>> with aoticache.enabled("pointwise", mode="wait"):                                       # doctest: +SKIP
    ...     y = model(x)
    """
    policy = make_policy(device, mode, dynamic)
    before = _session.snapshot(_operators.choose(operators, policy.device).operators) if operators else {}
    result = enable(*operators, device=device, mode=mode, dynamic=dynamic, **settings)
    try:
        yield result
    finally:
        _session.restore(before)


def is_enabled(operator: Any) -> bool:
    """Whether calls of the operator come to the cache now."""
    session = _session.current()
    return session is not None and _operators.name_of(operator) in session.active


def wait(timeout: float | None = None, *, progress: bool | None = None) -> bool:
    """
    Waits until no compile is queued or under way, that of the bridge included; then uses and counts are written to the
    cache. timeout: seconds at most; None: without limit. Returns False when the time was over first.

    progress: whether a bar is drawn on standard error; None: where that is a terminal.

    Ctrl-C ends the wait (KeyboardInterrupt), not the compiles: they go on as long as the process lives, and what is not
    done then is compiled by whoever needs it next.
    """
    return _session.wait(timeout, progress)


def stats() -> Stats:
    """
    What happened in this process, operator by operator, and what the cache has: `print(aoticache.stats())`.

    >>> aoticache.stats().total("hits")                                                         # doctest: +SKIP
    1000
    """
    return _stats.collect()


def explain(operator: Any, device: Any = "cpu") -> Explanation:
    """
    Whether an operator can be served, and why not.

    >>> print(aoticache.explain("aten::squeeze_"))                                              # doctest: +SKIP
    aten::squeeze_ is not served on cpu: it changes its argument's sizes, strides or memory in place
    """
    policy = make_policy(device, "never", "never")
    name = _operators.name_of(operator)
    _operators.check_name(name)
    return _operators.explain_name(name, policy.device)


def operators(device: Any = "cpu") -> list[str]:
    """All operators of PyTorch that can be served on a device."""
    return _operators.known_operators(make_policy(device, "never", "never").device)


def configure(**settings: Any) -> Settings:
    """
    Sets what holds for the process, and returns all settings (`Settings` describes them): cache_dir, workers,
    compile_timeout, cpu_features, memory_limit, max_loaded, max_loaded_bytes, fail_calls, bridge, cxx, wait_at_exit,
    record_file. Raises SettingsError for one that does not exist, and while operators are enabled.
    """
    return _session.configure(**settings)


def install_compile_cache(*, any_compiler: bool = False, **settings: Any) -> bool:
    """
    Puts the cache under `torch.compile`, for the whole process and for compiles that begin afterwards: what Inductor
    compiles is taken from the cache, and stored there where it is missing. A program whose cache is full needs no compiler.

    any_compiler: also take what another compiler than this machine's has made. False: only where there is none here.

    settings: those of `configure()`: cache_dir, ...

    Returns whether it is installed. What the machine lacks, and a PyTorch that is not known, is one AoticacheWarning;
    PyTorch then compiles by itself.

    >>> aoticache.install_compile_cache()                                                       # doctest: +SKIP
    True
    """
    if settings:
        _session.configure(**settings)
    return _compile_cache.install(any_compiler)


def uninstall_compile_cache() -> bool:
    """
    `torch.compile` as it was, for compiles that begin afterwards. What is compiled already goes on. Returns whether it was
    installed.
    """
    return _compile_cache.uninstall()


def doctor() -> str:
    """A report on what there is and what is missing; the same as `python -m aoticache doctor`."""
    from . import _doctor

    return _doctor.report()


atexit.register(_caches.at_exit)  # called last
atexit.register(_session.at_exit)
os.register_at_fork(
    before=_session.before_fork,
    after_in_parent=_session.after_fork_in_parent,
    after_in_child=_session.after_fork_in_child,
)
