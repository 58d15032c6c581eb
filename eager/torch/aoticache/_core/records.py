"""Entries that are not kernels of an operator: what `torch.compile` and Triton cache, stored like every other entry.

A record is an entry whose operator is in the namespace `aoticache::`: the kind `inductor-cpp` is the operator
`aoticache::inductor_cpp`. Its request has strings among its arguments and an environment, its artifact has one file, which is
kept in the manifest if it is small. So limits, collections, pins, statistics, export and verification apply to it, and each key
is compiled by only one process.

The content of a record is returned only after its bytes were compared with the digest in the entry. For content in a manifest,
the C library hashed the memory from which it is copied. For other content the C library hashed the file, and the bytes that
were read are hashed here again.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes import byref, c_void_p, sizeof
from dataclasses import dataclass, field

from . import caches, capi
from .errors import AoticacheError

NAMESPACE = "aoticache::"
#: The kinds of records; docs/torch-compile.md describes the keys.
CPP, PROBE, GRAPH, AUTOGRAD = "inductor-cpp", "inductor-probe", "inductor-graph", "aotautograd"
AUTOTUNE, PROFILE, TRITON, SOURCES = "autotune", "dynamo-profile", "triton", "inductor-sources"
KINDS = (CPP, PROBE, SOURCES, GRAPH, AUTOGRAD, AUTOTUNE, PROFILE, TRITON)
CPU, CUDA = capi.Device(0, -1), capi.Device(1, 0)

_OK, _UNSUPPORTED = 0, capi.STATUS.index("UNSUPPORTED")
_MAX_GUARD = 4096


def operator_of(kind: str) -> str:
    return NAMESPACE + kind.replace("-", "_")


@dataclass(frozen=True)
class Question:
    """A request: a kind, arguments in their order, and an environment that must also be equal."""

    kind: str
    arguments: Mapping[str, str]
    environment: Mapping[str, str]
    #: Whether one question may have several answers with different guards.
    is_guarded: bool = False
    device: capi.Device = CPU

    def with_environment(self, **pairs: str) -> Question:
        return Question(self.kind, self.arguments, {**self.environment, **pairs}, self.is_guarded, self.device)


@dataclass
class Answer:
    """The data to store: a file and its metadata."""

    path: str
    producer: str
    #: CPU features that the code uses, as names joined by commas.
    requirements: str = ""
    guard: str = ""
    compile_ns: int = 0
    #: Name and path of each file if there are several: the library first. `path` is not used then.
    files: list[tuple[str, str]] = field(default_factory=list)
    #: Why it was not built for our container; "" if it was, or if it is not a library.
    fallback: str = ""
    #: Whether the file's bytes are kept in the manifest. False for C++ libraries, because two entries share them.
    in_manifest: bool = True


@dataclass(frozen=True)
class Found:
    """The verified bytes of an entry."""

    content: bytes = field(repr=False)
    guard: str
    compile_ns: int
    artifact: str  # the digest of its manifest


@dataclass
class KindStats:
    """What this process did with records of one kind."""

    #: Records that were served; and those among them that another process compiled while this one waited.
    hits: int = 0
    #: Records that were missing; they were compiled here or by PyTorch.
    misses: int = 0
    #: Records that were stored.
    stored: int = 0
    #: Records that were refused because they were damaged or could not be loaded; and errors of the cache.
    refused: int = 0

    def to_dict(self) -> dict[str, int]:
        """Returns the fields by name, for JSON."""
        return dataclasses.asdict(self)


class Damaged(AoticacheError):
    """The bytes that were read do not match the digest in the entry."""


class Records:
    """The records of one cache. Any number of threads may use it; no Python lock is held while something compiles."""

    def __init__(self, cache: caches.Cache) -> None:
        self.cache = cache
        self.library = cache.library

    def lookup(self, question: Question, accept: Callable[[str], bool] | None = None) -> Found | None:
        """
        Returns a record; None: there is none that this machine can use. accept: for a guarded question, whether this guard is
        wanted. Raises AoticacheError.
        """
        artifact = self.lookup_artifact(question, accept)
        return None if artifact is None else self._take(artifact, question)

    def lookup_artifact(self, question: Question, accept: Callable[[str], bool] | None = None) -> c_void_p | None:
        """Works as lookup(), but returns the artifact itself, which the caller releases."""
        artifact = c_void_p()
        with self.request(question) as request:
            try:
                wanted = None
                if question.is_guarded:
                    wanted = byref(capi.GuardFilter(capi.GUARD(_guard_function(accept))))
                self.library.call("aoticache_cache_lookup", self.cache.handle, request, wanted, byref(artifact))
            except AoticacheError as error:
                if error.status == "NOT_FOUND":
                    return None
                raise
        return artifact

    def put(self, question: Question, answer: Answer) -> None:
        """Stores a copy of the answer's file. Raises AoticacheError."""
        with self.request(question) as request:
            product, kept = self._product(answer)
            self.library.call("aoticache_cache_put", self.cache.handle, request, byref(product), None)
            del kept

    def get_or_make(self, question: Question, make: Callable[[], Answer]) -> tuple[Found | None, bool]:
        """
        Returns the stored record, otherwise the one that `make()` returns. One process makes it while the others wait. The
        second value is True if this call made it; there is nothing to read then. An exception of `make()` is raised here and
        is not remembered. Raises AoticacheError for errors of the cache.
        """
        maker = _Maker(self, lambda _directory: make())
        try:
            artifact = self._get_or_make(question, maker)
        except AoticacheError:
            if maker.error is None and maker.is_done:  # it was made, but could not be stored
                return None, True
            raise
        if maker.is_done:
            self.library.get("aoticache_artifact_unref", artifact)
            return None, True
        return self._take(artifact, question), False

    def get_or_make_artifact(self, question: Question, make: Callable[[str], Answer]) -> tuple[c_void_p, bool]:
        """
        Does the same for entries with several files. Returns the artifact, which the caller releases, and whether this call made
        it. make() gets an empty directory, which is deleted before this returns.
        """
        maker = _Maker(self, make)
        return self._get_or_make(question, maker), maker.is_done

    def _get_or_make(self, question: Question, maker: _Maker) -> c_void_p:
        artifact = c_void_p()
        with self.request(question) as request:
            try:
                self.library.call(
                    "aoticache_cache_get_or_compile",
                    self.cache.handle,
                    request,
                    None,
                    maker.function,
                    None,
                    byref(artifact),
                )
            except AoticacheError:
                if maker.error is not None:
                    raise maker.error from None
                raise
        return artifact

    def requirements_of(self, found: Found) -> tuple[str, str]:
        """Returns the CPU features that a record requires, and its producer, from its manifest."""
        text = ctypes.c_char_p()
        artifact = capi.Digest((ctypes.c_uint8 * 32)(*bytes.fromhex(found.artifact)))
        self.library.call("aoticache_cache_read_manifest", self.cache.handle, byref(artifact), byref(text))
        try:
            manifest = json.loads(text.value or b"{}")
        finally:
            capi.free(text)
        return ",".join(manifest.get("requirements", [])), str(manifest.get("producer", ""))

    # ---- to and from C ----

    @contextmanager
    def request(self, question: Question) -> Iterator[c_void_p]:
        """Yields the request in C, for a `with` block."""
        request = c_void_p()
        operator = capi.encode(operator_of(question.kind))
        self.library.call("aoticache_request_create", operator, question.device, byref(request))
        try:
            for name, value in question.arguments.items():
                self.library.add_argument(request, name.encode(), "string", string_value=_text(value, 60000))
            pairs = dict(question.environment)
            if question.is_guarded:
                pairs["shapes"] = "dynamic"
            for name, value in pairs.items():
                self.library.call("aoticache_request_set_environment", request, name.encode(), _text(value, 255))
            yield request
        finally:
            self.library.get("aoticache_request_free", request)

    def _product(self, answer: Answer) -> tuple[capi.Product, object]:
        """Returns the struct, and the object that must live as long as it is used."""
        named = answer.files or [("content", answer.path)]
        files = (capi.File * len(named))(*(capi.File(name.encode(), capi.encode(path)) for name, path in named))
        product = capi.Product(
            size=sizeof(capi.Product),
            files=files,
            file_count=len(named),
            guard=_text(answer.guard, _MAX_GUARD) if answer.guard else None,
            producer=answer.producer.encode(),
            compile_ns=answer.compile_ns,
            fallback=answer.fallback.encode() if answer.fallback else None,
            in_manifest=answer.in_manifest and not answer.files,
        )
        if answer.requirements:
            self.library.call(
                "aoticache_cpu_features_parse", answer.requirements.encode(), byref(product.requirements)
            )
        return product, files

    def _take(self, artifact: c_void_p, question: Question) -> Found:
        """Reads and releases an artifact."""
        try:
            content = self._content(artifact, question)
            info = self.library.artifact_info(artifact)
            return Found(content, info.guard.decode(), info.compile_ns, bytes(info.digest.bytes).hex())
        finally:
            self.library.get("aoticache_artifact_unref", artifact)


    def _content(self, artifact: c_void_p, question: Question) -> bytes:
        size = ctypes.c_size_t()
        held = self.library.get("aoticache_artifact_content", artifact, byref(size))
        if held:  # in the manifest: this memory has been hashed
            return ctypes.string_at(held, size.value)
        content = _read_all(int(self.library.get("aoticache_artifact_library_fd", artifact)))
        named = bytes(self.library.artifact_info(artifact).library.bytes)
        if hashlib.sha256(content).digest() != named:
            raise Damaged(f"object {named.hex()}: its bytes changed while they were read ({question.kind})", "CORRUPT")
        return content


