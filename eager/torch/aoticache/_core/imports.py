"""Calls a function when a module has been imported. Costs nothing if that never happens."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any


def after_import(name: str, then: Callable[[Any], object]) -> Finder | None:
    """Calls then(module) when the module has been imported; immediately if it already is. Returns the waiting finder."""
    if name in sys.modules:
        then(sys.modules[name])
        return None
    finder = Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder


class Finder(importlib.abc.MetaPathFinder):
    """Waits for one import, then removes itself."""

    def __init__(self, name: str, then: Callable[[Any], object]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Loader(importlib.abc.Loader):
    """Runs the module's own loader, then the call."""

    def __init__(self, loader: Any, then: Callable[[Any], object]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self._loader
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
