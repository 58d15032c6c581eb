"""State shared by the parts of the compile cache: the open cache, counts, the environment of records, and functions of PyTorch
that were replaced and can be restored.

A fault of the cache must not become one of the program: `guarded()` turns it into one warning, and PyTorch continues without
the cache.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._core import caches, records
from .._core.errors import AoticacheError, warn_once
from .._core.records import KindStats


class State:
    """One for each installation."""

    def __init__(self, cache: caches.Cache, any_compiler: bool) -> None:
        self.records = records.Records(cache)
        self.any_compiler = any_compiler
        self.counts = {kind: KindStats() for kind in records.KINDS}
        self.patches = Patches()
        self.is_kept = False  # installed by install_compile_cache(), so it stays at the end of a block
        self.blocks = 0  # blocks of compile_cache() that use it
        self.used: Any = None  # records that saved artifacts must contain; portable_artifacts.Used
        self._lock = threading.Lock()

    def count(self, kind: str, name: str, by: int = 1) -> None:
        with self._lock:
            setattr(self.counts[kind], name, getattr(self.counts[kind], name) + by)

    def count_hit(self, kind: str, name: str) -> None:
        self.count(kind, "hits")
        caches.log.debug("%s: hit: %s", kind, name)

    def count_miss(self, kind: str, name: str, reason: str = "the cache has no record") -> None:
        self.count(kind, "misses")
        caches.log.info("%s: miss: %s: %s", kind, name, reason)

    def count_stored(self, kind: str, name: str, compile_ns: int) -> None:
        self.count(kind, "stored")
        caches.log.info("%s: compiled in %.1f s and stored: %s", kind, compile_ns / 1e9, name)

    def snapshot(self) -> dict[str, KindStats]:
        with self._lock:
            return {kind: dataclasses.replace(counts) for kind, counts in self.counts.items()}

    @contextmanager
    def guarded(self, kind: str) -> Iterator[None]:
        """Turns an exception inside into one warning; the caller continues without the cache."""
        try:
            yield
        except (AoticacheError, OSError, ValueError) as error:
            self.count(kind, "refused")
            warn_once(
                f"compile-{kind}",
                f"aoticache: the cache {self.records.cache.directory} does not serve {kind} ({error}); PyTorch compiles "
                "without it",
            )

    # ---- environments ----

    def environment(self) -> dict[str, str]:
        """Returns the pairs that must be equal for every record of PyTorch."""
        import torch

        return {
            "framework": f"pytorch {torch.__version__}",
            "revision": str(torch.version.git_version or ""),
            "python": str(sys.implementation.cache_tag),
        }

    @property
    def producer(self) -> str:
        import torch

        return f"pytorch {torch.__version__}"


class Patches:
    """Attributes that were replaced; they are restored in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Returns the previous value as stored: in a class, the staticmethod or classmethod object itself."""
        found = vars(owner)[name] if isinstance(owner, type) and name in vars(owner) else getattr(owner, name)
        was_own = not isinstance(owner, type) or name in vars(owner)
        setattr(owner, name, value)

        def undo() -> None:
            # If others replaced it after us, they call ours, which forwards every call after it is uninstalled.
            current = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name)
            if current is value:
                if was_own:
                    setattr(owner, name, found)
                else:
                    delattr(owner, name)

        self._undo.append(undo)
        return found

    def on_restore(self, function: Callable[[], None]) -> None:
        self._undo.append(function)

    def restore(self) -> None:
        while self._undo:
            self._undo.pop()()


def caches_are_disabled() -> bool:
    """Returns whether the program has switched PyTorch's caches off (TORCHINDUCTOR_FORCE_DISABLE_CACHES)."""
    import torch

    return bool(getattr(torch.compiler.config, "force_disable_caches", False))


def is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
