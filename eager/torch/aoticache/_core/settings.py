"""The settings: names and allowed values, for the process and for one operator; and those of this process."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .errors import SettingsError

MODES = {"wait": 0, "background": 1, "never": 2}
DYNAMIC = {"never": 0, "after": 1, "always": 2}

#: "never", "always", or ("after", N): for all shapes, after N different shapes have been requested.
Dynamic = str | tuple[str, int]


@dataclass(frozen=True)
class Settings:
    """Settings of the process. They can be changed while no operator is enabled."""

    #: The directory of the cache; None: $AOTICACHE_DIR, $XDG_CACHE_HOME/aoticache or ~/.cache/aoticache.
    cache_dir: str | None = None
    #: Maximum number of worker processes, each with its own PyTorch (about 400 MB of memory).
    workers: int = 1
    #: Seconds that one compile may take.
    compile_timeout: int = 300
    #: CPU features that compiled code may use, "x86-64-v3" or "avx2,fma"; "native": all that this machine has. None: the
    #: setting `cpu` of the configuration files and $AOTICACHE_CPU, which is native by default.
    cpu_features: str | None = None
    #: Data memory that a compile may take, in bytes; 0: no limit.
    memory_limit: int = 0
    #: Maximum number of loaded kernel libraries; 0: no limit. The least recently used one is unloaded.
    max_loaded: int = 0
    max_loaded_bytes: int = 0
    #: True: a failed compile or load is an error of the call. False: PyTorch's kernel answers.
    fail_calls: bool = False
    #: True: a compiled kernel is used only if it is faster than PyTorch's. The first calls that it could serve alternate
    #: between the two kernels and are timed; then the faster one answers. False: the compiled kernel always answers.
    judge: bool = True
    #: The C++ compiler for the bridge; None: $CXX, c++, g++, clang++.
    cxx: str | None = None
    #: Seconds that the process waits at its end for running compiles; unfinished ones are lost.
    wait_at_exit: float = 0.0
    #: File to which each different request is appended once, for `aoticache warm`.
    record_file: str | None = None

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """Returns settings with other values; checks names and values."""
        known = {one.name for one in fields(self)}
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else "there are " + ", ".join(sorted(known))
                raise SettingsError(f"unknown setting {name!r}: {hint}")
        given: dict[str, Any] = dict(values)
        if given.get("cache_dir") is not None:
            given["cache_dir"] = os.path.abspath(os.fspath(given["cache_dir"]))
        if given.get("record_file") is not None:
            given["record_file"] = os.path.abspath(os.fspath(given["record_file"]))
        settings = replace(self, **given)
        settings.check()
        return settings

    def check(self) -> None:
        least = {"workers": 1, "compile_timeout": 1, "memory_limit": 0, "max_loaded": 0, "max_loaded_bytes": 0}
        for name, minimum in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise SettingsError(f"{name} is {value!r}; it must be an integer of at least {minimum}")
        if self.workers > 64:
            raise SettingsError(f"workers is {self.workers}; at most 64 are allowed")
        if not isinstance(self.judge, bool):
            raise SettingsError(f"judge is {self.judge!r}; it must be True or False")
        if not isinstance(self.wait_at_exit, (int, float)) or not 0 <= self.wait_at_exit < 1e6:
            raise SettingsError(f"wait_at_exit is {self.wait_at_exit!r}; it must be a number of seconds")


@dataclass(frozen=True)
class Policy:
    """Settings of one operator."""

    device: str = "cpu"
    mode: str = "background"
    dynamic: str = "never"
    dynamic_after: int = 4

    @property
    def shared(self) -> tuple[str, int]:
        """Returns the settings that operators must have in common to share background threads and limits."""
        return self.mode, self.dynamic_after

    def __str__(self) -> str:
        dynamic = f"after {self.dynamic_after}" if self.dynamic == "after" else self.dynamic
        return f"{self.mode}, dynamic {dynamic}, on {self.device}"


def make_policy(device: Any, mode: Any, dynamic: Any) -> Policy:
    """Creates a policy from the arguments of enable(). Raises SettingsError."""
    device_type = str(device).partition(":")[0]
    if device_type not in ("cpu", "cuda"):
        raise SettingsError(f"device {str(device)!r} is not supported; use 'cpu' or 'cuda'")
    if ":" in str(device) and str(device) not in ("cpu:0",):
        raise SettingsError(
            f"device {str(device)!r}: operators are enabled for all devices of a type; use {device_type!r}"
        )
    if mode not in MODES:
        raise SettingsError(f"mode is {mode!r}; it must be one of {', '.join(map(repr, MODES))}")
    after = 4
    if isinstance(dynamic, (tuple, list)):
        if len(dynamic) != 2 or dynamic[0] != "after" or not isinstance(dynamic[1], int) or dynamic[1] < 1:
            raise SettingsError(f"dynamic is {dynamic!r}; as a pair it must be ('after', N) with N of at least 1")
        dynamic, after = dynamic
    if dynamic not in DYNAMIC:
        raise SettingsError(f"dynamic is {dynamic!r}; it must be 'never', 'always' or ('after', N)")
    return Policy(device_type, mode, dynamic, after)


# ---- the settings of this process ----

_current = Settings()


def current_settings() -> Settings:
    """Returns those in use or, if configure() was called since, those of the next session."""
    return _current


def set_current_settings(settings: Settings) -> None:
    """Only the session calls this: it knows whether operators are enabled, while which settings cannot change."""
    global _current
    _current = settings
