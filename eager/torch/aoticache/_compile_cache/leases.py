"""Leases for graphs: if several processes need the same graph, one compiles it and the others wait for its record.

A process that misses a key takes a lease on it: a locked file next to those of the C library (docs/formats/store.md, *Locks*). The
lease is released when the record is stored, when the compile fails, and when it turns out that there will be no record; the
file is then unlinked. A waiting process notices this, looks for the record again, and compiles by itself if there is none: no
process waits twice for the same miss. If the file still exists when its lock is free, the holder died, and the next process
takes the lease.

A compile may do anything, including communication with other processes. Therefore
- a process that holds a lease does not wait for another lease, so cycles are impossible,
- ranks of a distributed program neither wait for nor hold leases,
- a wait has a limit, and a process whose wait timed out does not wait again.

Replaced: callback.CompilationCallbackHandler.install_callbacks of torch._dynamo, which shows when a compile begins and ends;
codecache.FxGraphCache.prepare_key of torch._inductor, which shows that a graph cannot be cached.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .._core import caches
from .._core.errors import AoticacheError
from .._core.records import AUTOGRAD, Question
from .state import State

LIMIT_VARIABLE = "AOTICACHE_GRAPH_WAIT"
LIMIT = 120.0  # seconds that a process waits for another process's compile of a graph
LONGEST_PAUSE = 0.02
#: Limits of the wait for a backward pass, in seconds; the wait is a quarter of the compile time of the forward pass.
LEAST_GRACE, MOST_GRACE = 2.0, 10.0
#: Variables in which launchers give the number of processes.
LAUNCHERS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

_files: set[int] = set()  # descriptors of leases, which a forked child must not keep
_files_lock = threading.Lock()
_flights: weakref.WeakSet[Flights] = weakref.WeakSet()


class Lease:
    """A locked file."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self.begun = time.monotonic()

    def release(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)  # while it is locked: waiting processes see that the lease is over
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        close_file(self.descriptor)


