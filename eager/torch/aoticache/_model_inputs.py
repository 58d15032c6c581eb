"""What a compiled model takes: dtypes, sizes and orders of its inputs, checked before each call.

Compiled code looks at the memory of its inputs and believes that they are as they were when it was compiled. So a
tensor of another dtype or size is refused here, with words; one with other strides is copied into those that the code
expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._errors import AoticacheError


def describe(program: Any) -> dict[str, Any]:
    """Of an ExportedProgram, as JSON can hold it: {"tensors": [...], "symbols": {"s0": [2, 64]}}."""
    import torch

    signature = program.graph_signature
    wanted = set(signature.user_inputs)
    symbols: dict[str, list[int | None]] = {}
    tensors: list[dict[str, Any]] = []
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or node.name not in wanted or not isinstance(value, torch.Tensor):
            continue
        sizes = [_size(size, program.range_constraints, symbols) for size in value.shape]
        tensors.append(
            {
                "name": node.name,
                "dtype": str(value.dtype).removeprefix("torch."),
                "device": value.device.type,
                "sizes": sizes,
                "order": _order(value),
            }
        )
    return {"tensors": tensors, "symbols": symbols}


def _size(size: Any, ranges: Any, symbols: dict[str, list[int | None]]) -> int | str | None:
    """A number, the name of a symbol, or None for an expression of symbols, which the program itself checks."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_number:
        return int(expression)
    if not expression.is_symbol:
        return None
    limits = ranges.get(expression)
    symbols[str(expression)] = [_limit(limits, "lower"), _limit(limits, "upper")]
    return str(expression)


def _limit(limits: Any, side: str) -> int | None:
    try:
        return int(getattr(limits, side))
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None  # infinite


def _order(value: Any) -> list[int] | None:
    """The dimensions from the outermost to the innermost of a dense tensor; None of one that is not dense."""
    hints = [_hint(stride) for stride in value.stride()]
    sizes = [_hint(size) for size in value.shape]
    order = sorted(range(len(hints)), key=lambda place: (-hints[place], place))
    expected = 1
    for place in reversed(order):
        if sizes[place] != 1 and hints[place] != expected:
            return None
        expected *= sizes[place]
    # Dimensions of one element lie anywhere; where the others are in row-major order, all are.
    moved = [place for place in order if sizes[place] != 1]
    return list(range(len(hints))) if moved == sorted(moved) else order


def _hint(number: Any) -> int:
    if isinstance(number, int):
        return number
    hint = getattr(number.node, "hint", None)
    return int(hint) if hint is not None else 2


class Inputs:
    """Checks and prepares the inputs of one model."""

    def __init__(self, described: dict[str, Any]) -> None:
        import torch

        self.symbols: dict[str, list[int | None]] = described["symbols"]
        self.tensors = [
            (
                item["name"],
                getattr(torch, item["dtype"]),
                item["device"],
                item["sizes"],
                item["order"] if item["order"] != list(range(len(item["sizes"]))) else "row-major",
            )
            for item in described["tensors"]
        ]

    def prepare(self, tensors: Sequence[Any]) -> list[Any]:
        """The same tensors, or copies with the strides that the code expects. Raises AoticacheError."""
        if len(tensors) != len(self.tensors):
            names = ", ".join(name for name, *_ in self.tensors)
            raise AoticacheError(
                f"the model takes {len(self.tensors)} tensors ({names}), not {len(tensors)}", "INVALID"
            )
        bound: dict[str, tuple[int, str]] = {}
        ready = []
        for tensor, (name, dtype, device, sizes, order) in zip(tensors, self.tensors):
            if tensor.dtype != dtype:
                raise AoticacheError(f"the input {name} is {tensor.dtype}; the model takes {dtype}", "INVALID")
            if tensor.device.type != device:
                raise AoticacheError(f"the input {name} is on {tensor.device}; the model takes {device}", "INVALID")
            if len(sizes) != tensor.dim():
                raise AoticacheError(
                    f"the input {name} has {tensor.dim()} dimensions; the model takes {len(sizes)}", "INVALID"
                )
            for place, (size, wanted) in enumerate(zip(tensor.shape, sizes)):
                if size != wanted and wanted is not None:
                    self._check_symbol(name, place, size, wanted, bound)
            if tensor.is_conj() or tensor.is_neg():
                tensor = tensor.resolve_conj().resolve_neg()
            ready.append(_with_order(tensor, order))
        return ready

    def _check_symbol(
        self, name: str, place: int, size: int, wanted: int | str, bound: dict[str, tuple[int, str]]
    ) -> None:
        if isinstance(wanted, int):
            raise AoticacheError(
                f"the input {name} has size {size} in dimension {place}; the model takes {wanted}", "INVALID"
            )
        lower, upper = self.symbols[wanted]
        if (lower is not None and size < lower) or (upper is not None and size > upper):
            limits = f"{lower} to {upper}" if upper is not None else f"at least {lower}"
            raise AoticacheError(
                f"the input {name} has size {size} in dimension {place}; the model takes {limits}", "INVALID"
            )
        other, where = bound.setdefault(wanted, (size, f"dimension {place} of {name}"))
        if other != size:
            raise AoticacheError(
                f"the input {name} has size {size} in dimension {place}; it must be that of {where}, {other}", "INVALID"
            )


def _with_order(tensor: Any, order: Any) -> Any:
    if order == "row-major":
        return tensor if tensor.is_contiguous() else tensor.contiguous()
    if order is None:
        return tensor
    view = tensor.permute(order)
    if view.is_contiguous():
        return tensor
    back = [order.index(place) for place in range(len(order))]
    return view.contiguous().permute(back)
