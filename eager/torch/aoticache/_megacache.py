"""PyTorch's portable artifacts (`torch.compiler.save_cache_artifacts()`) made complete: they carry the graphs and not the
C++ libraries that these need. The records that this process used of the kinds that PyTorch leaves out are added when the
artifacts are saved, under a type of their own; loading them puts them into the cache.

Whoever loads artifacts must trust them: PyTorch unpickles what they contain.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from . import _caches, _session
from ._compile_state import State
from ._errors import AoticacheError, warn_once
from ._records import CPP, PROBE, Answer, Question, Records, file_with

TYPE = "aoticache"
CARRIED = (CPP, PROBE)


class Used:
    """The questions that this process has asked and that had an answer."""

    def __init__(self) -> None:
        self._questions: dict[str, Question] = {}
        self._lock = threading.Lock()

    def add(self, question: Question) -> None:
        with self._lock:
            self._questions.setdefault(key_of(question), question)

    def items(self) -> list[tuple[str, Question]]:
        with self._lock:
            return list(self._questions.items())


def key_of(question: Question) -> str:
    return json.dumps([question.kind, dict(question.arguments), dict(question.environment)], sort_keys=True)


def pack(question: Question, requirements: str, producer: str, compile_ns: int, content: bytes) -> bytes:
    head = {
        "kind": question.kind,
        "arguments": dict(question.arguments),
        "environment": dict(question.environment),
        "requirements": requirements,
        "producer": producer,
        "compile_ns": compile_ns,
    }
    return json.dumps(head).encode() + b"\n" + content


def unpack(packed: bytes) -> tuple[Question, Answer, bytes]:
    """Raises ValueError for what pack() has not made."""
    line, newline, content = packed.partition(b"\n")
    head = json.loads(line)
    if not newline or not content or not isinstance(head, dict) or head.get("kind") not in CARRIED:
        raise ValueError("it is no record of the compile cache")
    pairs = (head.get("arguments"), head.get("environment"))
    if not all(isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in pairs):
        raise ValueError("its arguments are no texts")
    # A dict keeps the order, and the order of arguments is part of the key.
    question = Question(head["kind"], head["arguments"], head["environment"])
    answer = Answer("", str(head["producer"]), str(head["requirements"]), compile_ns=int(head["compile_ns"]))
    return question, answer, content


def populate(records: Records, packed: bytes) -> None:
    question, answer, content = unpack(packed)
    with file_with(content) as answer.path:
        records.put(question, answer)
        if question.environment.get("compiler") != "any":
            records.put(question.with_environment(compiler="any"), answer)


def install(state: State) -> None:
    """Registers the type, and adds records when artifacts are saved."""
    from torch.compiler._cache import CacheArtifactFactory, CacheArtifactManager

    if TYPE not in CacheArtifactFactory._artifact_types:
        CacheArtifactFactory.register(make_type())
    serialize = vars(CacheArtifactManager)["serialize"].__func__

    def with_records(cls: Any) -> Any:
        for key, question in state.used.items():
            with state.guarded(question.kind):
                found = state.records.lookup(question)
                if found is not None:
                    requirements, producer = state.records.requirements_of(found)
                    packed = pack(question, requirements, producer, found.compile_ns, found.content)
                    cls.record_artifact(TYPE, key, packed)
        return serialize(cls)

    state.patches.replace(CacheArtifactManager, "serialize", classmethod(with_records))


def make_type() -> Any:
    from torch.compiler._cache import CacheArtifact

    class AoticacheArtifact(CacheArtifact):
        """One record, with all that storing it needs."""

        def populate_cache(self) -> None:
            try:
                populate(Records(_caches.open_cache(_session.current_settings().cache_dir)), self.content)
            except (AoticacheError, ValueError, KeyError, TypeError, OSError) as error:
                warn_once("megacache", f"aoticache: a record among PyTorch's artifacts cannot be stored: {error}")

        @staticmethod
        def type() -> str:
            return TYPE

    return AoticacheArtifact
