"""Results without the classes of the model's library: `load(..., results="dict")`.

The structure of the results is JSON in the model's library (torch.utils._pytree). Here it is read without PyTorch's registry, and
a `Fields` replaces each class that is not one of Python's or PyTorch's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from .._core.errors import AoticacheError
from .._core.pytorch import require_torch

_OWN = frozenset(("builtins", "collections", "torch"))


class Fields(dict[Any, Any]):
    """
    Replaces an instance of a class: a dict of its fields, which are also attributes. An integer counts the fields, unless it is a
    key. A class whose fields have no names has the keys 0, 1, ...
    """

    #: The name under which the class was registered.
    class_name: str

    def __init__(self, class_name: str, fields: dict[Any, Any]) -> None:
        super().__init__(fields)
        self.__dict__["class_name"] = class_name

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the result ({self.__dict__.get('class_name')}) has no field {name}") from None

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int) and -len(self) <= key < len(self):
            return list(self.values())[key]
        raise KeyError(key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fields, (self.class_name, dict(self))

    def __repr__(self) -> str:
        return f"<{self.class_name} as {super().__repr__()}>"


def builder(text: str, where: str) -> Callable[[list[Any]], Any]:
    """Returns what builds results from their leaves. text: the structure, as treespec_dumps() wrote it. Raises AoticacheError."""
    try:
        protocol, schema = json.loads(text)
        if protocol != 1:
            raise ValueError(f"unknown protocol {protocol}")
        _build(schema, iter([None] * _count(schema)))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise AoticacheError(f"{where}: the structure of its results cannot be read: {error}", "UNSUPPORTED") from error
    return lambda leaves: _build(schema, iter(leaves))


def _count(schema: dict[str, Any]) -> int:
    return 1 if schema["type"] is None else sum(_count(child) for child in schema["children_spec"])


def _build(schema: dict[str, Any], leaves: Iterator[Any]) -> Any:
    name, context = schema["type"], schema["context"]
    if name is None:
        return next(leaves)
    children = [_build(child, leaves) for child in schema["children_spec"]]
    pytree = require_torch().utils._pytree
    if name == "collections.namedtuple":
        return Fields(str(context), dict(enumerate(children)))
    if name == "collections.defaultdict" and context["default_factory_module"] not in _OWN:
        return dict(zip(_plain(context["dict_context"]), children))
    kind = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if kind is None or kind.__module__.partition(".")[0] not in _OWN:
        return Fields(name, _fields(_read(context), children))
    load = pytree.SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context or _read
    return pytree.SUPPORTED_NODES[kind].unflatten_fn(children, load(context))


def _read(context: Any) -> Any:
    """Returns a context without its Enums: each becomes the name of its value."""
    try:
        return _plain(json.loads(context) if isinstance(context, str) else context)
    except ValueError:  # the class has its own format
        return context


def _plain(context: Any) -> Any:
    if isinstance(context, dict):
        return context["name"] if "__enum__" in context else {name: _plain(value) for name, value in context.items()}
    return [_plain(value) for value in context] if isinstance(context, list) else context


def _fields(context: Any, children: list[Any]) -> dict[Any, Any]:
    """Returns the fields by name, if the context has the names: [NAME...] or, of a dataclass, [[NAME...], [NAME that is None...]]."""
    names, empty = context, []
    if isinstance(context, list) and len(context) == 2 and all(isinstance(one, list) for one in context):
        names, empty = context
    if isinstance(names, list) and len(names) == len(children) and all(isinstance(one, str) for one in [*names, *empty]):
        return {**dict(zip(names, children)), **dict.fromkeys(empty)}
    return dict(enumerate(children))
