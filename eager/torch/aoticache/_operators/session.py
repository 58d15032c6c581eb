"""Operators on kernel holders: what is enabled in this process, and everything needed for it.

A session is a cache, a worker that compiles for it, and groups: operators with the same policy for misses share background
threads (an `aoticache_context`) and a binding. The first operator creates all of it. It stays until the process ends, or until a
call with other settings replaces it while nothing is enabled.

Locks: `_lock` orders changes of the session. It is never held while something compiles, and calls of operators never take it. It
is held across a fork, so that a child finds no operator half enabled.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable
from ctypes import byref, c_int, c_uint32, c_void_p, pointer, sizeof
from dataclasses import dataclass, field
from typing import Any

from .._core import caches, capi
from .._core.errors import AoticacheError, OperatorRefusedError, SettingsError, warn_once
from .._core.pytorch import require_torch
from .._core.settings import DYNAMIC, MODES, Policy, Settings, current_settings, set_current_settings
from . import bridges, progress_bar
from .catalogue import DISPATCH_KEYS, Choice, find_overload

LEAST_TORCH = (2, 10, 0)
WORKER_REVISION = "3"  # revision of the worker's code; part of its keys (eager/compile/eager_face.h)
WAIT_SLICE_MS = 50  # so that Ctrl-C is noticed and a bar moves
FORK_WAIT_SECONDS = 5
END_SECONDS = 5  # compile threads usually end within 0.1 s, or when they have stored their output
COUNTS = tuple(str(one[0]) for one in capi.HolderCounts._fields_)
#: Counts that are summed up over operators that were disabled; the others describe the current state.
SUMS = (
    *("hits", "hits_dynamic", "loads", "misses", "compiles", "compile_failures", "fallbacks", "calls_lost", "queued"),
    *("dropped", "gained_ns", "dynamic_refused"),
)


@dataclass
class Group:
    """Operators with the same policy for misses."""

    context: c_void_p
    binding: c_void_p


@dataclass
class Active:
    """An operator that is enabled."""

    name: str
    policy: Policy
    handle: c_void_p


@dataclass
class Outcome:
    """What happened to the operators of one call."""

    enabled: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    problem: str = ""  # why nothing is enabled


class Session:
    """Everything that belongs to one cache directory and one set of settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.library = capi.load()
        if not self.library.has_binding():
            raise AoticacheError(f"{self.library.path} is an older version, without PyTorch", "UNSUPPORTED")
        self.cache = caches.open_cache(settings.cache_dir)
        self.torch_version = str(require_torch().__version__)
        self.hook: c_void_p | None = None
        self.hook_problem = ""
        self.bridge: bridges.Bridge | None = None
        self.bridge_problem = ""  # why there is none
        self.bridge_thread: threading.Thread | None = None  # compiles it in the background
        self.groups: dict[tuple[str, int], Group] = {}
        self.active: dict[str, Active] = {}
        self.pending: dict[str, Policy] = {}
        self.retired = _retired
        self.users = 0  # backends of plug mode (operators are not counted)

    # ---- the worker ----

    def get_hook(self) -> c_void_p | None:
        """Returns the worker of this Python; None, with one warning, if it is not available."""
        if self.hook is None and not self.hook_problem:
            try:
                self.hook = self._create_hook()
            except AoticacheError as error:
                self.hook_problem = str(error)
                warn_once(
                    "worker",
                    f"aoticache: no compile worker ({error}): kernels that the cache has are used, PyTorch's own ones "
                    "answer for the rest",
                )
        return self.hook

    def _create_hook(self) -> c_void_p:
        hook = self._hook_with(None)
        if self._hook_version(hook) == public_version(self.torch_version):
            return hook
        # This process finds PyTorch through its sys.path; a new Python would not.
        found = self._hook_version(hook)
        self.library.get("aoticache_hook_free", hook)
        directory = os.path.dirname(os.path.dirname(os.path.abspath(require_torch().__file__)))
        path = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))
        hook = self._hook_with([*(f"{k}={v}" for k, v in os.environ.items() if k != "PYTHONPATH"), f"PYTHONPATH={path}"])
        if self._hook_version(hook) == public_version(self.torch_version):
            return hook
        self.library.get("aoticache_hook_free", hook)
        raise AoticacheError(
            f"{sys.executable} starts with PyTorch {found}, but this process has {self.torch_version}", "UNSUPPORTED"
        )

    def _hook_with(self, environment: list[str] | None) -> c_void_p:
        settings, hook = self.settings, c_void_p()
        options = capi.HookOptions(
            size=sizeof(capi.HookOptions),
            program=capi.encode(worker_python()),
            cpu_features=capi.encode(settings.cpu_features),
            timeout_seconds=settings.compile_timeout,
            logger=caches.logger(),
            memory_limit_bytes=settings.memory_limit,
            workers=settings.workers,
        )
        if environment is not None:
            options.environment = capi.strings(environment)
        self.library.call("aoticache_hook_create_worker", byref(options), byref(hook))
        return hook

    def environment(self) -> dict[str, str]:
        """Returns the worker's part of its keys, for a host that requests its kernels without a worker."""
        version = public_version(self.torch_version)
        return {"framework": "pytorch", "framework_version": version, "worker": WORKER_REVISION}

    def _hook_version(self, hook: c_void_p) -> str:
        text: bytes = self.library.get("aoticache_hook_get_info", hook).producer
        return text.decode().removeprefix("pytorch ")

    # ---- the bridge ----

    def find_bridge(self, mode: str) -> bool:
        """
        Gets the bridge from the cache. If it is not there, begins to compile it in the background, or gives it up, depending on
        the mode. Called with the lock. Returns False if get_bridge() must be called, which is done without the lock.
        """
        if self.bridge is not None or (self.bridge_thread is not None and mode != "wait"):
            return True
        try:
            self.bridge, self.bridge_problem = bridges.prepare(self.cache, self.settings, compile=False), ""
            return True
        except AoticacheError as error:
            problem = error
        if mode == "never":
            self.give_up_bridge(problem, mode)
            return True
        # Without a compiler this fails immediately, with the reason.
        if mode == "wait" or problem.status != "NOT_FOUND" or bridges.find_compiler(self.settings) is None:
            return False
        self.start_bridge_thread()
        return True

    def start_bridge_thread(self) -> None:
        self.bridge_thread = threading.Thread(target=self.compile_bridge, name="aoticache-bridge", daemon=True)
        self.bridge_thread.start()

    def compile_bridge(self) -> None:
        """
        Compiles the bridge, unless another thread or process is doing so already, then enables the operators that wait for it.
        Called without the lock.
        """
        self.use_bridge(*self.prepare_bridge())

    def prepare_bridge(self) -> tuple[bridges.Bridge | None, AoticacheError | None]:
        try:
            return bridges.prepare(self.cache, self.settings, compile=True), None
        except AoticacheError as error:
            return None, error

    def use_bridge(self, bridge: bridges.Bridge | None, problem: AoticacheError | None) -> None:
        with _lock:
            if threading.current_thread() is self.bridge_thread:
                self.bridge_thread = None
            if _ending:
                return
            if self.bridge is None and bridge is not None:
                self.bridge, self.bridge_problem = bridge, ""
            if self.bridge is None and self.bridge_thread is None and problem is not None:
                self.give_up_bridge(problem, "wait")
            elif self.bridge is not None and _session is self:
                self.enable_pending()

    def get_bridge(self) -> None:
        """
        Runs compile_bridge() with the compile in a thread, so that Ctrl-C ends the wait but not the compile: the cache then still
        gets the bridge. Called without the lock.
        """
        found: list[tuple[bridges.Bridge | None, AoticacheError | None]] = []
        thread = threading.Thread(
            target=lambda: found.append(self.prepare_bridge()), name="aoticache-bridge-wait", daemon=True
        )
        thread.start()
        thread.join()
        # In this thread, so that a warning names the caller's line. None: the thread failed; the caller sees the exception.
        self.use_bridge(*(found[0] if found else self.prepare_bridge()))

    def enable_pending(self) -> None:
        waiting, self.pending = self.pending, {}
        refused: dict[str, str] = {}
        for name, policy in waiting.items():
            try:
                self.enable_now(name, policy)
            except AoticacheError as error:
                if self.bridge is None:  # it cannot be opened
                    self.give_up_bridge(error, policy.mode)
                    return
                refused[name] = str(error)
        warn_of_refused(refused)

    def give_up_bridge(self, problem: AoticacheError, mode: str) -> None:
        """Notes the reason, and warns once that nothing can be enabled. The next enable() looks for the bridge again."""
        self.pending.clear()
        first = str(problem).strip().splitlines()[0][:400] if str(problem).strip() else problem.status
        remedy = self.remedy(problem, mode)
        self.bridge_problem = f"the C++ bridge to PyTorch is not available: {first}{'; ' if remedy else ''}{remedy}"
        warn_once("bridge", f"aoticache: nothing is enabled, PyTorch's own kernels answer: {self.bridge_problem}")

    def remedy(self, problem: AoticacheError, mode: str) -> str:
        if problem.status == "LOAD_FAILED":
            return ""
        elsewhere = "fill the cache on a machine that has one (aoticache export, aoticache import)"
        if bridges.find_compiler(self.settings) is None:
            return f"install a C++ compiler, or {elsewhere}"
        if problem.status == "COMPILE_FAILED":
            return f"set cxx or $CXX to a C++20 compiler, or {elsewhere}"
        return 'call enable() with another mode than "never" once' if mode == "never" else ""

    # ---- groups ----

    def group(self, policy: Policy) -> Group:
        if policy.shared not in self.groups:
            context = self._create_context(policy)
            try:
                self.groups[policy.shared] = Group(context, self._create_binding(context))
            except AoticacheError:
                self.library.get("aoticache_context_free", context)
                raise
        return self.groups[policy.shared]

    def _create_context(self, policy: Policy) -> c_void_p:
        settings, context = self.settings, c_void_p()
        hook = None if policy.mode == "never" else self.get_hook()
        options = capi.ContextOptions(
            size=sizeof(capi.ContextOptions),
            cache=self.cache.handle,
            hook=hook,
            miss=MODES[policy.mode if hook is not None else "never"],
            dynamic=DYNAMIC["never"],
            dynamic_after=policy.dynamic_after,
            threads=settings.workers,
            max_loaded=settings.max_loaded,
            max_loaded_bytes=settings.max_loaded_bytes,
            serve_requires_grad=True,  # autograd runs above the kernel
            fail_calls=settings.fail_calls,
            record_file=capi.encode(settings.record_file),
            logger=caches.logger(),
            judge=settings.judge,
        )
        if hook is None:
            options.environment = capi.strings([f"{name}={value}" for name, value in self.environment().items()])
        self.library.call("aoticache_context_create", byref(options), byref(context))
        return context

    def _create_binding(self, context: c_void_p) -> c_void_p:
        assert self.bridge is not None
        binding = c_void_p()
        options = capi.BindingOptions(
            size=sizeof(capi.BindingOptions), context=context, bridge=capi.encode(self.bridge.path)
        )
        try:
            self.library.call("aoticache_binding_create", byref(options), byref(binding))
        except AoticacheError:
            if not self.groups:
                self.bridge = None
            raise
        return binding

    # ---- operators ----

    def enable_now(self, name: str, policy: Policy) -> None:
        """Makes a holder serve the operator. Raises AoticacheError: UNSUPPORTED with the reason, and others."""
        operator = find_overload(name)
        key = DISPATCH_KEYS[policy.device]
        group = self.group(policy)
        handle = c_void_p()
        options = capi.OperatorOptions(
            size=sizeof(capi.OperatorOptions),
            schema=str(operator._schema).encode(),
            dispatch_key=key.encode(),
            device=capi.Device(capi.DEVICE_TYPES[policy.device], -1),
            dynamic=pointer(c_int(DYNAMIC[policy.dynamic])),
        )
        self.library.call("aoticache_binding_enable", group.binding, byref(options), byref(handle))
        self.active[name] = Active(name, policy, handle)

    def disable_now(self, name: str) -> None:
        active = self.active.pop(name)
        last = self.counts(active)
        self.library.get("aoticache_binding_disable", active.handle)
        total = self.retired.setdefault(name, {})
        for count, value in last.items():
            if count in SUMS or count in ("calls", "refused"):
                total[count] = total.get(count, 0) + value

    def counts(self, active: Active) -> dict[str, int]:
        found = capi.BindingCounts()
        self.library.get("aoticache_binding_get_counts", active.handle, byref(found))
        return {
            **{name: int(getattr(found.holder, name)) for name in COUNTS},
            "calls": int(found.calls),
            "refused": int(found.refused),
        }

    # ---- waiting and ending ----

    def compiles(self) -> progress_bar.Compiles:
        """Returns the state of background compiles. Called with or without the lock."""
        found = capi.ContextCompiles()
        queued = running = ended = 0
        for context in self.contexts():
            self.library.get("aoticache_context_get_compiles", context, byref(found))
            queued, running, ended = queued + found.queued, running + found.running, ended + found.ended
        thread = self.bridge_thread
        return progress_bar.Compiles(queued, running, ended, thread is not None and thread.is_alive())

    def contexts(self) -> list[c_void_p]:
        with _lock:
            return [group.context for group in self.groups.values()]

    def wait(self, deadline: float | None, bar: progress_bar.Bar | None = None) -> bool:
        """
        Waits until nothing is compiled or queued; returns False when the time is over. An exception (KeyboardInterrupt) ends
        only the wait: compiles continue.
        """
        try:
            return self._wait_for_bridge(deadline, bar) and all(
                self._wait_for(context, deadline, bar) for context in self.contexts()
            )
        finally:
            if bar is not None:
                bar.clear()

    def _wait_for_bridge(self, deadline: float | None, bar: progress_bar.Bar | None) -> bool:
        thread = self.bridge_thread
        while thread is not None and thread.is_alive():
            left = WAIT_SLICE_MS / 1000 if deadline is None else deadline - time.monotonic()
            thread.join(max(0.0, min(WAIT_SLICE_MS / 1000, left)))
            if left <= 0 and thread.is_alive():
                return False
            if bar is not None:
                bar.show(self.compiles())
        return True

    def _wait_for(self, context: c_void_p, deadline: float | None, bar: progress_bar.Bar | None) -> bool:
        while True:
            if bar is not None:
                bar.show(self.compiles())
            left = WAIT_SLICE_MS if deadline is None else int(1000 * (deadline - time.monotonic()))
            try:
                self.library.call("aoticache_context_wait", context, c_uint32(max(1, min(WAIT_SLICE_MS, left))))
                return True
            except AoticacheError as error:
                if error.status != "LOCKED":
                    raise
                if deadline is not None and time.monotonic() >= deadline:
                    return False

    def flush(self) -> None:
        error = capi.Error()
        for group in self.groups.values():
            self.library.c.aoticache_context_flush(group.context, byref(error))
        self.cache.flush()

    def close(self) -> None:
        """Frees everything; waits for running compiles. No operator may be enabled."""
        for group in self.groups.values():
            self.library.get("aoticache_binding_free", group.binding)
            self.library.get("aoticache_context_free", group.context)
        self.groups.clear()
        if self.hook is not None:
            self.library.get("aoticache_hook_free", self.hook)
            self.hook = None


