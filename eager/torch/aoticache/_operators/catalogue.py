"""Operators: which exist, their names, and which of them can be served.

Everything is asked from PyTorch's dispatcher. This module lists operators only for presets (other than the pointwise ones), and
to leave some out of presets.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .._core.errors import OperatorNotFoundError, OperatorRefusedError
from .._core.pytorch import require_torch
from .compositions import PARTS

DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA"}

# Kernel libraries and PyTorch itself call these everywhere; there is nothing in them to compile.
PLUMBING = frozenset(
    "aten::" + name
    for name in (
        "clone copy _to_copy contiguous empty_like new_empty new_empty_strided lift lift_fresh_copy _lazy_clone set "
        "resize resize_as _resize_output _pin_memory zero fill.Scalar fill.Tensor alias_copy detach_copy zeros_like "
        "ones_like full_like new_zeros new_ones new_full _reshape_copy _unsafe_view"
    ).split()
)

# PyTorch's compiler generates a loop for the given sizes and strides; PyTorch's kernel computes them in every call. clone(),
# contiguous(), to() and addmm() call one of these operators. On a GPU the driver does the copy.
COPIES = frozenset(("aten::copy_", "aten::clone"))

# They change the sizes of an argument.
RESIZERS = frozenset({"aten::resize", "aten::resize_as", "aten::resize_as_sparse"})
# They change arguments (running statistics) that their schema does not mark as written.
WRITERS = frozenset(f"aten::{name}" for name in ("cudnn_batch_norm", "miopen_batch_norm"))

# Their kernels refuse some values of their arguments, or treat them specially: targets of -1, probabilities.
CHECKS_OF_VALUES = frozenset(
    f"aten::{name}"
    for name in (
        *("binary_cross_entropy", "binary_cross_entropy_backward", "multilabel_margin_loss_forward"),
        *("multi_margin_loss",),
    )
)

# PyTorch's compiler compiles these to a call of the same PyTorch kernel.
CALLED_AGAIN = (
    "aten::mm",
    "aten::bmm",
    "aten::addmm",
    "aten::baddbmm",
    "aten::addbmm",
    "aten::_int_mm",
    "aten::convolution*",
    "aten::_convolution",
    "aten::mkldnn_*",
    "aten::linalg_*",
    "aten::_linalg_*",
    "aten::cholesky*",
    "aten::_cholesky*",
    "aten::_fft_*",
    "aten::quantize*",
    "aten::_scaled_dot_product_*",
    "aten::special_*polynomial*",
    "aten::special_airy_ai",
    "aten::_test_*",
    "aten::_foobar",
    "aten::_fused_*",
)

# PyTorch uses MKL's functions for these. On Intel's processors they are faster than the code of PyTorch's compiler from a
# thousand elements on, and five times as fast for a million.
FASTER_BY_MKL = frozenset(("aten::tanh", "aten::erfc"))

# Code of PyTorch's compiler for these gives other values than PyTorch for some numbers (docs/results/torch-checks.md).
OTHER_VALUES = {
    "aten::acosh": "overflows for numbers whose square does",
}

# The preset "safe" contains these in addition to all pointwise operators and reductions.
SAFE = tuple(
    "aten::" + name
    for name in (
        "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data native_layer_norm "
        "native_layer_norm_backward native_group_norm _native_batch_norm_legit_no_training hardswish "
        "hardswish_backward glu leaky_relu_backward elu_backward softplus_backward hardsigmoid_backward rsub.Tensor "
        "mse_loss huber_loss smooth_l1_loss masked_fill.Tensor tril triu flip roll cat stack constant_pad_nd "
        "avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices upsample_nearest2d upsample_bilinear2d "
        "index_select gather embedding cumsum floor_divide native_batch_norm native_batch_norm_backward abs_ "
        "masked_fill_.Scalar masked_fill_.Tensor hardswish_ mish_ copy_ clone"
    ).split()
)
PRESETS = {
    "pointwise": "every operator that PyTorch tags as pointwise",
    "safe": "pointwise ones, reductions, softmax, norms, pooling, padding, concatenation, copies, lists for optimizers",
}

# Operators on lists of tensors in "safe": those that PyTorch's optimizers call with foreach=True.
LISTS = re.compile(r"aten::_foreach_(?:(?:add|sub|mul|div|addcmul|addcdiv|lerp|neg|sqrt|maximum|reciprocal)_|sqrt|neg|add|mul|div)(?:\.|$)")

# Words in the types of arguments: PyTorch objects without values to compile for.
FOREIGN = ("__torch__", "Storage", "Stream")

_SPECIAL = frozenset("*?[")
_COMPOSITION = "it is a composition"


@dataclass(frozen=True)
class Explanation:
    """Whether an operator can be served on a device, and if not, why. `str()` gives one human-readable line."""

    operator: str
    device: str
    served: bool
    #: Why it is not served; if it is, a note about it.
    reason: str
    schema: str = ""
    #: For a composition of other operators: the operators that it calls, which can be served instead.
    decomposes_into: tuple[str, ...] = ()
    #: Whether patterns and presets leave it out, although it can be served if it is named.
    left_out: bool = field(default=False, compare=False)

    def __bool__(self) -> bool:
        return self.served

    def __str__(self) -> str:
        verdict = "can be served" if self.served else "is not served"
        return f"{self.operator} {verdict} on {self.device}" + (f": {self.reason}" if self.reason else "")


# ---- names ----


def all_names() -> frozenset[str]:
    """Returns every operator of the dispatcher: "aten::add.Tensor"."""
    return frozenset(require_torch()._C._dispatch_get_all_op_names())


def exists(name: str) -> bool:
    """Returns whether the dispatcher has the operator, without fetching thousands of names."""
    return bool(require_torch()._C._dispatch_has_kernel(name))


def name_of(operator: Any) -> str:
    """Returns the dispatcher's name of a name, an OpOverload or an OpOverloadPacket."""
    if isinstance(operator, str):
        name = operator.strip()
        if "::" not in name:
            head, _, rest = name.partition(".")
            torch_ops = getattr(require_torch().ops, head, None)
            # "aten.add.Tensor", as PyTorch prints it
            if rest and head == "aten" and torch_ops is not None:
                name = f"{head}::{rest}"
            else:
                name = f"aten::{name}"
        return name.removesuffix(".default")
    torch = require_torch()
    if isinstance(operator, torch._ops.OpOverload):
        return str(operator.name())
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return str(operator._qualified_op_name)
    if callable(operator):
        return _name_of_function(operator)
    raise TypeError(
        "an operator is a name, one of torch.ops or a function of PyTorch's, "
        f"not {type(operator).__name__}: {operator!r}"
    )


