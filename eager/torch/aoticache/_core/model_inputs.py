"""Arguments and results of a compiled model: their structure, constants that are compiled in, and strides.

The library takes a flat list of tensors, and the runner compares these with the ones it was compiled for (loader/check). Here
the arguments of a call are turned into that list. Each must be at the position that it had in the export; a value in a dict is
found by its key, whatever the order of the keys. Numbers, flags and texts are compiled in, so they must equal those of the export.
Arguments that do not fit are refused with a message.
"""

from __future__ import annotations

import ast
import math
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Any

from .errors import AoticacheError


def describe(program: Any, check: str, results: Sequence[Any]) -> dict[str, Any]:
    """
    Describes an ExportedProgram, in a form that JSON can hold. check and results: as returned by the worker's
    compile_program().

    {"check": TEXT, "names": [...], "orders": [...], "arguments": [null or a constant's text], "results": [...]}
    """
    import torch

    names: list[str] = []
    orders: list[list[int] | None] = []
    arguments: list[str | None] = []
    changed = _changed_inputs(program)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        # In a program that was saved and loaded, constants are only in its signature.
        value = spec.arg.value if hasattr(spec.arg, "value") else nodes[spec.arg.name].meta["val"]
        if not isinstance(value, torch.Tensor):
            arguments.append(text_of(value, spec.arg.name))
            continue
        names.append(spec.arg.name)
        # None: otherwise a copy would be changed instead of the input.
        orders.append(None if spec.arg.name in changed else _order(value))
        arguments.append(None)
    return {
        "check": check,
        "names": names,
        "orders": orders,
        "arguments": arguments,
        "results": [{"value": text_of(one["value"])} if isinstance(one, dict) and "value" in one else one for one in results],
    }


def _changed_inputs(program: Any) -> set[str]:
    """Returns the inputs that the program writes to, directly or through a view."""
    changed = {spec.target for spec in program.graph_signature.output_specs if spec.kind.name == "USER_INPUT_MUTATION"}
    roots: dict[Any, set[str]] = {}  # for each node the inputs that it may be a view of
    for node in program.graph.nodes:
        if node.op == "placeholder":
            roots[node] = {node.name}
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            roots.setdefault(node, set().union(*(roots[one] for one in node.all_input_nodes)))
            continue
        seen: set[str] = set()
        given = {**dict(zip((one.name for one in schema.arguments), node.args)), **node.kwargs}
        for argument in schema.arguments:
            if argument.alias_info is None:
                continue
            values = given.get(argument.name)
            for value in values if isinstance(values, (list, tuple)) else [values]:
                found = roots.get(value, set()) if value.__hash__ is not None else set()
                seen |= found
                changed |= found if argument.alias_info.is_write else set()
        roots[node] = seen if any(one.alias_info is not None for one in schema.returns) else set()
    return changed


def text_of(value: Any, name: str = "a result") -> str:
    """Returns a compiled-in value as text: equal texts mean the same value and type. Raises AoticacheError."""
    if value is None or isinstance(value, (bool, int, str)) and type(value) in (bool, int, str):
        return ascii(value)
    if type(value) is float:
        return repr(value)
    if type(value) is complex:
        return f"complex {value.real.hex()} {value.imag.hex()}"
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format"):
        return f"{kind.__name__} {value}"
    raise AoticacheError(f"{name} is a {kind.__name__}, which cannot be compared with later ones", "UNSUPPORTED")


def value_of(text: str) -> Any:
    """Returns the value that text_of() converted."""
    kind, _, rest = text.partition(" ")
    if text in ("inf", "-inf", "nan"):
        return float(text)
    if kind == "complex":
        return complex(*map(float.fromhex, rest.split()))
    if kind in ("dtype", "layout", "memory_format", "device"):
        import torch

        return torch.device(rest) if kind == "device" else getattr(torch, rest.removeprefix("torch."))
    return ast.literal_eval(text)


# ---- the structure of arguments ----


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any], spec: Any) -> list[tuple[str, Any]]:
    """
    Returns the leaves of a call's arguments, each with its path, in the order of the export. spec: a TreeSpec. Raises
    AoticacheError if the arguments have another structure.
    """
    positional, named = spec.children()
    names = list(named.context or ())
    if len(args) != positional.num_children or set(kwargs) != set(names):
        raise _refusal(
            f"the model takes {positional.num_children} arguments" + "".join(f", {name}=" for name in names),
            f"given were {len(args)}" + "".join(f", {name}=" for name in kwargs),
        )
    leaves: list[tuple[str, Any]] = []
    for place, (value, child) in enumerate(zip(args, positional.children())):
        _take(value, child, f"argument {place}", leaves)
    for name, child in zip(names, named.children()):
        _take(kwargs[name], child, f"argument {name}", leaves)
    return leaves


def _take(value: Any, spec: Any, where: str, leaves: list[tuple[str, Any]]) -> None:
    if spec.is_leaf():
        leaves.append((where, value))
    elif spec.type in (dict, OrderedDict, defaultdict):
        _take_dict(value, spec, where, leaves)
    else:
        _take_sequence(value, spec, where, leaves)