def open_file(path: str) -> int:
    directory = os.path.dirname(path)
    with suppress(FileExistsError):
        os.mkdir(directory, os.stat(os.path.dirname(directory)).st_mode & 0o777)
    status = os.stat(directory)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _files_lock:
        descriptor = os.open(path, flags, status.st_mode & 0o666)
        _files.add(descriptor)
    if os.geteuid() == 0:
        with suppress(OSError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
    return descriptor


def close_file(descriptor: int) -> None:
    with _files_lock:
        if descriptor in _files:
            _files.remove(descriptor)
            with suppress(OSError):
                os.close(descriptor)


def is_locked_now(descriptor: int) -> bool:
    """Takes the lock if it is free. Returns whether it was taken."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take(path: str, seconds: float) -> tuple[Lease | None, bool]:
    """
    Returns the lease, if it is free or its holder dies meanwhile. None: another process has it, or has released it. The second
    value is True if the other process still has it after `seconds`. Raises OSError.
    """
    descriptor = open_file(path)
    lease = None
    try:
        end, pause = time.monotonic() + seconds, 0.001
        while True:
            is_ours = is_locked_now(descriptor)
            if os.fstat(descriptor).st_nlink == 0:
                return None, False
            if is_ours:
                lease = Lease(path, descriptor)
                return lease, False
            if time.monotonic() >= end:
                return None, True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    finally:
        if lease is None:
            close_file(descriptor)


class Flights:
    """The leases of this process."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.limit = limit_of(os.environ.get(LIMIT_VARIABLE, ""))
        self._held: dict[tuple[str, str], Lease] = {}
        self._waiting: dict[tuple[str, str], threading.Timer] = {}  # leases that wait for the compile of a backward pass
        self._lock = threading.RLock()
        self._thread = threading.local()
        _flights.add(self)

    # ---- one miss ----

    def begin(self, kind: str, key: str, question: Callable[[str], Question]) -> bool:
        """Takes the lease after a miss, before a compile. Returns whether to look for the record again."""
        scopes = self._scopes()
        if not scopes or (kind, key) in self._held or not self._is_wanted(kind):
            return False
        seconds = 0.0 if self._held else self.limit
        try:
            lease, is_in_vain = take(self._path(question(key)), seconds)
        except (AoticacheError, OSError, ValueError) as error:
            caches.log.info("graphs are compiled by each process: leases are not available here: %s", error)
            self.limit = 0
            return False
        if lease is not None:
            with self._lock:
                self._held[kind, key] = lease
            scopes[-1].append((kind, key))
        elif is_in_vain and seconds:
            caches.log.info("another process has compiled a graph for more than %g s; processes no longer wait for it", seconds)
            self.limit = 0
        return lease is not None or not is_in_vain

    def end(self, kind: str, key: str) -> None:
        """Releases a lease: the record is stored, was found, or will not be stored."""
        with self._lock:
            lease = self._held.pop((kind, key), None)
            timer = self._waiting.pop((kind, key), None)
        if timer is not None:
            timer.cancel()
        if lease is not None:
            lease.release()

    def end_all(self) -> None:
        for kind, key in list(self._held):
            self.end(kind, key)

    def _is_wanted(self, kind: str) -> bool:
        is_stored = not self.state.records.cache.read_only and not self.state.counts[kind].refused
        return self.limit > 0 and is_stored and not is_distributed()

    def _path(self, question: Question) -> str:
        pairs = [sorted(one.items()) for one in (question.arguments, question.environment)]
        name = hashlib.sha256(repr(("aoticache-flight", question.kind, *pairs)).encode()).hexdigest()
        return os.path.join(self.state.records.cache.directory, "leases", name)

    # ---- one compile ----

    def _scopes(self) -> list[list[tuple[str, str]]]:
        """Returns the running compiles of this thread, each with the keys of its leases."""
        if not hasattr(self._thread, "scopes"):
            self._thread.scopes = []
        scopes: list[list[tuple[str, str]]] = self._thread.scopes
        return scopes

    @contextmanager
    def compiling(self, is_backward: bool) -> Iterator[None]:
        scopes = self._scopes()
        scopes.append([])
        awaited = self._stop_clocks() if is_backward else []
        is_done = False
        try:
            yield
            is_done = True
        finally:
            for kind, key in scopes.pop():
                if is_done and kind == AUTOGRAD:
                    awaited.append((kind, key))
                else:
                    self.end(kind, key)
            for kind, key in awaited:
                self._start_clock(kind, key)

    def give_up(self) -> None:
        """Releases leases: what this thread compiles cannot be cached, nor can the compiles that contain it."""
        for scope in self._scopes():
            for kind, key in scope:
                self.end(kind, key)

    def _start_clock(self, kind: str, key: str) -> None:
        """
        Ends the lease after a grace period, because PyTorch stores AOTAutograd's result only when the backward pass has been
        compiled, which may never happen.
        """
        with self._lock:
            lease = self._held.get((kind, key))
            if lease is None:
                return
            grace = min(max((time.monotonic() - lease.begun) / 4, LEAST_GRACE), MOST_GRACE)
            timer = self._waiting[kind, key] = threading.Timer(grace, self.end, (kind, key))
            timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the interpreter is ending, or there are too many threads
            self.end(kind, key)

    def _stop_clocks(self) -> list[tuple[str, str]]:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for timer in waiting.values():
            timer.cancel()
        return list(waiting)

    def after_fork(self) -> None:
        """Forgets the parent's leases in a child."""
        self._lock = threading.RLock()
        self._held, self._waiting = {}, {}

    # ---- in PyTorch ----

    def install(self) -> None:
        from torch._dynamo.callback import CompilationCallbackHandler
        from torch._inductor.codecache import FxGraphCache

        flights = self
        install_callbacks = CompilationCallbackHandler.install_callbacks
        prepare_key = FxGraphCache.prepare_key

        @contextmanager
        def with_scope(handler: Any, trigger: Any, compile_id: str) -> Iterator[None]:
            with install_callbacks(handler, trigger, compile_id):
                if trigger.name not in ("DYNAMO", "LAZY_BACKWARD"):
                    yield
                    return
                with flights.compiling(trigger.name == "LAZY_BACKWARD"):
                    yield

        def prepare(*arguments: Any, **options: Any) -> Any:
            found = prepare_key(*arguments, **options)
            if found[0] is None:
                flights.give_up()
            return found

        self.state.patches.replace(CompilationCallbackHandler, "install_callbacks", with_scope)
        self.state.patches.replace(FxGraphCache, "prepare_key", staticmethod(prepare))
        self.state.patches.on_restore(self.end_all)


def limit_of(text: str) -> float:
    """Parses a number of seconds; returns LIMIT for text that is not a number."""
    with suppress(ValueError):
        return max(float(text), 0.0)
    return LIMIT


def is_distributed() -> bool:
    """Returns whether this is one of several processes that may wait for each other inside a compile."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_world_size() != 1)
    return any(os.environ.get(name, "1") not in ("", "1") for name in LAUNCHERS)


@atexit.register
def _end_all() -> None:
    for flights in list(_flights):
        flights.end_all()


def _before_fork() -> None:
    _files_lock.acquire()


def _after_fork_in_parent() -> None:
    _files_lock.release()


def _after_fork_in_child() -> None:
    for descriptor in _files:
        with suppress(OSError):
            os.close(descriptor)
    _files.clear()
    _files_lock.release()
    for flights in list(_flights):
        flights.after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