def _name_of_function(function: Any) -> str:
    """Returns the operator's name for torch.abs, torch.Tensor.abs, torch.nn.functional.relu: the function's name."""
    found = require_torch().overrides.resolve_name(function)
    if found is None:
        text = getattr(function, "__qualname__", repr(function))
        raise OperatorNotFoundError(f"{text} is not a function of PyTorch that has an operator of its name: name the operator")
    return f"aten::{found.rpartition('.')[2]}"


def flatten(requests: Iterable[Any]) -> list[Any]:
    """Flattens the arguments of enable() and disable(), and normalizes the names of presets."""
    found: list[Any] = []
    for request in requests:
        if isinstance(request, list | tuple | set | frozenset):
            found.extend(flatten(request))
            continue
        word = request.strip().lower() if isinstance(request, str) else ""
        if word == "all":
            raise OperatorNotFoundError(
                f'"{request}" is neither a preset nor taken for an operator: the presets are '
                f'{", ".join(PRESETS)}, every operator that can be served is "aten::*", and the operator is "aten::all"'
            )
        found.append(word if word in PRESETS else request)
    return found


def is_function(request: Any) -> bool:
    """Returns whether the request means all overloads of what it names."""
    kinds = require_torch()._ops
    return callable(request) and not isinstance(request, (kinds.OpOverload, kinds.OpOverloadPacket))


def served_overloads(function: Any, device: str) -> list[str]:
    """Returns the operators that a function of PyTorch may call. Raises if none of them can be served."""
    base = name_of(function)
    names = [name for name in sorted(all_names()) if name.partition(".")[0] == base]
    if not names:
        check_name(base)
    verdicts = [explain_name(name, device) for name in names]
    outs = {name for name in names if (found := find_overload(name)) is not None and is_out(found._schema)}
    served = [one.operator for one in verdicts if one.served and not (one.left_out and one.operator in outs)]
    if not set(served) - outs:
        raise OperatorRefusedError(str(next((one for one in verdicts if one.decomposes_into), verdicts[0])))
    return served


def find_overload(name: str) -> Any:
    """Returns the OpOverload of a dispatcher's name; None if the dispatcher has none."""
    torch = require_torch()
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError:
        return None


def overloads_of(base: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(base + "."))


def check_name(name: str) -> None:
    """Raises OperatorNotFoundError, with the nearest names, unless the operator exists."""
    if exists(name):
        return
    names = all_names()
    if name in names:
        return
    overloads = overloads_of(name, names)
    if overloads:
        functional = [one for one in overloads if not one.endswith("out")] or overloads
        raise OperatorNotFoundError(
            f"operator {name} has no unnamed overload: use one of {', '.join(functional)}, or all of them by "
            f"the pattern {name}.*",
            tuple(functional),
        )
    near = suggestions(name, names)
    hint = f"did you mean {' or '.join(near)}?" if near else "aoticache.operators() lists those there are"
    raise OperatorNotFoundError(f"unknown operator {name}: {hint}", near)


