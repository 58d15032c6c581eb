"""Whole models in the cache: how a compiled program and its weights become entries, and how entries are read.

There are two kinds (docs/models-cache.md). A `program` is a library without weights; its key is made of the exported graph. A
`model` is a program with weights under a name. The file `weights.list` next to the library lists the constants that the library
needs, the inputs that it takes, and for each stored constant the file and the offset in it. A tensor of 64 KiB or more has its
own file, and so its own object: models that differ in one layer share all other tensors.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_void_p
from dataclasses import dataclass, field
from typing import Any

from .._core import capi
from .._core.errors import AoticacheError
from .._core.records import Answer, Question, Records
from . import graphs
from .classes import NeededClass, needed_by

PROGRAM, MODEL = "program", "model"
LIST = "weights.list"
FORMAT = 2
#: Smaller tensors share a file: separate objects would cost more than they save.
OWN_FILE_BYTES = 64 * 1024
#: Maximum files of weights of one model; each uses a descriptor while it is verified. With more tensors, modules share files.
MAX_FILES = 256
ALIGNMENT = 64


@dataclass
class Constant:
    """A constant of a library. `file`: the file with its value; "" if it is not stored."""

    name: str
    dtype: str
    sizes: list[int]
    strides: list[int]
    file: str = ""
    offset: int = 0
    #: Other names of the same tensor (tied weights): files of weights have one of them.
    aliases: list[str] = field(default_factory=list)

    def value_in(self, tensors: Mapping[str, Any]) -> Any:
        """Returns the tensor under one of its names; None if there is none."""
        return next((tensors[name] for name in (self.name, *self.aliases) if name in tensors), None)

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "name": self.name,
            "dtype": self.dtype,
            "sizes": self.sizes,
            "strides": self.strides,
        }
        if self.aliases:
            fields["aliases"] = self.aliases
        return {**fields, "file": self.file, "offset": self.offset} if self.file else fields


@dataclass(frozen=True)
class Classes:
    """The classes that a model's arguments and results need."""

    arguments: list[NeededClass] = field(default_factory=list)
    results: list[NeededClass] = field(default_factory=list)

    @staticmethod
    def of(program: Any) -> Classes:
        """Returns those of an ExportedProgram."""
        return Classes(*(needed_by(spec) for spec in graphs.program_specs(program)))

    def as_json(self) -> dict[str, Any]:
        return {
            "arguments": [one.as_json() for one in self.arguments],
            "results": [one.as_json() for one in self.results],
        }

    @staticmethod
    def from_json(item: dict[str, Any]) -> Classes:
        return Classes(*([NeededClass.from_json(one) for one in item.get(part, [])] for part in ("arguments", "results")))


@dataclass
class Contents:
    """The contents of `weights.list`."""

    constants: list[Constant] = field(default_factory=list)
    #: `model_inputs.describe()`.
    inputs: dict[str, Any] = field(default_factory=dict)
    #: The key of a named model's program, and the fingerprint of the module that was exported for it.
    program: str = ""
    fingerprint: str = ""
    #: Classes that must be known before the model can be called.
    classes: Classes = field(default_factory=Classes)

    def write(self, path: str) -> None:
        document = {
            "format": FORMAT,
            "program": self.program,
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "tensors": [constant.as_json() for constant in self.constants],
        }
        if self.classes.arguments or self.classes.results:
            document["classes"] = self.classes.as_json()
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def read(directory: str) -> Contents:
        """Reads `weights.list` of a directory. Raises AoticacheError."""
        path = os.path.join(directory, LIST)
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            if document["format"] != FORMAT:
                raise AoticacheError(
                    f"{path}: the model was stored by another version of libaoticache, in format {document['format']}, which is "
                    "unknown; compile it again",
                    "UNSUPPORTED",
                )
            constants = [
                Constant(
                    item["name"],
                    item["dtype"],
                    item["sizes"],
                    item["strides"],
                    item.get("file", ""),
                    item.get("offset", 0),
                    item.get("aliases", []),
                )
                for item in document["tensors"]
            ]
            needed = Classes.from_json(document.get("classes", {}))
            return Contents(constants, document["inputs"], document["program"], document["fingerprint"], needed)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AoticacheError(f"{path} cannot be read: {error}", "CORRUPT") from error


# ---- tensors as bytes ----


