"""Counts of the operators of this process, and of the cache that all processes share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._compile_cache import stats as compile_cache_stats
from ._core import caches
from ._core.errors import AoticacheError
from ._core.records import KindStats
from ._operators import session


@dataclass(frozen=True)
class OperatorStats:
    """Counts of one operator since the process began, also if it is not enabled any more."""

    name: str
    #: "background, dynamic never, on cpu"; "" for one that is not enabled any more.
    policy: str = ""
    #: "enabled", "pending" (until the bridge is ready), "disabled".
    state: str = "disabled"
    #: Calls of the operator while it was enabled: hits, fallbacks and refused ones.
    calls: int = 0
    #: Calls that a compiled kernel answered; and those among them that a dynamic kernel (for many shapes) answered.
    hits: int = 0
    hits_dynamic: int = 0
    #: Calls that PyTorch's kernel answered because a compiled one was missing or impossible.
    fallbacks: int = 0
    #: Fallback calls for which there was a compiled kernel, but PyTorch's is faster.
    calls_lost: int = 0
    #: Calls that went directly to PyTorch's kernel: numbers wrapped as tensors, conjugated tensors, recursion.
    refused: int = 0
    misses: int = 0
    loads: int = 0
    compiles: int = 0
    compile_failures: int = 0
    #: Background compiles that were queued; and those that were not, because the queue was full.
    queued: int = 0
    dropped: int = 0
    #: Known combinations of argument metadata, known libraries for them, and loaded libraries.
    entries: int = 0
    libraries: int = 0
    loaded: int = 0
    #: Kernels that were compared with PyTorch's own; those among them for which PyTorch's is at least as fast; kernels that
    #: are being compared. (A dynamic kernel counts once per size class.)
    judged: int = 0
    judged_slower: int = 0
    on_trial: int = 0
    #: Estimate of the seconds saved by hits of kernels that were measured to be faster than PyTorch's: the measured
    #: difference times hits.
    gained_seconds: float = 0.0
    #: Dynamic kernels that could not be compiled; every shape then has its own kernel.
    dynamic_refused: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields by name, for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class CacheStats:
    """The cache's directory, all processes together, as of their last flush."""

    directory: str
    read_only: bool
    entries: int
    bytes: int
    hits: int
    misses: int
    compiles: int
    compile_failures: int
    compile_seconds: float
    saved_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields by name, for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Stats:
    """The result of `stats()`; `print()` it for a table."""

    operators: dict[str, OperatorStats] = field(default_factory=dict)
    cache: CacheStats | None = None
    #: What connects PyTorch with the kernels: "bridge"; "compiling the bridge"; "none" if the bridge is missing, so
    #: that nothing is enabled; "" before the first enable().
    interface: str = ""
    #: Why the bridge or the worker is missing; "" if nothing is missing.
    problem: str = ""
    #: What the compile cache did in this process, by kind of record; empty if it is not installed.
    compile: Mapping[str, KindStats] = field(default_factory=dict)
    #: Background compiles of this process: queued ones, and running ones.
    waiting: int = 0
    compiling: int = 0

    def total(self, count: str) -> int:
        """Returns the sum of a count over all operators: total("hits")."""
        return sum(int(getattr(one, count)) for one in self.operators.values())

    @property
    def gained_seconds(self) -> float:
        """Returns the sum over all operators."""
        return sum(one.gained_seconds for one in self.operators.values())

    def to_dict(self) -> dict[str, Any]:
        """
        Returns the fields by name, for JSON: numbers, texts, and dictionaries of these. "operators" and "compile" have a dictionary
        for each operator and each kind of record; "cache" is None if the cache cannot be read.
        """
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Returns a table of the operators that were called, with totals, and what else is not zero."""
        lines = [*self._operator_lines(), *self._compile_lines()]
        if self.interface:
            lines.append(f"interface: {self.interface}")
        if self.waiting or self.compiling:
            lines.append(f"compiles: {self.compiling} under way, {self.waiting} queued")
        if self.problem:
            lines.append(f"problem: {self.problem.splitlines()[0]}")
        if self.cache is not None:
            cache = self.cache
            lines.append(
                f"cache {cache.directory}{' (read-only)' if cache.read_only else ''}: {cache.entries} entries, "
                f"{cache.bytes / 1e6:.1f} MB; {cache.hits} hits, {cache.misses} misses, {cache.compiles} compiles "
                f"({cache.compile_seconds:.1f} s), {cache.saved_seconds:.1f} s saved"
            )
        return "\n".join(lines)

    def _operator_lines(self) -> list[str]:
        if not self.operators:
            return ["no operator has been enabled in this process"]
        used = sorted(filter(_is_used, self.operators.values()), key=lambda one: (-one.calls, one.name))
        rows = [_operator_row(one) for one in used]
        if len(used) > 1:
            rows.append(_operator_row(_sum_of(used)))
        lines = _table(_OPERATOR_COLUMNS, rows) if rows else ["no operator has been called while it was enabled"]
        unused = [one.state for one in self.operators.values() if not _is_used(one)]
        uncalled, waiting = unused.count("enabled"), unused.count("pending")
        if uncalled:
            lines.append(f"{uncalled} enabled {'operators were' if uncalled > 1 else 'operator was'} not called")
        if waiting:
            lines.append(f"{waiting} {'operators wait' if waiting > 1 else 'operator waits'} for the bridge")
        return lines

    def _compile_lines(self) -> list[str]:
        rows = [
            (kind, str(one.hits), str(one.misses), str(one.stored), str(one.refused))
            for kind, one in self.compile.items()
            if one != KindStats()
        ]
        return _table(("torch.compile", "hits", "misses", "stored", "refused"), rows) if rows else []


_OPERATOR_COLUMNS = ("operator", "calls", "hits", "misses", "PyTorch", "calls lost", "gained", "compiles", "compile failures", "state")
_LEFT = ("operator", "torch.compile", "state")  # columns of text


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a header and the rows; numbers are aligned at the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows)]
    return [
        "  ".join(
            f"{cell:{'<' if name in _LEFT else '>'}{width}}" for name, cell, width in zip(columns, row, widths)
        ).rstrip()
        for row in (columns, *rows)
    ]


def _is_used(one: OperatorStats) -> bool:
    return any((one.calls, one.hits, one.misses, one.fallbacks, one.refused, one.compiles, one.compile_failures))


def _operator_row(one: OperatorStats) -> tuple[str, ...]:
    answered = one.fallbacks + one.refused  # by PyTorch
    counts = (one.calls, one.hits, one.misses, answered, one.calls_lost)
    ends = (one.compiles, one.compile_failures)
    return (one.name, *map(str, counts), _duration(one.gained_seconds), *map(str, ends), one.state)


def _sum_of(operators: Sequence[OperatorStats]) -> OperatorStats:
    numbers = [one.name for one in dataclasses.fields(OperatorStats) if one.name not in ("name", "policy", "state")]
    sums: dict[str, Any] = {name: sum(getattr(one, name) for one in operators) for name in numbers}
    return OperatorStats("total", state="", **sums)


def _duration(seconds: float) -> str:
    """Formats as "-", "340 us", "12 ms", "1.5 s"."""
    if seconds < 1e-6:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def make_operator_stats(name: str, policy: str, state: str, counts: Mapping[str, int]) -> OperatorStats:
    known: dict[str, Any] = {one: counts[one] for one in counts if one in OperatorStats.__dataclass_fields__}
    known["gained_seconds"] = counts.get("gained_ns", 0) / 1e9
    return OperatorStats(name, policy, state, **known)


def cache_stats(cache: caches.Cache) -> CacheStats:
    found = cache.statistics()
    counters = found.counters
    return CacheStats(
        directory=cache.directory,
        read_only=cache.read_only,
        entries=int(found.entries),
        bytes=int(found.bytes),
        hits=int(counters.hits),
        misses=int(counters.misses),
        compiles=int(counters.compiles),
        compile_failures=int(counters.compile_failures),
        compile_seconds=counters.compile_ns / 1e9,
        saved_seconds=counters.saved_ns / 1e9,
    )


def collect() -> Stats:
    live = session.current()
    if live is None:
        retired = session.retired().items()
        operators = {name: make_operator_stats(name, "", "disabled", counts) for name, counts in retired}
        return Stats(operators, compile=compile_cache_stats())
    operators = {}
    with session.locked():
        for name, active in live.active.items():
            counts = live.counts(active)
            for count, before in live.retired.get(name, {}).items():
                counts[count] += before
            operators[name] = make_operator_stats(name, str(active.policy), "enabled", counts)
        for name, policy in live.pending.items():
            operators[name] = make_operator_stats(name, str(policy), "pending", live.retired.get(name, {}))
        for name, counts in live.retired.items():
            operators.setdefault(name, make_operator_stats(name, "", "disabled", counts))
        if live.bridge is not None:
            interface = "bridge"
        elif live.bridge_thread is not None:
            interface = "compiling the bridge"
        else:
            interface = "none" if live.bridge_problem else ""
        problem = "; ".join(filter(None, (live.bridge_problem, live.hook_problem)))
    try:
        cache = cache_stats(live.cache)
    except AoticacheError:
        cache = None
    compiles = live.compiles()
    return Stats(operators, cache, interface, problem, compile_cache_stats(), compiles.queued, compiles.running)