def _take_dict(value: Any, spec: Any, where: str, leaves: list[tuple[str, Any]]) -> None:
    keys = spec.context[1] if spec.type is defaultdict else spec.context
    if type(value) is not spec.type or set(value) != set(keys):
        given = f"one of {sorted(map(str, value))}" if isinstance(value, dict) else type(value).__name__
        raise _refusal(f"{where}: the model takes a {spec.type.__name__} of {sorted(map(str, keys))}", f"not {given}")
    if spec.type is OrderedDict and list(value) != list(keys):
        raise _refusal(f"{where}: the model takes an OrderedDict with the keys {list(keys)} in this order", "not in another")
    for key, child in zip(keys, spec.children()):
        _take(value[key], child, f"{where}[{key!r}]", leaves)


def _take_sequence(value: Any, spec: Any, where: str, leaves: list[tuple[str, Any]]) -> None:
    import torch
    import torch.utils._pytree as pytree

    kind = tuple if isinstance(value, torch.Size) and spec.type is tuple else pytree._get_node_type(value)
    if kind is not spec.type:
        raise _refusal(f"{where}: the model takes a {spec.type.__name__}", f"not a {type(value).__name__}")
    children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    if context != spec.context or len(children) != spec.num_children:
        raise _refusal(f"{where}: the model takes a {spec.type.__name__} of {spec.num_children}",
                       f"not one of {len(children)}" + ("" if context == spec.context else f" with {context}"))  # fmt: skip
    for place, (item, child) in enumerate(zip(children, spec.children())):
        _take(item, child, f"{where}[{place}]", leaves)


def tensors_among(leaves: Sequence[tuple[str, Any]], arguments: Sequence[str | None] | None, count: int) -> list[Any]:
    """
    Returns the tensors among the leaves. arguments: as in describe(); None: unknown which values were compiled in (a package).
    count: how many tensors the library takes. Raises AoticacheError if a value differs from the one that was compiled in.
    """
    import torch

    if arguments is None and len(leaves) != count:
        raise AoticacheError(
            f"the package was exported with {len(leaves) - count} arguments that are compiled in (numbers, flags, strings, None), "
            "but does not contain their values, so a call with others would be answered wrongly: call run() with the list of "
            "its tensors, or compile the model with aoticache.compile()",
            "UNSUPPORTED",
        )
    tensors = []
    for number, (where, value) in enumerate(leaves):
        known = arguments[number] if arguments is not None else None
        if known is not None:
            check_constant(where, value, known)
        elif not isinstance(value, torch.Tensor):
            raise _refusal(f"{where}: the model takes a tensor", f"not a {type(value).__name__}")
        else:
            tensors.append(value)
    return tensors


def check_constant(where: str, value: Any, known: str) -> None:
    """Raises AoticacheError for a value that differs from the one that was compiled in."""
    try:
        given = text_of(value)
    except AoticacheError:
        given = f"a {type(value).__name__}"
    if given != known:
        raise AoticacheError(
            f"{where} is {given}; the model was compiled for {known}, which is part of its code: also compile it for that value",
            "INVALID",
        )


def _refusal(takes: str, given: str) -> AoticacheError:
    return AoticacheError(f"{takes}; {given}" if not given.startswith("not ") else f"{takes}, {given}", "INVALID")


def fill_in(outputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Returns all results, from those that the library computed. results: as in describe()."""
    return [
        outputs[one] if isinstance(one, int) else outputs[one["number"]].item() if "number" in one else value_of(one["value"])
        for one in results
    ]


# ---- strides ----


def _order(value: Any) -> list[int] | None:
    """Returns the dimensions of a dense tensor, outermost first; None if it is not dense."""
    hints = [_hint(stride) for stride in value.stride()]
    sizes = [_hint(size) for size in value.shape]
    order = sorted(range(len(hints)), key=lambda place: (-hints[place], place))
    expected = 1
    for place in reversed(order):
        if sizes[place] != 1 and hints[place] != expected:
            return None
        expected *= sizes[place]
    # Dimensions of size one may be anywhere; if the others are in row-major order, all are.
    moved = [place for place in order if sizes[place] != 1]
    return list(range(len(hints))) if moved == sorted(moved) else order


def _hint(number: Any) -> int:
    if isinstance(number, int):
        return number
    hint = getattr(number.node, "hint", None)
    return int(hint) if hint is not None else 2


def with_order(tensor: Any, order: Sequence[int] | None) -> Any:
    """Returns the tensor, or a copy in this order. The runner refuses tensors with other dimensions."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if order is None or tensor.dim() != len(order):
        return tensor
    strides = _dense_strides(tensor.shape, order)
    if list(tensor.stride()) == strides:
        return tensor
    view = tensor.permute(list(order))
    if not view.is_contiguous():
        tensor = tensor.new_empty_strided(tensor.shape, strides).copy_(tensor)
    # Otherwise only dimensions of size one differ.
    return tensor.as_strided(tensor.shape, strides)


def _dense_strides(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    strides, step = [0] * len(order), 1
    for place in reversed(order):
        strides[place] = step
        step *= max(int(sizes[place]), 1)
    return strides