def span_of(tensor: Any) -> int:
    """Returns the number of elements from the first to the last one in memory."""
    if tensor.numel() == 0:
        return 0
    return int(1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())))


def describe(name: str, tensor: Any) -> Constant:
    return Constant(name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride()))


def _write_tensor(file: Any, tensor: Any) -> int:
    """Writes the memory from the first to the last element; returns the offset."""
    file.write(b"\0" * (-file.tell() % ALIGNMENT))
    offset = int(file.tell())
    tensor = tensor.detach().cpu()
    count = span_of(tensor) * tensor.element_size()
    if count:
        file.write(memoryview((ctypes.c_char * count).from_address(tensor.data_ptr())).cast("B"))
    return offset


def _check(name: str, tensor: Any) -> None:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or getattr(tensor, "is_mkldnn", False):
        raise AoticacheError(
            f"the weight {name} is not a plain tensor ({tensor.layout}): it cannot be stored", "UNSUPPORTED"
        )


def group(tensors: Mapping[str, Any]) -> list[list[str]]:
    """Groups tensors by file: small ones share one, others have their own or, if there are too many, one per module."""
    small = [name for name, tensor in tensors.items() if span_of(tensor) * tensor.element_size() < OWN_FILE_BYTES]
    large = [name for name in tensors if name not in set(small)]
    for depth in range(max((name.count(".") + 1 for name in large), default=1), -1, -1):
        groups: dict[str, list[str]] = {}
        for name in large:
            groups.setdefault(".".join(name.split(".")[:depth]), []).append(name)
        if len(groups) < MAX_FILES:
            break
    return ([small] if small else []) + list(groups.values())


def write_weights(
    directory: str, tensors: Mapping[str, Any], prefix: str
) -> tuple[list[tuple[str, str]], list[Constant]]:
    """Writes tensors into files of the directory. Returns the files (name, path), and the constants with their
    files and offsets."""
    files, constants = [], []
    for number, names in enumerate(group(tensors)):
        file_name = f"{prefix}-{number:04}"
        path = os.path.join(directory, file_name)
        with open(path, "wb") as file:
            for name in names:
                _check(name, tensors[name])
                constant = describe(name, tensors[name])
                constant.file, constant.offset = file_name, _write_tensor(file, tensors[name])
                constants.append(constant)
        files.append((file_name, path))
    return files, constants


_SAFETENSORS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
}