def suggestions(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the nearest names, nearest first: of operators or, if the operator exists, of its overloads."""
    known = sorted(names)
    base, _, overload = name.partition(".")
    if overload:
        same = [one for one in known if one.partition(".")[0] == base]
        if same:
            return tuple(difflib.get_close_matches(name, same, 3, 0.0))
    close = difflib.get_close_matches(base, {one.partition(".")[0] for one in known}, 3, 0.7)
    return tuple(close or difflib.get_close_matches(name, known, 3, 0.6))


def is_pattern(name: str) -> bool:
    return any(letter in _SPECIAL for letter in name)


def match(pattern: str) -> list[str]:
    """Returns the operators that a shell pattern matches, with or without their overload. Raises if there are none."""
    found = sorted(
        name
        for name in all_names()
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name.partition(".")[0], pattern)
    )
    if not found:
        raise OperatorNotFoundError(f"no operator matches the pattern {pattern}")
    return found


# ---- which operators can be served ----


def _types(items: Iterable[Any]) -> list[str]:
    return [str(item.type) for item in items]


def _written(schema: Any) -> list[Any]:
    """Returns the arguments that an operator writes to, according to its schema."""
    return [one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write]


def is_out(schema: Any) -> bool:
    """Returns whether it is a variant that writes its results to keyword arguments: "add.out"."""
    return any(argument.kwarg_only for argument in _written(schema))


def functional_name(name: str) -> str:
    """Returns the functional variant of an in-place operator: "aten::add.Tensor" for "aten::add_.Tensor"."""
    base, dot, overload = name.partition(".")
    return (base[:-1] if base.endswith("_") and not base.endswith("__") else base) + dot + overload


def _refuse_schema(schema: Any) -> str:
    if any(value.alias_info is not None and not value.alias_info.is_write for value in schema.returns):
        return "it returns a view of its argument, and a compiled kernel makes new tensors"
    if not schema.returns and not _written(schema):
        return "it returns nothing"
    odd = [text for text in _types(schema.returns) if text not in ("Tensor", "List[Tensor]")]
    if odd:
        return f"it returns a value of type {odd[0]}, and a compiled kernel returns tensors"
    if len(schema.returns) > 1 and "List[Tensor]" in _types(schema.returns):
        return "it returns a list of tensors in addition to other results, which a holder does not take apart"
    foreign = [text for text in _types(schema.arguments) if any(word in text for word in FOREIGN)]
    if foreign:
        return f"it takes an argument of type {foreign[0]}, which no compiled kernel takes"
    if not any("Tensor" in text for text in _types(schema.arguments)):
        return "it has no tensor among its arguments, so there is nothing to compile for"
    return ""


def _refuse_tags(tags: Iterable[Any]) -> str:
    names = {tag.name for tag in tags}
    if "nondeterministic_seeded" in names:
        return "it draws random numbers, which PyTorch's generator and a compiled kernel draw differently"
    if "dynamic_output_shape" in names:
        return "the sizes of its results depend on the values of its arguments"
    if "data_dependent_output" in names:
        return "its result depends on the values of its arguments"
    if "inplace_view" in names:
        return "it changes its argument's sizes, strides or memory in place"
    return ""


def _has(name: str, key: str) -> bool:
    return bool(require_torch()._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _refuse_write(name: str, schema: Any) -> str:
    """Refuses an operator that writes if PyTorch's compiler cannot replace it with one that does not."""
    if _written(schema) and not _has(name, "Functionalize"):
        return "it writes to its argument, and PyTorch's compiler has no form of it that does not"
    return ""


def _refuse_kernel(name: str, key: str) -> str:
    """Returns why no kernel can be registered for this dispatch key, according to the dispatcher's table."""
    if _has(name, "CompositeImplicitAutograd") and not _has(name, key):
        return (
            f"{_COMPOSITION} of other operators that autograd sees through, so a kernel of its own would take its "
            "gradient away"
        )
    if not require_torch()._C._dispatch_has_computed_kernel_for_dispatch_key(name, key):
        return f"PyTorch has no {key} kernel for it"
    return ""


@functools.cache
def mkl_is_fast() -> bool:
    """Returns whether PyTorch has MKL and the processor is one that MKL is made for."""
    if not require_torch().backends.mkl.is_available():
        return False
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return any(line.startswith("vendor_id") and "GenuineIntel" in line for line in file)
    except OSError:
        return False


def _leave_out(operator: Any, name: str, device: str) -> str:
    is_variant, tags = is_out(operator._schema), {tag.name for tag in operator.tags}
    if is_variant and "generated" in tags:
        return "it is the operator without out and a copy; patterns and presets leave it out"
    if name in COPIES and device == "cpu":
        return ""
    name = functional_name(name)
    base = name.partition(".")[0]
    if name in PLUMBING or (is_variant and base in PLUMBING):
        return "it only moves or makes memory; patterns and presets leave it out"
    name = base if is_variant else name
    if base in CHECKS_OF_VALUES:
        return "it looks at the values of its arguments, which a compiled kernel does not; PyTorch's own kernel answers"
    if any(fnmatch.fnmatchcase(base, pattern) for pattern in CALLED_AGAIN):
        return "PyTorch's compiler makes it a call of PyTorch's own kernel; patterns and presets leave it out"
    if name in OTHER_VALUES:
        return f"what PyTorch's compiler makes of it {OTHER_VALUES[name]}; patterns and presets leave it out"
    if name in FASTER_BY_MKL and device == "cpu" and mkl_is_fast():
        return "MKL is faster than what PyTorch's compiler makes; patterns and presets leave it out on this processor"
    return ""


def explain_name(name: str, device: str) -> Explanation:
    """Explains whether an existing operator can be served."""
    operator = find_overload(name)
    if operator is None:
        return Explanation(name, device, False, "it is not in torch.ops")
    schema = operator._schema
    text = str(schema)
    refusal = _refuse_schema(schema) or _refuse_tags(operator.tags) or _refuse_write(name, schema)
    if functional_name(name).partition(".")[0] in RESIZERS:
        refusal = "it changes its argument's sizes, and a compiled kernel writes to tensors as they are"
    if name in WRITERS:
        refusal = "it writes to running statistics without saying so in its schema"
    if refusal:
        return Explanation(name, device, False, refusal, text)
    refusal = _refuse_kernel(name, DISPATCH_KEYS[device])
    if not refusal:
        left_out = _leave_out(operator, name, device)
        return Explanation(name, device, True, left_out, text, left_out=bool(left_out))
    parts = PARTS.get(name, ())
    if parts:
        refusal += f"; enable what it calls instead: {', '.join(parts)}"
    elif refusal.startswith(_COMPOSITION):
        refusal += "; enable what it calls instead"
    return Explanation(name, device, False, refusal, text, parts)


# ---- choosing ----


def expand_preset(preset: str, device: str) -> list[str]:
    torch = require_torch()
    found = []
    for name in all_names():
        if not name.startswith("aten::"):
            continue
        operator = find_overload(name)
        if operator is None:
            continue
        tags = operator.tags
        if is_out(operator._schema):  # callers request them by name
            continue
        if torch.Tag.pointwise in tags:
            found.append(name)
        elif preset == "safe" and LISTS.match(name):
            found.append(name)
        elif preset == "safe" and getattr(torch.Tag, "reduction", None) in tags:
            found.append(name)
    if preset == "safe":
        names = all_names()
        found.extend(name for name in SAFE if name in names)
    verdicts = (explain_name(name, device) for name in sorted(set(found)))
    return [verdict.operator for verdict in verdicts if verdict.served and not verdict.left_out]


@dataclass(frozen=True)
class Choice:
    """The operators of a call of enable(), in order; which of them were named exactly; and those that were skipped."""

    operators: tuple[str, ...]
    exact: frozenset[str]
    skipped: dict[str, str]


def choose(requests: Iterable[Any], device: str) -> Choice:
    """
    Returns the operators that names, patterns and presets select, and the operators that patterns match but that cannot be
    served, with the reason. An operator that is named exactly and cannot be served is an error.
    """
    chosen: dict[str, None] = {}
    exact: set[str] = set()
    skipped: dict[str, str] = {}
    for request in flatten(requests):
        if isinstance(request, str) and request in PRESETS:
            chosen.update(dict.fromkeys(expand_preset(request, device)))
            continue
        if is_function(request):
            chosen.update(dict.fromkeys(served_overloads(request, device)))
            continue
        name = name_of(request)
        if is_pattern(name):
            for one in match(name):
                verdict = explain_name(one, device)
                if verdict.served and not verdict.left_out:
                    chosen[one] = None
                else:
                    skipped[one] = verdict.reason
            continue
        check_name(name)
        verdict = explain_name(name, device)
        if not verdict.served:
            raise OperatorRefusedError(str(verdict))
        chosen[name] = None
        exact.add(name)
    return Choice(tuple(chosen), frozenset(exact), {n: why for n, why in skipped.items() if n not in chosen})


def known_operators(device: str = "cpu") -> list[str]:
    """Returns all operators of PyTorch's own library that can be served on a device."""
    return sorted(
        name for name in all_names() if name.startswith("aten::") and explain_name(name, device).served
    )
