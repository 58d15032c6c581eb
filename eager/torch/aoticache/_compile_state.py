"""What the parts of the compile cache share: the open cache, what is counted, the environment of records, and functions of
PyTorch that were replaced and can be put back.

A fault of the cache is never one of the program: `guarded()` turns it into one warning, and PyTorch goes on by itself.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import _caches, _records
from ._errors import AoticacheError, warn_once


@dataclass
class KindStats:
    """What this process did with records of one kind."""

    #: Records that were served; among these, that another process compiled while this one waited for it.
    hits: int = 0
    #: Records that were not there, and were then compiled here or by PyTorch.
    misses: int = 0
    #: Records that were stored.
    stored: int = 0
    #: Records that were refused: damaged ones, ones that could not be loaded; and errors of the cache.
    refused: int = 0


class State:
    """One for each call of install_compile_cache()."""

    def __init__(self, cache: _caches.Cache, any_compiler: bool) -> None:
        self.records = _records.Records(cache)
        self.any_compiler = any_compiler
        self.counts = {kind: KindStats() for kind in _records.KINDS}
        self.patches = Patches()
        self.used: Any = None  # what saved artifacts must carry; _portable_artifacts.Used
        self._lock = threading.Lock()

    def count(self, kind: str, name: str, by: int = 1) -> None:
        with self._lock:
            setattr(self.counts[kind], name, getattr(self.counts[kind], name) + by)

    def snapshot(self) -> dict[str, KindStats]:
        with self._lock:
            return {kind: dataclasses.replace(counts) for kind, counts in self.counts.items()}

    @contextmanager
    def guarded(self, kind: str) -> Iterator[None]:
        """What goes wrong inside is one warning; the caller goes on without the cache."""
        try:
            yield
        except (AoticacheError, OSError, ValueError) as error:
            self.count(kind, "refused")
            warn_once(
                f"compile-{kind}",
                f"aoticache: the cache {self.records.cache.directory} does not serve {kind} ({error}); PyTorch compiles by "
                "itself",
            )

    # ---- environments ----

    def environment(self) -> dict[str, str]:
        """What every record of PyTorch needs to be equal."""
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
    """Attributes that were replaced, to be put back in the reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Returns what was there, as it was found: of a class, the staticmethod or classmethod object itself."""
        found = vars(owner)[name] if isinstance(owner, type) and name in vars(owner) else getattr(owner, name)
        was_own = not isinstance(owner, type) or name in vars(owner)
        setattr(owner, name, value)

        def undo() -> None:
            # Whoever replaced it after us has it now, and calls ours, which passes everything on once it is uninstalled.
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
    """Whether the program has switched PyTorch's caches off (TORCHINDUCTOR_FORCE_DISABLE_CACHES)."""
    import torch

    return bool(getattr(torch.compiler.config, "force_disable_caches", False))


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
