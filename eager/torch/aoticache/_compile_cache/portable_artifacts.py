"""Completes PyTorch's portable artifacts (`torch.compiler.save_cache_artifacts()`): they contain the graphs but not the C++
libraries that the graphs need. When artifacts are saved, the records that this process used, of the kinds that PyTorch leaves
out, are added. Loading the artifacts puts these records into the cache.

PyTorch refuses all artifacts if one has a type that is not registered. So that a process without the compile cache can also load
them, our records are in a part that PyTorch ignores: in the name of a type that has no artifacts.

Load only artifacts that you trust: PyTorch unpickles what they contain.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Sequence
from typing import Any

from .._core import caches
from .._core.errors import AoticacheError, warn_once
from .._core.records import CPP, PROBE, SOURCES, Answer, Question, Records, file_with
from .._core.settings import current_settings
from .state import State

TYPE = "aoticache"
CARRIED = (CPP, PROBE, SOURCES)
PREFIX = "aoticache 1 "  # beginning of the type's name


class Used:
    """The questions of this process that had an answer."""

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
    """Reverses pack(). Raises ValueError for other bytes."""
    line, newline, content = packed.partition(b"\n")
    head = json.loads(line)
    if not newline or not content or not isinstance(head, dict) or head.get("kind") not in CARRIED:
        raise ValueError("not a record of the compile cache")
    pairs = (head.get("arguments"), head.get("environment"))
    if not all(isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in pairs):
        raise ValueError("its arguments are not strings")
    # A dict keeps the order of arguments, which is part of the key.
    question = Question(head["kind"], head["arguments"], head["environment"])
    answer = Answer(
        path="",
        producer=str(head["producer"]),
        requirements=str(head["requirements"]),
        compile_ns=int(head["compile_ns"]),
        in_manifest=head["kind"] != CPP,
    )
    return question, answer, content


def populate(records: Records, packed: bytes) -> None:
    question, answer, content = unpack(packed)
    with file_with(content) as answer.path:
        records.put(question, answer)
        if question.environment.get("compiler", "any") != "any":
            records.put(question.with_environment(compiler="any"), answer)


def name_with(records: Sequence[tuple[str, bytes]]) -> str:
    """Returns the name of a type that contains these records."""
    packed = b"".join(json.dumps([key, len(content)]).encode() + b"\n" + content for key, content in records)
    return PREFIX + base64.b64encode(zlib.compress(packed, 6)).decode("ascii")


def records_in(name: str) -> list[tuple[str, bytes]]:
    """Returns the records in a name. Raises ValueError for a name that name_with() has not made."""
    try:
        rest = zlib.decompress(base64.b64decode(name[len(PREFIX) :], validate=True))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    found = []
    while rest:
        line, _, rest = rest.partition(b"\n")
        key, size = json.loads(line)
        if not isinstance(key, str) or not isinstance(size, int) or not 0 <= size <= len(rest):
            raise ValueError("a record does not have the length that it declares")
        found.append((key, rest[:size]))
        rest = rest[size:]
    return found


def append_name(artifacts: bytes, name: str) -> bytes:
    """Returns `artifacts` as PyTorch wrote them, and appends a type of this name without artifacts."""
    from torch.utils._appending_byte_serializer import CHECKSUM_DIGEST_SIZE, BytesWriter

    last = BytesWriter()
    last.write_str(name)
    last.write_uint64(0)
    whole = artifacts[CHECKSUM_DIGEST_SIZE:] + last.to_bytes()[CHECKSUM_DIGEST_SIZE:]
    return zlib.crc32(whole).to_bytes(CHECKSUM_DIGEST_SIZE, "big") + whole


def used_records(state: State) -> list[tuple[str, bytes]]:
    packed = []
    for key, question in state.used.items():
        with state.guarded(question.kind):
            found = state.records.lookup(question)
            if found is not None:
                requirements, producer = state.records.requirements_of(found)
                packed.append((key, pack(question, requirements, producer, found.compile_ns, found.content)))
    return packed


def install(state: State) -> None:
    """Adds records when artifacts are saved, and extracts them when artifacts are loaded."""
    from torch.compiler._cache import CacheArtifactFactory, CacheArtifactManager

    if TYPE not in CacheArtifactFactory._artifact_types:
        CacheArtifactFactory.register(make_type())
    serialize = vars(CacheArtifactManager)["serialize"].__func__
    populate_caches = vars(CacheArtifactManager)["populate_caches"].__func__

    def with_records(cls: Any) -> Any:
        saved = serialize(cls)
        records = used_records(state) if saved is not None else []
        if not records:
            return saved
        artifacts, info = saved
        for key, _ in records:
            info.artifacts[TYPE].append(key)
        return append_name(artifacts, name_with(records)), info

    def with_ours(artifacts: Any) -> Any:
        # Ours first: PyTorch's precompiles are loaded immediately, and need the libraries then.
        found: list[Any] = []
        rest = {name: ones for name, ones in artifacts.items() if not name.startswith(PREFIX)}
        for name in artifacts.keys() - rest.keys():
            try:
                found += [CacheArtifactFactory.create(TYPE, *record) for record in records_in(name)]
            except (ValueError, TypeError) as error:
                warn_once("megacache", f"aoticache: PyTorch's artifacts have records that cannot be read: {error}")
        return populate_caches({TYPE: found, **rest} if found else rest)

    state.patches.replace(CacheArtifactManager, "serialize", classmethod(with_records))
    # Not deserialize(): its first call imports the module that these patches wait for.
    state.patches.replace(CacheArtifactManager, "populate_caches", staticmethod(with_ours))


def make_type() -> Any:
    from torch.compiler._cache import CacheArtifact

    class AoticacheArtifact(CacheArtifact):
        """One record, with everything needed to store it."""

        def populate_cache(self) -> None:
            try:
                populate(Records(caches.open_cache(current_settings().cache_dir)), self.content)
            except (AoticacheError, ValueError, KeyError, TypeError, OSError) as error:
                warn_once("megacache", f"aoticache: a record among PyTorch's artifacts cannot be stored: {error}")

        @staticmethod
        def type() -> str:
            return TYPE

    return AoticacheArtifact