def public_version(version: str) -> str:
    return version.partition("+")[0]


def worker_python() -> str | None:
    """Returns the path of this Python; None in a program that embeds Python."""
    program = sys.executable or ""
    return program if os.path.basename(program).startswith(("python", "pypy")) else None


# ---- the session of this process ----

_lock = threading.RLock()
_session: Session | None = None
_ending = False  # the process is ending, and compiles are being stopped
_retired: dict[str, dict[str, int]] = {}  # counts of operators that were disabled, since the process began


def current() -> Session | None:
    return _session


def locked() -> threading.RLock:
    """Returns the lock, for callers that read several values of a session."""
    return _lock


def retired() -> dict[str, dict[str, int]]:
    return _retired


def configure(**values: Any) -> Settings:
    with _lock:
        settings = current_settings().changed(values)
        _check_change(settings)
        set_current_settings(settings)
        return settings


def _is_busy() -> bool:
    return _session is not None and bool(_session.active or _session.pending or _session.users)


def _check_change(settings: Settings) -> None:
    if _session is None or settings == _session.settings or not _is_busy():
        return
    old = _session.settings
    if settings.cache_dir != old.cache_dir:
        raise SettingsError(
            f"operators are enabled with the cache {_session.cache.directory}; a second one "
            f"({settings.cache_dir or 'the default'}) cannot be used at the same time: call aoticache.disable() first"
        )
    different = [name for name in vars(settings) if getattr(settings, name) != getattr(old, name)]
    raise SettingsError(f"{', '.join(different)} cannot change while operators are enabled: call aoticache.disable() first")


