"""PyTorch's proxy executor for models that call operators by name: a custom operator, some FFTs.

PyTorch makes one for its own runner alone, from the JSON file beside a library. So a library of ours, which has nothing
in it (eager/torch/executor/executor.c), is loaded by that runner, beside the model's file, and gives the executor away.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from ctypes import c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import _library
from ._errors import AoticacheError
from ._operators import require_torch

FILE = "proxy_executor.so"
#: Beside the library of a model, under the library's name; only models that call operators by name have one.
NODES = "model.json"


class Executor:
    """A proxy executor, and what keeps it alive."""

    def __init__(self, runner: Any, handle: int) -> None:
        self.runner, self.handle = runner, handle


def find_nodes(folder: str) -> str | None:
    """The file that says which operators a model calls; None: it calls none by name."""
    path = os.path.join(folder, NODES)
    return path if folder and os.path.exists(path) else None


def create(library: _library.Library, nodes: str, device: str, name: str) -> Executor:
    """
    nodes: the file. device: "cpu", "cuda:1". name: for messages.

    Raises AoticacheError, UNSUPPORTED: an operator is not registered in this process, PyTorch cannot call it, or this
    PyTorch has no such executor.
    """
    torch = require_torch()
    path = _find_library(library)
    with tempfile.TemporaryDirectory(prefix="aoticache-executor-") as folder:
        link = os.path.join(folder, "model.so")
        os.symlink(path, link)
        os.symlink(os.path.abspath(nodes), os.path.join(folder, NODES))
        try:
            if device.startswith("cpu"):
                runner = torch._C._aoti.AOTIModelContainerRunnerCpu(link, 1)
            else:
                runner = torch._C._aoti.AOTIModelContainerRunnerCuda(link, 1, device)
            runner.run([])
        except (RuntimeError, AttributeError, TypeError) as error:
            reason = str(error).strip().split("\n")[0].split(". ")[0]
            raise AoticacheError(
                f"{name}: the model calls operators by name, which PyTorch cannot do here: {reason}; import first what "
                "registers them",
                "UNSUPPORTED",
            ) from error
    handle = _load(path).aoticache_executor_taken()
    if not handle:
        raise AoticacheError(f"{name}: PyTorch {torch.__version__} gave no proxy executor", "UNSUPPORTED")
    return Executor(runner, int(handle))


@lru_cache(maxsize=1)
def _load(path: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(path)
    loaded.aoticache_executor_taken.restype = c_void_p
    loaded.aoticache_executor_taken.argtypes = []
    return loaded


def _find_library(library: _library.Library) -> str:
    beside = Path(library.path).resolve().parent
    # In a distribution's packages what only the library itself loads has a folder of its own.
    places = [library.home / "lib" / "aoticache", beside / "aoticache", beside / "aoticache" / "aoticache"]
    for place in places:
        if (place / FILE).is_file():
            return str((place / FILE).resolve())
    raise AoticacheError(f"{places[0] / FILE} is missing: reinstall libaoticache", "UNSUPPORTED")
