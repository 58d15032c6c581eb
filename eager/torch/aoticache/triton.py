"""Triton's kernels in the cache: `TRITON_CACHE_MANAGER=aoticache.triton:CacheManager`.

Triton writes about eight files per kernel and a file that lists them by absolute paths. Here all files of a kernel are one
record, found by Triton's own key (which contains the GPU's architecture), so that it can be used in another directory. One
process compiles a kernel while the others wait for it. The files that Triton reads are written into its own directory, where
Inductor also looks for them.

Libraries that Triton compiles for its launchers (`.so`) are records of one file each.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

import triton
from triton.runtime.cache import CacheManager as Base
from triton.runtime.cache import FileCacheManager

from ._core import caches, triton_keys
from ._core.errors import AoticacheError, warn_once
from ._core.records import TRITON, Answer, KindStats, Question, Records, file_with, write_file
from ._core.settings import current_settings

LONGEST_COMPILE = 1800  # seconds until a lease is released whose compile has neither ended nor failed
HEAD = b"aoticache-triton 1\n"
counts = KindStats()
triton_keys.install()


def pack(files: Mapping[str, bytes]) -> bytes:
    names = sorted(files)
    head = json.dumps([[name, len(files[name])] for name in names]).encode()
    return HEAD + head + b"\n" + b"".join(files[name] for name in names)


def unpack(packed: bytes) -> dict[str, bytes]:
    """Reverses pack(). Raises ValueError for other bytes."""
    if not packed.startswith(HEAD):
        raise ValueError("not a record of Triton")
    head, newline, rest = packed[len(HEAD) :].partition(b"\n")
    files: dict[str, bytes] = {}
    offset = 0
    for name, size in json.loads(head):
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", "..") or size < 0:
            raise ValueError(f"a record has a file named {name!r:.100}")
        files[name] = rest[offset : offset + size]
        offset += size
    if not newline or offset != len(rest):
        raise ValueError("a record of Triton does not have the length that it declares")
    return files


class CacheManager(Base):  # type: ignore[misc]
    """Triton creates one for each kernel."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self.files = FileCacheManager(key, override=override, dump=dump)
        self.is_plain = override or dump  # these directories are for users to edit or read
        self.flight: Flight | None = None

    def get_file(self, filename: str) -> str | None:
        path: str | None = self.files.get_file(filename)
        if path is not None or self.is_plain or not filename.endswith(".so"):
            return path
        found = lookup(self.question(filename))
        return self.place(found).get(filename) if found is not None else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        path: str = self.files.put(data, filename, binary=binary)
        if not self.is_plain and filename.endswith(".so"):
            store(self.question(filename), {filename: data if isinstance(data, bytes) else str(data).encode()})
        return path

    def get_group(self, filename: str) -> dict[str, str] | None:
        group: dict[str, str] | None = self.files.get_group(filename)
        # Before 3.8 Triton omits missing files from a group, for example all of a directory that was moved.
        if self.is_plain or (group is not None and filename in group):
            return group
        records = open_records()
        if records is None:
            return None
        question = self.question(filename)
        files = read_record(records, question)  # a hit takes no lease, and so starts no thread
        if files is None:
            self.flight = Flight(records, question)
            files = self.flight.begin()
        if files is None:
            count_miss(filename)
            return None  # Triton compiles, and calls put_group()
        count_hit(filename)
        placed = self.place(files)
        self.files.put_group(filename, placed)
        return placed

    def put_group(self, filename: str, group: Mapping[str, str]) -> Any:
        result = self.files.put_group(filename, group)
        if not self.is_plain:
            flight, self.flight = self.flight, None
            try:
                files = {name: read(path) for name, path in group.items()}
                if flight is not None:
                    flight.end(files)
                else:
                    store(self.question(filename), files)
            except (OSError, ValueError) as error:
                complain(error)
        return result

    def __del__(self) -> None:
        flight = getattr(self, "flight", None)
        if flight is not None:
            flight.abandon()

    def question(self, filename: str) -> Question:
        environment = {"framework": f"triton {triton.__version__}", "python": str(sys.implementation.cache_tag)}
        return Question(TRITON, {"name": filename.rpartition(".")[0], "key": self.key, "file": filename}, environment)

    def place(self, files: Mapping[str, bytes]) -> dict[str, str]:
        """
        Writes files into Triton's directory. (Triton's own put() creates and removes a directory for each file, which would take
        most of the time of a hit.)
        """
        directory = getattr(self.files, "cache_dir", None)
        if not isinstance(directory, str) or self.is_plain:
            return {name: self.files.put(content, name, binary=True) for name, content in files.items()}
        os.makedirs(directory, exist_ok=True)
        placed = {name: os.path.join(directory, name) for name in files}
        for name, path in placed.items():
            write_file(path, files[name])
        return placed


