"""PyTorch's digest of its own sources, which is part of the keys of its caches, remembered.

PyTorch reads and hashes its 2,300 modules in every process that compiles. The digest is the same as long as the files
are: it is a record here, found by what was installed.

Replaced here: torch._inductor.codecache.torch_key. PyTorch's own function gets the digest by its set(), as in PyTorch's
compile workers.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
from contextlib import suppress
from typing import Any

from ._compile_state import State, caches_are_disabled
from ._records import SOURCES, Answer, Question, file_with

SUFFIXES = tuple(importlib.machinery.all_suffixes())
#: What PyTorch reads beside modules, below torch/_inductor.
MORE = ("codegen/aoti_runtime/interface.cpp", "codegen/aoti_runtime/streams.h", "script.ld")
DIGEST_BYTES = 32


class Sources:
    """What stands in the place of codecache.torch_key. The first call looks for the digest; the rest is PyTorch's."""

    def __init__(self, state: State) -> None:
        from torch._inductor import codecache

        self.state = state
        self.own: Any = codecache.torch_key
        self._is_found = False
        state.patches.replace(codecache, "torch_key", functools.wraps(self.own)(lambda: self.key()))

    def key(self) -> bytes:
        if not self._is_found and not caches_are_disabled():
            self._is_found = True
            with self.state.guarded(SOURCES):
                self.find()
        found: bytes = self.own()
        return found

    def find(self) -> None:
        """Gives PyTorch the digest that is stored, or stores the one that PyTorch makes."""
        question = question_of(self.state)
        if question is None:
            return
        found = self.state.records.lookup(question)
        if found is not None and len(found.content) == DIGEST_BYTES:
            self.state.count(SOURCES, "hits")
            self.state.used.add(question)
            with suppress(RuntimeError, AssertionError):  # this process had made it already; until 2.12 the second
                self.own.set(found.content)
            return
        self.state.count(SOURCES, "misses")
        with file_with(self.own()) as path:
            self.state.records.put(question, Answer(path, self.state.producer, compile_ns=1))
        self.state.count(SOURCES, "stored")
        self.state.used.add(question)


def question_of(state: State) -> Question | None:
    import torch

    installed = installed_files(os.path.dirname(torch.__file__), str(torch.__version__))
    return None if installed is None else Question(SOURCES, {"installed": installed}, state.environment())


def installed_files(folder: str, version: str) -> str | None:
    """
    A digest of what an installer says that it installed (RECORD, with the digest of each file), and of names and sizes of
    the modules that are there. None: there is no RECORD, or a module was changed after it was written.
    """
    try:
        with open(record_of(folder, version), "rb") as file:
            installed = changed_ns(os.fstat(file.fileno()))
            hasher = hashlib.sha256(file.read())
        found, changed = modules(folder)
    except OSError:
        return None
    if changed > installed:
        return None
    hasher.update("".join(sorted(found)).encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


def record_of(folder: str, version: str) -> str:
    """What the installer wrote down. The wheels of the package index leave out the `+cu130` that the version ends with."""
    names = (f"torch-{one}.dist-info" for one in (version, version.partition("+")[0]))
    paths = [os.path.join(os.path.dirname(folder), name, "RECORD") for name in names]
    return next(filter(os.path.isfile, paths), paths[0])


def changed_ns(status: os.stat_result) -> int:
    """When a file was changed or put there. An older file that takes its place keeps its own time, but not that of the change."""
    return max(status.st_mtime_ns, status.st_ctime_ns)


def modules(folder: str) -> tuple[list[str], int]:
    """A line for each module and data file that PyTorch's digest is made of, and when the last of them was changed."""
    found, changed, folders = [], 0, [""]
    more = [os.path.join("_inductor", name) for name in MORE]
    for name in more:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            status = os.stat(path)
            found.append(f"{name} {status.st_size}\n")
            changed = max(changed, changed_ns(status))
    while folders:
        below = folders.pop()
        files, inside = [], []
        with os.scandir(os.path.join(folder, below)) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIXES):
                    files.append(entry)
                elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    inside.append(os.path.join(below, entry.name))
        if below and not any(entry.name.startswith("__init__.") for entry in files):
            continue  # no package, so that nothing is imported from it by PyTorch's digest
        for entry in files:
            status = entry.stat()
            found.append(f"{os.path.join(below, entry.name)} {status.st_size}\n")
            changed = max(changed, changed_ns(status))
        folders += inside
    return found, changed