def open_session(settings: Settings) -> Session:
    """Returns the session with these settings. Raises SettingsError if another one is in use; AoticacheError."""
    global _session
    with _lock:
        _check_change(settings)
        if _session is not None and settings != _session.settings:
            old, _session = _session, None
            old.close()
        if _session is None:
            _session = Session(settings)
            set_current_settings(settings)
        return _session


def problem_with_torch(device: str) -> str:
    """Returns why operators cannot be enabled with this PyTorch; "" if they can."""
    torch = require_torch()
    if bridges.version_tuple(str(torch.__version__)) < LEAST_TORCH:
        return f"PyTorch {torch.__version__} is too old: operators need 2.10 or later"
    if device == "cuda" and not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    try:
        return capi.problem_with_provider(capi.load())
    except AoticacheError as error:
        return str(error)


def enable(choice: Choice, policy: Policy, settings: Settings) -> Outcome:
    tried: Session | None = None
    while True:
        with _lock:
            session = open_session(settings)
            if session is tried or session.find_bridge(policy.mode):
                return _enable_all(session, choice, policy)
        session.get_bridge()
        tried = session


def _enable_all(session: Session, choice: Choice, policy: Policy) -> Outcome:
    """Enables all of the operators, or none."""
    outcome = Outcome(skipped=dict(choice.skipped))
    try:
        if session.bridge is not None:
            session.group(policy)
    except AoticacheError as error:
        if session.bridge is not None:
            raise
        session.give_up_bridge(error, policy.mode)  # it cannot be opened, which is not the fault of an operator
    if session.bridge is None and session.bridge_thread is None:
        outcome.problem = session.bridge_problem
        return outcome
    done: list[tuple[str, Policy | None]] = []
    try:
        for name in choice.operators:
            _enable_one(session, name, policy, name in choice.exact, outcome, done)
    except AoticacheError:
        for name, before in reversed(done):
            _restore_one(session, name, before)
        raise
    return outcome


def warn_of_refused(refused: dict[str, str]) -> None:
    """Warns once about operators that waited for the bridge and cannot be served; each is named in one warning only."""
    if not refused:
        return
    (name, why), more = next(iter(refused.items())), len(refused) - 1
    text = f"aoticache: {name} is not served: {why}"
    if more:
        text += f"; nor are {more} others, each for a reason of its own, which enable() of its name gives"
    warn_once("refused " + " ".join(sorted(refused)), text)


def _enable_one(
    session: Session,
    name: str,
    policy: Policy,
    exact: bool,
    outcome: Outcome,
    done: list[tuple[str, Policy | None]],
) -> None:
    before = policy_of(session, name)
    if session.bridge is None:
        session.pending[name] = policy
        outcome.pending.append(name)
        done.append((name, before))
        return
    if before == policy:
        outcome.enabled.append(name)
        return
    if before is not None:
        session.disable_now(name)
    done.append((name, before))
    try:
        session.enable_now(name, policy)
        outcome.enabled.append(name)
    except AoticacheError as error:
        if before is not None:
            session.enable_now(name, before)
        done.pop()
        if error.status != "UNSUPPORTED":
            raise
        if exact:
            raise OperatorRefusedError(f"{name} cannot be served: {error}") from error
        outcome.skipped[name] = str(error)


def policy_of(session: Session, name: str) -> Policy | None:
    active = session.active.get(name)
    return active.policy if active is not None else session.pending.get(name)


def _restore_one(session: Session, name: str, before: Policy | None) -> None:
    """Restores an operator's previous state: at the end of a `with`, and if enable() fails half-way."""
    session.pending.pop(name, None)
    if name in session.active and session.active[name].policy != before:
        session.disable_now(name)
    if before is None or name in session.active:
        return
    if session.bridge is not None:
        session.enable_now(name, before)
    elif session.bridge_thread is not None:
        session.pending[name] = before


def devices() -> list[str]:
    """Returns the devices on which operators are enabled or pending; the CPU if there are none."""
    with _lock:
        found = set()
        if _session is not None:
            found = {active.policy.device for active in _session.active.values()}
            found |= {policy.device for policy in _session.pending.values()}
        return sorted(found) or ["cpu"]


def snapshot(names: Iterable[str]) -> dict[str, Policy | None]:
    with _lock:
        return {name: policy_of(_session, name) if _session is not None else None for name in names}


def restore(before: dict[str, Policy | None]) -> None:
    with _lock:
        if _session is not None:
            for name, policy in before.items():
                _restore_one(_session, name, policy)


def disable(names: Iterable[str] | None) -> list[str]:
    """Gives operators back to PyTorch's kernels. None: all operators."""
    with _lock:
        if _session is None:
            return []
        known = [*_session.active, *_session.pending]
        gone = known if names is None else [name for name in dict.fromkeys(names) if name in known]
        for name in gone:
            _restore_one(_session, name, None)
        return gone


def wait(timeout: float | None, progress: bool | None) -> bool:
    session = _session
    if session is None:
        return True
    deadline = None if timeout is None else time.monotonic() + timeout
    done = session.wait(deadline, progress_bar.make_bar(progress))
    session.flush()
    return done


# ---- the end of the process, and fork ----


@atexit.register
def _at_exit() -> None:
    """
    Gives all operators back to PyTorch's kernels and writes counts. Running compiles are stopped, not waited for (except for
    wait_at_exit seconds): a thread that continued would use Python, and memory of other libraries, after they are freed.
    """
    global _ending
    session = _session
    if session is None or session.pid != os.getpid():
        return
    try:
        if session.settings.wait_at_exit > 0:
            session.wait(time.monotonic() + session.settings.wait_at_exit)
        disable(None)
        _ending = True
        session.library.get("aoticache_compiles_cancel")
        idle = session.wait(time.monotonic() + END_SECONDS)
        if idle:
            session.close()  # passes all counts to the cache, which leaves them to the next process
        else:
            session.flush()
    except AoticacheError:
        pass


def _before_fork() -> None:
    # The thread that holds the lock may be waiting for a call that forks.
    _lock.acquire(timeout=FORK_WAIT_SECONDS)


def _after_fork_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # the lock was not acquired
        _lock.release()


def _after_fork_in_child() -> None:
    """
    Keeps what was enabled. The thread that compiles the bridge exists only in the parent: if operators wait for the bridge, the
    child starts its own, which waits for the parent's compile, or compiles the bridge itself if the parent ends first.

    OpenMP's threads do not exist in the child either, and libgomp would wait for them for ever; compiled kernels use threads for
    smaller work than PyTorch's own kernels. So a child begins with one thread, as PyTorch's DataLoader starts its workers.
    """
    global _lock
    _lock = threading.RLock()
    session = _session
    if session is None:
        return
    if session.active or session.pending:
        require_torch().set_num_threads(1)
    if session.bridge_thread is not None:
        session.bridge_thread = None
        if session.pending:
            session.start_bridge_thread()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
