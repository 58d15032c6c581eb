"""Calls PyTorch's own kernel of an operator on the stable C interface, when no bridge calls it in C++.

The core passes PyTorch's stack unchanged. The previous kernel is called with it in the way Python calls kernels, so its results
and its exceptions are PyTorch's own.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

from . import _handles, _library
from ._errors import AoticacheError
from ._operators import require_torch

_ARGUMENT = re.compile(r"^(?P<kind>.+?) (?P<name>\w+)(=.*)?$")


def argument_kinds(schema: str) -> list[str]:
    """Returns the types of a schema's arguments as it writes them: ["Tensor", "int[2]", "Scalar?"]."""
    inside = schema[schema.index("(") + 1 : schema.rindex(") ->")]
    kinds, depth, start = [], 0, 0
    quoted = False
    for position, letter in enumerate(inside + ","):
        if letter in "\"'":
            quoted = not quoted
        elif not quoted and letter in "([":
            depth += 1
        elif not quoted and letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0 and not quoted:
            part = inside[start:position].strip()
            start = position + 1
            found = _ARGUMENT.match(part)
            if found is not None:
                kinds.append(found["kind"])
    return kinds


def make(operator: Any, dispatch_key: str) -> Any:
    """
    Returns a C function that calls the kernel which is registered now. Raises AoticacheError (UNSUPPORTED) if the interface
    cannot pass an argument: a Scalar, a Generator.
    """
    torch = require_torch()
    schema = operator._schema
    arguments = []
    for argument, kind in zip(schema.arguments, argument_kinds(str(schema)), strict=True):
        unpack = _handles.unpacker(kind)
        if unpack is None:
            raise AoticacheError(
                f"its argument {argument.name!r} is of type {kind}, which the stable C interface does not pass; the "
                "bridge can, but needs a C++ compiler",
                "UNSUPPORTED",
            )
        arguments.append((argument.name if argument.kwarg_only else "", unpack))
    lists = ["List" in str(result.type) for result in schema.returns]
    kernel = torch.library.get_kernel(operator, dispatch_key)
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, dispatch_key))

    def call(stack: Any, count: int) -> None:
        values = [unpack(stack[place]) for place, (_, unpack) in zip(range(count), arguments)]
        results = kernel.call_boxed(
            keys,
            *(value for (name, _), value in zip(arguments, values) if not name),
            **{name: value for (name, _), value in zip(arguments, values) if name},
        )
        if len(lists) == 1:
            results = (results,)
        for place, (result, is_list) in enumerate(zip(results, lists, strict=True)):
            stack[place] = _handles.pack_tensors(result) if is_list else _handles.to_handles([result])[0]

    def fallback(_user: Any, stack: Any, inputs: int, _outputs: int, message: Any, size: int) -> int:
        try:
            call(stack, inputs)
            return 0
        except BaseException as error:  # noqa: BLE001 - an exception must not enter C
            text = str(error) or type(error).__name__
            if message and size > 0:
                content = text.encode()[: size - 1] + b"\0"
                ctypes.memmove(message, content, len(content))
            return 1

    return _library.FALLBACK(fallback)