class _Maker:
    """`make()` as a compile hook in C; it gets an empty directory."""

    def __init__(self, records: Records, make: Callable[[str], Answer]) -> None:
        self.records = records
        self.make = make
        self.error: BaseException | None = None
        self.is_done = False
        self.function = capi.COMPILE(self._compile)

    def _compile(
        self, _user: object, _request: object, directory: bytes, deliver: Callable[..., int], user: object, _error: object
    ) -> int:
        try:
            begun = time.monotonic_ns()
            answer = self.make(os.fsdecode(directory))
            self.is_done = True
            answer.compile_ns = answer.compile_ns or time.monotonic_ns() - begun
            product, kept = self.records._product(answer)
            status = deliver(user, byref(product))
            del kept
            return status
        except BaseException as error:  # noqa: BLE001 - no exception may leave a callback from C
            if not self.is_done:
                self.error = error
            return _UNSUPPORTED  # this result is not remembered as a failure of the key


def _guard_function(accept: Callable[[str], bool] | None) -> Callable[[object, bytes], bool]:
    def call(_user: object, guard: bytes) -> bool:
        try:
            return accept is None or accept(guard.decode())
        except Exception:  # noqa: BLE001 - no exception may leave a callback from C
            return False

    return call


def _text(value: str, limit: int) -> bytes:
    """Encodes text for C; replaces text that is too long by its digest."""
    encoded = value.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
    if len(encoded) <= limit:
        return encoded
    return b"sha256:" + hashlib.sha256(encoded).hexdigest().encode()


def _read_all(descriptor: int) -> bytes:
    parts, offset = [], 0
    while part := os.pread(descriptor, 1 << 24, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


@contextmanager
def file_with(content: bytes) -> Iterator[str]:
    """Creates a temporary file with this content, to store it."""
    descriptor, path = tempfile.mkstemp(prefix="aoticache-")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


def write_file(path: str, content: bytes, mode: int = 0o644) -> None:
    """Writes a file atomically: no reader sees a partial file under this name."""
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