def read_safetensors(path: str) -> dict[str, Any]:
    """Reads the tensors of a .safetensors file into memory. Raises AoticacheError, which names the tensor."""
    import torch

    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if length > size - 8:
                raise ValueError("its header would be longer than the file")
            header = json.loads(file.read(length))
            content = bytearray(size - 8 - length)
            if file.readinto(content) != len(content):
                raise ValueError("it became shorter while it was read")
    except (OSError, ValueError) as error:
        raise AoticacheError(f"{path}: not a .safetensors file, or damaged: {error}", "INVALID") from error
    tensors = {}
    for name, item in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype = getattr(torch, _SAFETENSORS[item["dtype"]])
            begin, end = item["data_offsets"]
            count = math.prod(item["shape"])
            if not 0 <= begin <= end <= len(content) or end - begin != count * dtype.itemsize:
                raise ValueError(f"bytes {begin} to {end} of {len(content)} are not {item['dtype']}{item['shape']}")
            part = memoryview(content)[begin:end]
            flat = torch.frombuffer(bytearray(part), dtype=dtype) if count else torch.empty(0, dtype=dtype)
            tensors[name] = flat.reshape(item["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise AoticacheError(f"{path}: the tensor {name}: {error}", "INVALID") from error
    return tensors


# ---- entries ----


class Artifact:
    """An open, verified artifact; also one that was compiled but could not be stored."""

    def __init__(self, records: Records, pointer: c_void_p) -> None:
        self._library = records.library
        self._cache = records.cache
        self.pointer = pointer

    def close(self) -> None:
        self._library.get("aoticache_artifact_unref", self.pointer)
        self.pointer = c_void_p()

    @property
    def directory(self) -> str:
        return os.fsdecode(self._library.artifact_info(self.pointer).directory or b"")

    @property
    def compile_seconds(self) -> float:
        return int(self._library.artifact_info(self.pointer).compile_ns) / 1e9

    @property
    def is_stored(self) -> bool:
        return bool(self._library.artifact_info(self.pointer).is_stored)

    def contents(self) -> Contents:
        return Contents.read(self.directory)

    def graph(self) -> str:
        """Returns the text of the program that it was compiled from (graphs.describe()); "" if there is none."""
        try:
            with open(os.path.join(self.directory, "graph.txt"), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def manifest(self) -> dict[str, Any]:
        """Returns the manifest. Raises AoticacheError; an artifact that is not stored has none."""
        text = c_char_p()
        digest = byref(self._library.artifact_info(self.pointer).digest)
        self._library.call("aoticache_cache_read_manifest", self._cache.handle, digest, byref(text))
        try:
            return dict(json.loads(text.value or b"{}"))
        finally:
            capi.free(text)


def program_question(environment: Mapping[str, str], graph: str, options: str, device: capi.Device) -> Question:
    return Question(PROGRAM, {"graph": graph, "options": options}, environment, device=device)


def model_question(environment: Mapping[str, str], name: str, device: capi.Device) -> Question:
    # The format is part of the question, so entries of another format are not found and the model is compiled again.
    return Question(MODEL, {"name": name}, {**environment, "format": str(FORMAT)}, device=device)


def make_program(
    directory: str, compiled: Mapping[str, Any], inputs: dict[str, Any], program: Any, producer: str, text: str
) -> Answer:
    """
    Returns the entry of a compiled program. compiled: the result of the worker's compile_program(). The caller must provide
    parameters and buffers; other constants are the program's own, and their values are stored with it.
    """
    brought, aliases = graphs.weights(program), graphs.aliases(program)
    constants: dict[str, Any] = dict(compiled["constants"])
    for name, tensor in constants.items():
        _check(name, tensor)
    own = {name: tensor for name, tensor in constants.items() if name not in brought}
    files, stored = write_weights(directory, own, "constants")
    places = {constant.name: constant for constant in stored}
    listed = [places.get(name) or describe(name, tensor) for name, tensor in constants.items()]
    for constant in listed:
        constant.aliases = aliases.get(constant.name, [])
    paths = [(item["name"], item["path"]) for item in compiled["files"]]
    Contents(listed, inputs, classes=Classes.of(program)).write(os.path.join(directory, LIST))
    graph = os.path.join(directory, "graph.txt")
    with open(graph, "w", encoding="utf-8") as file:
        file.write(text)
    paths += [(LIST, os.path.join(directory, LIST)), ("graph.txt", graph), *files]
    built = compiled["built"]
    return Answer(
        path="",
        producer=producer,
        requirements=",".join(compiled["requirements"]),
        files=paths,
        fallback="" if built.get("by") == "aoticache" else str(built.get("reason") or "not known"),
    )


def make_model(
    directory: str,
    program: Artifact,
    key: str,
    fingerprint: str,
    tensors: Mapping[str, Any],
    classes: Classes,
    producer: str,
) -> Answer:
    """Returns the entry of a program with these weights. classes: the program may be of an earlier build, which stored none."""
    source, contents = program.directory, program.contents()
    missing = {constant.name: constant.value_in(tensors) for constant in contents.constants if not constant.file}
    files, stored = write_weights(directory, missing, "weights")
    places = {constant.name: constant for constant in stored}
    for constant in contents.constants:
        if not constant.file:
            constant.file, constant.offset = places[constant.name].file, places[constant.name].offset
    Contents(contents.constants, contents.inputs, key, fingerprint, classes).write(os.path.join(directory, LIST))
    kept = [(name, os.path.join(source, name)) for name in sorted(os.listdir(source)) if name not in (LIST, "model.so")]
    return Answer(
        path="",
        producer=producer,
        requirements=",".join(program.manifest().get("requirements", [])),
        files=[
            ("model.so", os.path.join(source, "model.so")),
            *kept,
            (LIST, os.path.join(directory, LIST)),
            *files,
        ],
        compile_ns=int(program.compile_seconds * 1e9),
    )


def get_or_make(records: Records, question: Question, make: Callable[[str], Answer]) -> tuple[Artifact, bool]:
    pointer, made = records.get_or_make_artifact(question, make)
    return Artifact(records, pointer), made


def look_up(records: Records, question: Question) -> Artifact | None:
    pointer = records.lookup_artifact(question)
    return Artifact(records, pointer) if pointer is not None else None