class Abandoned(Exception):
    """The compile failed; a waiting process may try."""


class Flight:
    """The lease of one kernel, between the lookup and the put. A thread holds it, because Triton does these in two separate
    calls."""

    def __init__(self, records: Records, question: Question) -> None:
        self.records, self.question = records, question
        self.files: dict[str, bytes] | None = None
        self.is_decided, self.is_answered = threading.Event(), threading.Event()
        self.begun = 0
        self.thread = threading.Thread(target=self._run, name="aoticache-triton", daemon=True)
        _flights.add(self)

    def begin(self) -> dict[str, bytes] | None:
        """Returns the files; None: the caller must compile."""
        self.thread.start()
        self.is_decided.wait()
        return self.files

    def end(self, files: Mapping[str, bytes]) -> None:
        self.made = dict(files)
        self.is_answered.set()
        self.thread.join()

    def abandon(self) -> None:
        self.is_answered.set()

    made: dict[str, bytes] | None = None

    def _run(self) -> None:
        try:
            found, _ = self.records.get_or_make(self.question, self._make)
            if found is not None:
                self.files = unpack(found.content)
        except Abandoned:
            pass
        except (AoticacheError, OSError, ValueError) as error:
            complain(error)
        finally:
            self.is_decided.set()

    def _make(self) -> Answer:
        self.begun = time.monotonic_ns()
        self.is_decided.set()
        self.is_answered.wait(LONGEST_COMPILE)
        if self.made is None:
            raise Abandoned
        spent = time.monotonic_ns() - self.begun
        self.context = file_with(pack(self.made))  # removes the file when this object is deleted
        answer = Answer(self.context.__enter__(), f"triton {triton.__version__}", compile_ns=spent)
        weakref.finalize(self, self.context.__exit__, None, None, None)
        counts.stored += 1
        return answer


_flights: weakref.WeakSet[Flight] = weakref.WeakSet()


@atexit.register
def _abandon_all() -> None:
    for flight in list(_flights):
        flight.abandon()


def open_records() -> Records | None:
    try:
        return Records(caches.open_cache(current_settings().cache_dir))
    except AoticacheError as error:
        complain(error)
        return None


def read_record(records: Records, question: Question) -> dict[str, bytes] | None:
    """Returns the files of a record; None: none is usable."""
    try:
        found = records.lookup(question)
        return unpack(found.content) if found is not None else None
    except (AoticacheError, OSError, ValueError) as error:
        complain(error)
        return None


def lookup(question: Question) -> dict[str, bytes] | None:
    records = open_records()
    if records is None:
        return None
    files = read_record(records, question)
    if files is None:
        count_miss(question.arguments["name"])
    else:
        count_hit(question.arguments["name"])
    return files


def store(question: Question, files: Mapping[str, bytes]) -> None:
    records = open_records()
    if records is None:
        return
    try:
        with file_with(pack(files)) as path:
            records.put(question, Answer(path, f"triton {triton.__version__}", compile_ns=1))
        counts.stored += 1
    except (AoticacheError, OSError) as error:
        complain(error)


def count_hit(name: str) -> None:
    counts.hits += 1
    caches.log.debug("%s: hit: %s", TRITON, name)


def count_miss(name: str) -> None:
    counts.misses += 1
    caches.log.info("%s: miss: %s: the cache has no record", TRITON, name)


def complain(error: BaseException) -> None:
    counts.refused += 1
    warn_once("triton", f"aoticache: the cache does not serve Triton ({error}); Triton's own directory does")


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
