"""The canonical text of an exported program, whose digest is its key (docs/models-cache.md).

One fact per line, `path: fact`. It contains operators and their arguments, dtypes, sizes, strides and devices, the signature,
the structure of arguments and results, the ranges of symbols, and tensors that the program itself contains. It does not contain
names of nodes and of classes, source lines, numbers of symbols, and the values of parameters and buffers.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from .._core.errors import AoticacheError

FORMAT = 2
#: Operators of these namespaces are PyTorch's own: its version, which is in the key too, determines their schemas.
_OWN_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "profiler", "higher_order", "_c10d_functional", "inductor", "quantized"}
)


def describe(program: Any, *, frozen: bool = False) -> str:
    """
    Returns the text of an ExportedProgram. frozen: include digests of all weights. Raises AoticacheError (UNSUPPORTED) for
    objects without a canonical form, such as objects of custom classes.
    """
    return _Writer(program, frozen).write()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def weights(program: Any) -> dict[str, Any]:
    """Returns parameters and buffers by their names in the module: the weights of the compiled library."""
    constants = program.constants
    found = {
        name: program.state_dict[name]
        for name in (*program.graph_signature.parameters, *program.graph_signature.buffers)
        if name in program.state_dict
    }
    found.update({name: constants[name] for name in program.graph_signature.non_persistent_buffers})
    return found


def aliases(program: Any) -> dict[str, list[str]]:
    """Returns, for each name of a weight with several names, the others: the compiled library uses one of them."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in {**program.state_dict, **weights(program)}.items():
        if tensor.numel() > 0:
            place = tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())
            groups.setdefault(place, []).append(name)
    several = (names for names in groups.values() if len(names) > 1)
    return {name: [other for other in names if other != name] for names in several for name in names}


def difference(ours: str, theirs: str) -> str:
    """Returns the first difference between two descriptions, in words; "" if there is none."""
    if ours == theirs:
        return ""
    here, there = ours.splitlines(), theirs.splitlines()
    for mine, other in zip(here, there):
        if mine != other:
            place, _, fact = mine.partition(": ")
            other_place, _, other_fact = other.partition(": ")
            if place == other_place:
                return f"{place}: {fact} here, {other_fact} there"
            return f"{place}: {fact} here; {other_place}: {other_fact} there"
    longer, where = (here, "here") if len(here) > len(there) else (there, "there")
    return f"{longer[min(len(here), len(there))]} {where} alone"


