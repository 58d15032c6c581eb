"""Remembers PyTorch's digest of its own sources, which is part of the keys of its caches.

PyTorch finds, reads and hashes its 2,300 modules in every process that compiles. Here the digest is a record with two questions.
One contains the contents of the modules, and is valid on every machine. The other contains their names, sizes and times, among
them the time of the last inode change of each file, which no program can set. It is valid only on a machine that has read the
modules once; after that only the files' metadata is read. A tree that was copied, patched or unpacked has other times, so it is
read again.

Replaced here: torch._inductor.codecache.torch_key. PyTorch's own function gets the digest by its set(), as in PyTorch's compile
workers.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
import time
from contextlib import suppress
from typing import Any

from .._core.records import SOURCES, Answer, Question, file_with
from .state import State, caches_are_disabled

SUFFIXES = tuple(importlib.machinery.all_suffixes())
#: Files that PyTorch reads in addition to modules, below torch/_inductor.
MORE = ("codegen/aoti_runtime/interface.cpp", "codegen/aoti_runtime/streams.h", "script.ld")
DIGEST_BYTES = 32
#: Longer than the tick of any file system's clock.
TICK_NS = 2_000_000_000


class Sources:
    """Replaces codecache.torch_key. The first call looks up the digest; PyTorch's function does the rest."""

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
        """Sets PyTorch's digest to the stored one, or stores the one that PyTorch computes."""
        import torch

        directory = os.path.dirname(torch.__file__)
        environment = self.state.environment()
        files = modules(directory)
        seen = Question(SOURCES, {"seen": names_and_times(files)}, environment)
        known = None if changed_just_now(files) else self.state.records.lookup(seen)
        if known is not None and len(known.content) == 2 * DIGEST_BYTES:
            self.state.count_hit(SOURCES, "PyTorch's digest of its sources")
            found, contents = known.content[:DIGEST_BYTES], known.content[DIGEST_BYTES:]
            self.state.used.add(Question(SOURCES, {"contents": contents.hex()}, environment))
            self.give(found)
            return
        contents = contents_of(directory, files)
        question = Question(SOURCES, {"contents": contents.hex()}, environment)
        held = self.state.records.lookup(question)
        is_held = held is not None and len(held.content) == DIGEST_BYTES
        count = self.state.count_hit if is_held else self.state.count_miss
        count(SOURCES, "PyTorch's digest of its sources")
        if held is not None and is_held:
            self.give(held.content)
        found = self.own()
        if not is_held:
            self.put(question, found)
        if not changed_just_now(files) and files == modules(directory):
            self.put(seen, found + contents)
        self.state.used.add(question)

    def give(self, found: bytes) -> None:
        with suppress(RuntimeError, AssertionError):  # this process had computed it already; until 2.12 the second exception
            self.own.set(found)

    def put(self, question: Question, content: bytes) -> None:
        if self.state.records.cache.read_only:
            return
        with file_with(content) as path:
            self.state.records.put(question, Answer(path, self.state.producer, compile_ns=1))
        self.state.count(SOURCES, "stored")


#: A module: its path below PyTorch's directory, its size, times of last content and inode change (nanoseconds).
Module = tuple[str, int, int, int]


def changed_just_now(files: list[Module]) -> bool:
    """Returns whether a file could still change without a change of its times, within one tick of their clock."""
    return max(changed for _, _, _, changed in files) > time.time_ns() - TICK_NS


def names_and_times(files: list[Module]) -> str:
    return hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()


def contents_of(directory: str, files: list[Module]) -> bytes:
    hasher = hashlib.sha256()
    for name, _, _, _ in files:
        with open(os.path.join(directory, name), "rb") as file:
            content = hashlib.sha256(file.read()).digest()
        hasher.update(name.encode("utf-8", "surrogateescape") + b"\0" + content)
    return hasher.digest()


def modules(directory: str) -> list[Module]:
    """Returns the modules and data files that PyTorch's digest covers."""
    found, directories = [], [""]
    for name in (os.path.join("_inductor", more) for more in MORE):
        with suppress(FileNotFoundError):
            found.append(_module(name, os.stat(os.path.join(directory, name))))
    while directories:
        below = directories.pop()
        files, inside = [], []
        with os.scandir(os.path.join(directory, below)) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIXES):
                    files.append(entry)
                elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    inside.append(os.path.join(below, entry.name))
        if below and not any(entry.name.startswith("__init__.") for entry in files):
            continue  # not a package, so PyTorch's digest does not cover it
        found += [_module(os.path.join(below, entry.name), entry.stat()) for entry in files]
        directories += inside
    return sorted(found)


def _module(name: str, status: os.stat_result) -> Module:
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns
