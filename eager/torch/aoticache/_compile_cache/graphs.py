"""What PyTorch caches of its own compiles: FX graphs, AOTAutograd's results, choices of autotuning, profiles of dynamic shapes.
PyTorch allows a backend for its remote caches of all of these; here the backend is the cache on this machine.

PyTorch unpickles what a backend returns. Therefore the first line of a record names its kind and its key, and a record is
returned only if its bytes, kind and key are those that were requested.

Set here: `backend_override_cls` of the classes in `BACKENDS`, and the defaults of the options that switch them on.
Replaced: codecache.GuardedCache.iterate_over_candidates, for two reasons: a graph may have several records with different
guards, and PyTorch's backend returns only one; and a miss waits for a process that is compiling the same graph
(leases.py).
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import pickle
import sys
from collections.abc import Generator, Iterator
from typing import Any

from .._core.errors import warn_once
from .._core.records import AUTOGRAD, AUTOTUNE, GRAPH, PROFILE, Answer, Question, file_with
from .leases import Flights
from .state import State, caches_are_disabled

#: PyTorch's class of a remote cache: our kind, the module of its options, the option that switches it on, and the option of
#: PyTorch's local cache. If a program switches the local cache off, it wants compiles to happen, and nothing is served.
BACKENDS = {
    "RemoteFxGraphCache": (GRAPH, "torch._inductor.config", "fx_graph_remote_cache", "fx_graph_cache"),
    "RemoteAOTAutogradCache": (
        AUTOGRAD,
        "torch._functorch.config",
        "enable_remote_autograd_cache",
        "enable_autograd_cache",
    ),
    "RemoteAutotuneCache": (AUTOTUNE, "torch._inductor.config", "autotune_remote_cache", "autotune_local_cache"),
    "RemoteDynamoPGOCache": (
        PROFILE,
        "torch._dynamo.config",
        "automatic_dynamic_remote_pgo",
        "automatic_dynamic_local_pgo",
    ),
}
GUARDED = (GRAPH, AUTOGRAD)
NO_GUARD = "always"
MAX_GUARD = 4000


class Refused(ValueError):
    """Raised for a record that is not the requested one."""


def head_of(kind: str, key: str) -> bytes:
    return f"aoticache-record 1 {kind} {hashlib.sha256(key.encode()).hexdigest()}\n".encode()


def payload_of(content: bytes, kind: str, key: str) -> bytes:
    """Returns what follows the first line. Raises Refused."""
    head = head_of(kind, key)
    if not content.startswith(head):
        raise Refused(f"a record does not belong to the key {key[:80]}")
    return content[len(head) :]


class Store:
    """The records of one kind, by PyTorch's keys."""

    def __init__(self, state: State, kind: str) -> None:
        self.state, self.kind = state, kind
        self.is_guarded = kind in GUARDED
        self.options, self.local = next(
            (importlib.import_module(module), local) for one, module, _, local in BACKENDS.values() if one == kind
        )

    def is_switched_off(self) -> bool:
        return caches_are_disabled() or not getattr(self.options, self.local)

    def question(self, key: str) -> Question:
        environment = self.state.environment()
        if self.is_guarded:
            environment["isa"] = chosen_isa()
        return Question(self.kind, {"key": key}, environment, self.is_guarded)

    def get(self, key: str, but: tuple[str, ...] = ()) -> tuple[bytes, str, int] | None:
        """Returns the newest record whose guard is not in `but`: content, guard, compile time in nanoseconds."""
        if self.is_switched_off():
            return None
        with self.state.guarded(self.kind):
            found = self.state.records.lookup(self.question(key), lambda guard: guard not in but)
            if found is not None:
                return payload_of(found.content, self.kind, key), found.guard, found.compile_ns
        return None

    def put(self, key: str, payload: bytes, guard: str, compile_ns: int) -> None:
        if self.is_switched_off():
            return
        with self.state.guarded(self.kind):
            with file_with(head_of(self.kind, key) + payload) as path:
                self.state.records.put(self.question(key), Answer(path, self.state.producer, "", guard, compile_ns))
            self.state.count_stored(self.kind, key, compile_ns)


def chosen_isa() -> str:
    """Returns the vector unit that Inductor writes C++ for. The C++ depends on it, but PyTorch's keys lack it."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return str(pick_vec_isa())


def guard_of(graph: Any) -> str:
    """Returns the guards of a graph, as in its record."""
    expression = getattr(graph, "guards_expr", None)
    if not expression:
        return NO_GUARD
    if len(expression) > MAX_GUARD:
        return "sha256:" + hashlib.sha256(expression.encode()).hexdigest()
    return str(expression)


def make_backend(state: State, flights: Flights, kind: str) -> Any:
    """Returns a class that PyTorch calls without arguments."""
    from torch._inductor.remote_cache import RemoteCacheBackend

    store = Store(state, kind)

    class Backend(RemoteCacheBackend):  # type: ignore[type-arg]
        """Records of one kind, in the form that PyTorch's remote caches have: JSON."""

        aoticache_store = store

        def _get(self, key: str) -> bytes | None:
            found = store.get(key)
            if found is None:
                state.count_miss(kind, key)
                return None
            state.count_hit(kind, key)
            payload, _, compile_ns = found
            if not store.is_guarded:
                return payload
            value = {"data": base64.b64encode(payload).decode("ascii"), "time_taken_ms": compile_ns // 1_000_000}
            return json.dumps(value).encode()

        def _put(self, key: str, data: bytes) -> None:
            if not store.is_guarded:
                store.put(key, data, "", 1)
                return
            try:
                self.put_guarded(key, data)
            finally:
                flights.end(kind, key)

        def put_guarded(self, key: str, data: bytes) -> None:
            try:
                value = json.loads(data)
                content = base64.b64decode(value["data"])
                guard = guard_of(pickle.loads(content))
            except Exception as error:  # noqa: BLE001 - a graph that cannot be read back is not worth storing
                warn_once(f"compile-put-{kind}", f"aoticache: a record of {kind} is not stored: {error}")
                return
            store.put(key, content, guard, int(value.get("time_taken_ms") or 0) * 1_000_000)

    return Backend


Candidate = tuple[Any, ...]  # the graph, its bytes, and since 2.11 whether it was in PyTorch's own directory


def store_of(remote: Any, key: str) -> tuple[Store, str] | None:
    """Returns the store of one of PyTorch's remote caches, and the key's name there; None: it does not use our backend."""
    store = getattr(getattr(remote, "backend", None), "aoticache_store", None)
    if not isinstance(store, Store) or not hasattr(remote, "_get_key"):
        return None
    return store, remote._get_key(key)


def origin_of_ours(cls: Any) -> tuple[bool, ...]:
    """Returns the origin that PyTorch counts since 2.11: not its own directory."""
    return (False,) if hasattr(cls, "_record_result") else ()


def candidates(
    store: Store, key: str, seen: tuple[str, ...], origin: tuple[bool, ...]
) -> Generator[Candidate, None, tuple[str, ...]]:
    """Yields the records of a key, except those with guards in `seen`. Returns all guards seen."""
    while (found := store.get(key, seen)) is not None:
        payload, guard, _ = found
        seen = (*seen, guard)
        try:
            graph = pickle.loads(payload)
        except Exception as error:  # noqa: BLE001 - as PyTorch does with the newest one
            warn_once(f"compile-get-{store.kind}", f"aoticache: a record of {store.kind} cannot be read: {error}")
            continue
        yield (graph, payload, *origin)
    return seen


def late_candidates(
    flights: Flights, store: Store, key: str, seen: tuple[str, ...], origin: tuple[bool, ...]
) -> Iterator[Candidate]:
    """Yields records that PyTorch's backend did not return and, after a miss, those that another process stored meanwhile."""
    was_missed = not seen
    try:
        seen = yield from candidates(store, key, seen, origin)
        if not store.is_switched_off() and flights.begin(store.kind, key, store.question):
            yield from candidates(store, key, seen, origin)
    except GeneratorExit:  # PyTorch took one
        flights.end(store.kind, key)
        if was_missed:
            store.state.count(store.kind, "misses", -1)
            store.state.count_hit(store.kind, key)
        raise


def switch_on(state: State, module: Any, name: str) -> bool:
    """
    Makes True the default of an option. (Setting the option itself would apply to one thread only.) Returns False if the
    program has set the option: then PyTorch's remote cache stays as it is.
    """
    entry = module._config[name]
    if getattr(module, name) is not None:
        return False
    before = entry.default
    entry.default = True
    state.patches.on_restore(lambda: setattr(entry, "default", before))
    return True


def install(state: State) -> None:
    from torch._inductor import codecache, remote_cache

    flights = Flights(state)
    for name, (kind, module_name, option, _) in BACKENDS.items():
        cls = getattr(remote_cache, name)
        if cls.backend_override_cls is not None or not switch_on(state, importlib.import_module(module_name), option):
            warn_once(
                f"compile-decided-{kind}",
                f"aoticache: {module_name}.{option} is set, or {name} already has a backend; {kind} goes there",
            )
            continue
        state.patches.replace(cls, "backend_override_cls", make_backend(state, flights, kind))

    original = vars(codecache.GuardedCache)["iterate_over_candidates"].__func__

    def iterate(cls: Any, local: bool, remote: Any, key: str) -> Iterator[Candidate]:
        seen: tuple[str, ...] = ()
        for candidate in original(cls, local, remote, key):
            if True not in candidate[2:]:  # another record with the same guards as one of ours would also fail
                seen = (guard_of(candidate[0]),)
            yield candidate
        found = store_of(remote, key)
        if found is not None:
            yield from late_candidates(flights, *found, seen, origin_of_ours(cls))

    state.patches.replace(codecache.GuardedCache, "iterate_over_candidates", classmethod(iterate))
    flights.install()
    forget_remote_caches()
    state.patches.on_restore(forget_remote_caches)


def forget_remote_caches() -> None:
    """Drops the remote cache that AOTAutograd keeps for the process, with the backend of its first call."""
    module = sys.modules.get("torch._functorch._aot_autograd.autograd_cache")
    clear = getattr(getattr(getattr(module, "AOTAutogradCache", None), "get_remote_cache", None), "cache_clear", None)
    if clear is not None:
        clear()