class _Writer:
    """Writes one description. Nodes are numbered in their order, symbols in the order in which they appear."""

    def __init__(self, program: Any, frozen: bool) -> None:
        import sympy  # type: ignore[import-untyped]
        import torch

        self.torch, self.sympy = torch, sympy
        self.program, self.frozen = program, frozen
        self.lines: list[str] = [f"format: {FORMAT}"]
        self.symbols: dict[Any, Any] = {}
        self.hints: dict[str, int] = {}
        self.schemas: dict[str, str] = {}
        self.texts: dict[Any, str] = {}  # texts of expressions

    def write(self) -> str:
        program = self.program
        self._write_structure()
        self._write_inputs()
        self._write_aliases()
        self._write_graph("the graph", program.graph_module)
        self._write_outputs()
        self._write_symbols()
        for name in sorted(self.schemas):
            self.lines.append(f"operator {name}: {self.schemas[name]}")
        return "\n".join(self.lines) + "\n"

    # ---- the signature ----

    def _write_structure(self) -> None:
        pytree = self.torch.utils._pytree
        specs = program_specs(self.program)
        for name, spec in zip(("arguments", "results"), specs):
            try:
                text = pytree.treespec_dumps(spec)
            except Exception:  # noqa: BLE001 - a class without a serialized name
                text = str(spec)
            self.lines.append(f"{name}: {text}")

    def _write_inputs(self) -> None:
        placeholders = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        state, constants = self.program.state_dict, self.program.constants
        for number, spec in enumerate(self.program.graph_signature.input_specs):
            kind = spec.kind.name.lower()
            node = placeholders.get(getattr(spec.arg, "name", ""))
            value = (
                self._value(node.meta.get("val"))
                if node is not None
                else self._argument(getattr(spec.arg, "value", None), {})
            )
            if kind in ("parameter", "buffer"):
                tensor = state.get(spec.target, constants.get(spec.target))
                text = f"{value} persistent" if getattr(spec, "persistent", None) else value
                if self.frozen:
                    text += f" {tensor_digest(self.torch, tensor)}"
                self.lines.append(f"the {kind} {spec.target}: {text}")
            elif kind == "constant_tensor":
                self.lines.append(
                    f"the constant of input {number}: {value} {tensor_digest(self.torch, constants[spec.target])}"
                )
            elif kind in ("user_input", "token"):
                self.lines.append(f"input {number}: {value}")
            else:
                raise AoticacheError(
                    f"the program has an object as its input ({spec.target}): it has no key", "UNSUPPORTED"
                )

    def _write_outputs(self) -> None:
        numbers = {node.name: f"%{number}" for number, node in enumerate(self.program.graph.nodes)}
        inputs = {
            getattr(spec.arg, "name", ""): f"input {number}"
            for number, spec in enumerate(self.program.graph_signature.input_specs)
        }
        for number, spec in enumerate(self.program.graph_signature.output_specs):
            name = getattr(spec.arg, "name", None)
            value = numbers.get(name, "?") if name else self._argument(getattr(spec.arg, "value", None), {})
            target = inputs.get(spec.target, spec.target)
            self.lines.append(f"output {number}: {spec.kind.name.lower()} {value}" + (f" {target}" if target else ""))

    def _write_aliases(self) -> None:
        groups: dict[int, list[str]] = {}
        for name, tensor in sorted({**self.program.state_dict, **weights(self.program)}.items()):
            if isinstance(tensor, self.torch.Tensor) and tensor.layout == self.torch.strided and tensor.numel() > 0:
                place = f"{name}+{tensor.storage_offset()}"
                groups.setdefault(tensor.untyped_storage().data_ptr(), []).append(place)
        for names in sorted(group for group in groups.values() if len(group) > 1):
            self.lines.append(f"one memory: {' '.join(names)}")

    # ---- graphs ----

    def _write_graph(self, where: str, module: Any) -> None:
        numbers: dict[Any, str] = {}
        later: list[tuple[str, Any]] = []
        for number, node in enumerate(module.graph.nodes):
            numbers[node] = f"%{number}"
            if node.op == "placeholder":
                if module is not self.program.graph_module:
                    self.lines.append(f"node {number} of {where}: takes {self._value(node.meta.get('val'))}")
                continue
            place = f"node {number} of {where}"
            if node.op == "get_attr":
                self.lines.append(f"{place}: {self._attribute(module, node.target, number, where, later)}")
                continue
            if node.op == "output":
                self.lines.append(f"{place}: gives {self._argument(node.args[0], numbers)}")
                continue
            arguments = [self._argument(argument, numbers) for argument in node.args]
            arguments += [f"{name}={self._argument(value, numbers)}" for name, value in sorted(node.kwargs.items())]
            value = self._value(node.meta.get("val"))
            self.lines.append(f"{place}: {self._target(node.target)}({', '.join(arguments)}) -> {value}")
        for name, inner in later:
            self._write_graph(name, inner)

    def _attribute(self, module: Any, target: str, number: int, where: str, later: list[tuple[str, Any]]) -> str:
        value = module
        for part in target.split("."):
            value = getattr(value, part)
        if isinstance(value, self.torch.fx.GraphModule):
            name = f"the graph at node {number} of {where}"
            later.append((name, value))
            return name
        if isinstance(value, self.torch.Tensor):
            return f"{self._value(value)} {tensor_digest(self.torch, value)}"
        raise AoticacheError(
            f"the program has an object of {type(value).__name__} ({target}): it has no key", "UNSUPPORTED"
        )

    def _target(self, target: Any) -> str:
        if isinstance(target, self.torch._ops.OpOverload):
            name = str(target)
            if target.namespace not in _OWN_NAMESPACES:
                self.schemas[name] = str(target._schema)
            return name
        if isinstance(target, self.torch._ops.HigherOrderOperator):
            name = str(target.name())  # type: ignore[no-untyped-call]
            return f"higher_order.{name}"
        if isinstance(target, str):
            return target
        return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', type(target).__name__)}"

    def _argument(self, value: Any, numbers: Mapping[Any, str]) -> str:
        torch = self.torch
        if isinstance(value, torch.fx.Node):
            return numbers[value]
        if isinstance(value, bool) or value is None or isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return value.hex() if math.isfinite(value) else f"{math.copysign(1, value):+.0f}{abs(value)}"
        if isinstance(value, complex):
            return f"complex({self._argument(value.real, numbers)}, {self._argument(value.imag, numbers)})"
        if isinstance(value, str):
            return ascii(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._expression(value.node.expr)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._argument(item, numbers) for item in value)}]"
        if isinstance(value, dict):
            items = (f"{self._argument(key, numbers)}: {self._argument(item, numbers)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, slice):
            return f"slice{self._argument((value.start, value.stop, value.step), numbers)}"
        if isinstance(value, torch.device):
            return str(value.type)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return self._target(value)
        if isinstance(value, torch.Tensor):
            return f"{self._value(value)} {tensor_digest(torch, value)}"
        raise AoticacheError(f"the program has a value of {type(value).__name__}: it has no key", "UNSUPPORTED")

    def _value(self, value: Any) -> str:
        """Describes a node's result."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            strides = self._sizes(value.stride()) if value.layout == torch.strided else str(value.layout)
            offset = value.storage_offset() if value.layout == torch.strided else 0
            place = "" if isinstance(offset, int) and offset == 0 else f" at {self._size(offset)}"
            dtype = str(value.dtype).removeprefix("torch.")
            return f"{dtype}{self._sizes(value.shape)} strides {strides}{place} {value.device.type}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(self._value(item) for item in value)})"
        return self._argument(value, {})

    # ---- sizes ----

    def _sizes(self, sizes: Iterable[Any]) -> str:
        return f"[{', '.join(map(self._size, sizes))}]"

    def _size(self, size: Any) -> str:
        if isinstance(size, int):
            return str(size)
        text = self._expression(size.node.expr)
        if text in self.names and text not in self.hints and isinstance(getattr(size.node, "hint", None), int):
            self.hints[text] = size.node.hint
        return text

    @property
    def names(self) -> set[str]:
        return {str(symbol) for symbol in self.symbols.values()}

    def _expression(self, expression: Any) -> str:
        if not hasattr(expression, "free_symbols"):
            return str(expression)
        text = self.texts.get(expression)
        if text is None:
            for symbol in sorted(expression.free_symbols, key=_symbol_order):
                if symbol not in self.symbols:
                    name = f"n{len(self.symbols)}"
                    self.symbols[symbol] = self.sympy.Symbol(
                        name, integer=symbol.is_integer, positive=symbol.is_positive
                    )
            text = str(expression.xreplace(self.symbols))
            self.texts[expression] = text
        return text

    def _write_symbols(self) -> None:
        for symbol, name in self.symbols.items():
            limits = self.program.range_constraints.get(symbol)
            text = f"{limits.lower} to {limits.upper}" if limits is not None else "any"
            # Code is generated for sizes like those of the example; a size twice as large does not make it another program.
            hint = self.hints.get(str(name))
            self.lines.append(
                f"the symbol {name}: {text}"
                + (f", like {1 << max(hint.bit_length() - 1, 0)}" if hint is not None else "")
            )
        for guard in sorted(set(getattr(self.program, "_guards_code", None) or ())):
            self.lines.append(f"condition: {guard}")


def _symbol_order(symbol: Any) -> tuple[str, int, str]:
    """Returns a sort key that puts s2 before s10: the order in which they were created."""
    name = str(symbol)
    digits = name.lstrip("abcdefghijklmnopqrstuvwxyz_")
    return name[: len(name) - len(digits)], int(digits) if digits.isdigit() else 0, name


def program_specs(program: Any) -> tuple[Any, Any]:
    """Returns the structures of arguments and results."""
    spec = program.call_spec
    return spec.in_spec, spec.out_spec


def tensor_digest(torch: Any, tensor: Any) -> str:
    """Returns the digest of the elements in row-major order."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    count = tensor.numel() * tensor.element_size()
    content = memoryview((ctypes.c_char * count).from_address(tensor.data_ptr())).cast("B") if count else b""
    return hashlib.sha256(content).hexdigest()
