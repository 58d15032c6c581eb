"""PyTorch's digest of its own sources, which is part of the keys of its caches, remembered.

PyTorch finds, reads and hashes its 2,300 modules in every process that compiles. Here the digest is a record with two
questions. One has the contents of the modules, and holds on every machine. The other has their names, sizes and times, those
of the last change of each file among them, which no program can set: it holds where the modules were read once, and only a
look at the files is needed. A tree that was copied, patched or unpacked has other times, so that it is read again.

Replaced here: torch._inductor.codecache.torch_key. PyTorch's own function gets the digest by its set(), as in PyTorch's
compile workers.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
import time
from contextlib import suppress
from typing import Any

from ._compile_state import State, caches_are_disabled
from ._records import SOURCES, Answer, Question, file_with

SUFFIXES = tuple(importlib.machinery.all_suffixes())
#: What PyTorch reads beside modules, below torch/_inductor.
MORE = ("codegen/aoti_runtime/interface.cpp", "codegen/aoti_runtime/streams.h", "script.ld")
DIGEST_BYTES = 32
#: Longer than the tick of any file system's clock.
TICK_NS = 2_000_000_000


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
        import torch

        folder = os.path.dirname(torch.__file__)
        environment = self.state.environment()
        files = modules(folder)
        seen = Question(SOURCES, {"seen": names_and_times(files)}, environment)
        known = None if changed_just_now(files) else self.state.records.lookup(seen)
        if known is not None and len(known.content) == 2 * DIGEST_BYTES:
            self.state.count(SOURCES, "hits")
            found, contents = known.content[:DIGEST_BYTES], known.content[DIGEST_BYTES:]
            self.state.used.add(Question(SOURCES, {"contents": contents.hex()}, environment))
            self.give(found)
            return
        contents = contents_of(folder, files)
        question = Question(SOURCES, {"contents": contents.hex()}, environment)
        held = self.state.records.lookup(question)
        is_held = held is not None and len(held.content) == DIGEST_BYTES
        self.state.count(SOURCES, "hits" if is_held else "misses")
        if held is not None and is_held:
            self.give(held.content)
        found = self.own()
        if not is_held:
            self.put(question, found)
        if not changed_just_now(files) and files == modules(folder):
            self.put(seen, found + contents)
        self.state.used.add(question)

    def give(self, found: bytes) -> None:
        with suppress(RuntimeError, AssertionError):  # this process had made it already; until 2.12 the second
            self.own.set(found)

    def put(self, question: Question, content: bytes) -> None:
        if self.state.records.cache.read_only:
            return
        with file_with(content) as path:
            self.state.records.put(question, Answer(path, self.state.producer, compile_ns=1))
        self.state.count(SOURCES, "stored")


#: A module: its path below PyTorch's folder, its bytes, nanoseconds of its content's and of its own last change.
Module = tuple[str, int, int, int]


def changed_just_now(files: list[Module]) -> bool:
    """Whether a file may change once more within the tick of the clock that its times have."""
    return max(changed for _, _, _, changed in files) > time.time_ns() - TICK_NS


def names_and_times(files: list[Module]) -> str:
    return hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()


def contents_of(folder: str, files: list[Module]) -> bytes:
    hasher = hashlib.sha256()
    for name, _, _, _ in files:
        with open(os.path.join(folder, name), "rb") as file:
            content = hashlib.sha256(file.read()).digest()
        hasher.update(name.encode("utf-8", "surrogateescape") + b"\0" + content)
    return hasher.digest()


def modules(folder: str) -> list[Module]:
    """The modules and data files that PyTorch's digest is made of."""
    found, folders = [], [""]
    for name in (os.path.join("_inductor", more) for more in MORE):
        with suppress(FileNotFoundError):
            found.append(_module(name, os.stat(os.path.join(folder, name))))
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
        found += [_module(os.path.join(below, entry.name), entry.stat()) for entry in files]
        folders += inside
    return sorted(found)


def _module(name: str, status: os.stat_result) -> Module:
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns
