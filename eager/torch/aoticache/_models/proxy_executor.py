"""PyTorch's proxy executor for models that call operators by name: a custom operator, some FFTs.

PyTorch creates one only for its own runner, from the JSON file next to a library. Therefore that runner loads a library of ours
next to the model's file. The library is empty (eager/torch/executor/executor.c) except that it hands the executor to us.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from ctypes import c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._core import capi
from .._core.errors import AoticacheError
from .._core.pytorch import require_torch

FILE = "proxy_executor.so"
#: The file next to a model's library, with the library's name; only models that call operators by name have one.
NODES = "model.json"


class Executor:
    """A proxy executor, and the runner that keeps it alive."""

    def __init__(self, runner: Any, handle: int) -> None:
        self.runner, self.handle = runner, handle


def find_nodes(directory: str) -> str | None:
    """Returns the file that lists the operators that a model calls by name; None: it calls none."""
    path = os.path.join(directory, NODES)
    return path if directory and os.path.exists(path) else None


def create(library: capi.Library, nodes: str, device: str, name: str) -> Executor:
    """
    Creates a proxy executor. nodes: the file. device: "cpu", "cuda:1". name: for messages.

    Raises AoticacheError, UNSUPPORTED: an operator is not registered in this process, PyTorch cannot call it, or this
    PyTorch has no such executor.
    """
    torch = require_torch()
    path = _find_library(library)
    with tempfile.TemporaryDirectory(prefix="aoticache-executor-") as directory:
        link = os.path.join(directory, "model.so")
        os.symlink(path, link)
        os.symlink(os.path.abspath(nodes), os.path.join(directory, NODES))
        try:
            if device.startswith("cpu"):
                runner = torch._C._aoti.AOTIModelContainerRunnerCpu(link, 1)
            else:
                runner = torch._C._aoti.AOTIModelContainerRunnerCuda(link, 1, device)
            runner.run([])
        except (RuntimeError, AttributeError, TypeError) as error:
            reason = str(error).strip().split("\n")[0].split(". ")[0]
            raise AoticacheError(
                f"{name}: the model calls operators by name, which PyTorch cannot do here: {reason}; first import the "
                "module that registers them",
                "UNSUPPORTED",
            ) from error
    handle = _load(path).aoticache_executor_taken()
    if not handle:
        raise AoticacheError(f"{name}: PyTorch {torch.__version__} returned no proxy executor", "UNSUPPORTED")
    return Executor(runner, int(handle))


@lru_cache(maxsize=1)
def _load(path: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(path)
    loaded.aoticache_executor_taken.restype = c_void_p
    loaded.aoticache_executor_taken.argtypes = []
    return loaded


def _find_library(library: capi.Library) -> str:
    beside = Path(library.path).resolve().parent
    # In a distribution's packages, files that only the library loads are in a separate directory.
    places = [library.home / "lib" / "aoticache", beside / "aoticache", beside / "aoticache" / "aoticache"]
    for place in places:
        if (place / FILE).is_file():
            return str((place / FILE).resolve())
    raise AoticacheError(f"{places[0] / FILE} is missing: reinstall libaoticache", "UNSUPPORTED")
