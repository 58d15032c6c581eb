"""Draws random calls of ATen operators (by a seed) from PyTorch's operator database, written as holder_host.py
writes values, with eager PyTorch's results.

A sample of the database is run under a mode that sees the calls at the level of ATen: overloads with their exact
schemas and arguments. Calls that no holder serves (operators that write to their arguments, return views, return no
tensors) and calls without a comparable result (random numbers, uninitialized memory, sizes that depend on data) are
left out and counted. Needs PyTorch; operator_table.load_torch() must run first.
"""
import itertools
import random
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import operator_table
import tensor_file
from runner_tensors import ELEMENT_BYTES, TorchTensors

MAX_ELEMENTS = 1 << 15
SAMPLES = 10
MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2,
                  torch.channels_last_3d: 3}
LISTS = {"IntType": "ints", "SymIntType": "ints", "FloatType": "doubles", "BoolType": "bools", "StringType": "strings"}
SINGLE = {"IntType": ("int", int), "SymIntType": ("int", int), "FloatType": ("double", float),
          "BoolType": ("bool", bool), "StringType": ("string", str)}
TENSORS = TorchTensors(torch, tensor_file)


class LeftOut(Exception):
    """Raised with the reason why a call is left out."""


# ---- values ----

def write_tensor(tensor):
    if type(tensor) is not torch.Tensor and not isinstance(tensor, torch.nn.Parameter):
        raise LeftOut("a tensor of a subclass")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise LeftOut("a tensor that is not strided")
    if tensor.dtype not in tensor_file.NUMBERS or tensor_file.NUMBERS[tensor.dtype] not in ELEMENT_BYTES:
        raise LeftOut(f"a tensor of {tensor.dtype}")
    if tensor.is_conj() or tensor.is_neg():
        raise LeftOut("a tensor that is a conjugate or negative view")
    if tensor.numel() > MAX_ELEMENTS:
        raise LeftOut("a large tensor")
    return [*TENSORS.describe(tensor), torch._C._dispatch_keys(tensor).raw_repr()]


def write_scalar(value):
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return [{bool: "bool", int: "int", float: "double"}[kind], value]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    raise LeftOut(f"a scalar that is {type(value).__name__}")


def write_list(element, values):
    kind = element.kind()
    if kind == "OptionalType":
        kind = element.getElementType().kind()
    if kind == "TensorType":
        return ["tensors", [None if one is None else write_tensor(one) for one in values]]
    if kind == "NumberType":
        return ["scalars", [write_scalar(one) for one in values]]
    if kind not in LISTS:
        raise LeftOut(f"a list of {element}")
    return [LISTS[kind], [SINGLE.get(kind)[1](one) for one in values]]


def write_value(kind, value):
    """Writes a value. kind: a type of a schema."""
    if kind.kind() == "OptionalType":
        return ["none"] if value is None else write_value(kind.getElementType(), value)
    if isinstance(value, torch.dtype) and value in tensor_file.NUMBERS:
        return ["dtype", tensor_file.NUMBERS[value]]
    if value is torch.strided:
        return ["layout", 0]
    if isinstance(value, torch.memory_format):
        return ["memory_format", MEMORY_FORMATS[value]]
    if isinstance(value, torch.device) and value.type == "cpu":
        return ["device", 0, -1]
    if kind.kind() == "ListType":
        return write_list(kind.getElementType(), value)
    if kind.kind() == "TensorType":
        # A number in the position of a tensor, which PyTorch wraps.
        return ["tensor", write_tensor(value if isinstance(value, torch.Tensor) else torch.tensor(value))]
    if kind.kind() == "NumberType":
        return write_scalar(value)
    if kind.kind() not in SINGLE:
        raise LeftOut(f"an argument that is {kind}")
    name, convert = SINGLE[kind.kind()]
    return [name, convert(value)]


def write_arguments(schema, args, kwargs):
    """Writes the arguments in the order of the schema, up to the last one that is given."""
    values, last = [], 0
    for i, argument in enumerate(schema.arguments):
        given = i < len(args) or argument.name in kwargs
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        values.append(write_value(argument.real_type, value) if given or value is not None else ["none"])
        last = i + 1 if given else last
    return values[:last]


def read_value(value):
    """Returns a value in the form that PyTorch takes."""
    kind, content = value[0], value[1] if len(value) > 1 else None
    if kind == "tensor":
        return TENSORS.make(content[:4])
    if kind == "tensors":
        return [None if one is None else TENSORS.make(one[:4]) for one in content]
    if kind == "scalars":
        return [read_value(one) for one in content]
    if kind == "complex":
        return complex(*value[1:])
    if kind in ("dtype", "layout", "device", "memory_format"):
        return {"dtype": tensor_file.DTYPES.get(content), "layout": torch.strided, "device": torch.device("cpu"),
                "memory_format": {number: one for one, number in MEMORY_FORMATS.items()}.get(content)}[kind]
    return content


# ---- what is included ----

def reason_to_refuse(schema):
    """Returns why no holder can be made for the schema, or None if one can."""
    if schema.is_mutable:
        return "writes to its arguments"
    if any(one.alias_info is not None for one in [*schema.arguments, *schema.returns]):
        return "returns a view"
    kinds = [one.real_type.kind() for one in schema.returns]
    single_list = len(kinds) == 1 and kinds[0] == "ListType" and (
        schema.returns[0].real_type.getElementType().kind() == "TensorType")
    if not kinds or (not single_list and any(kind != "TensorType" for kind in kinds)):
        return "gives no tensors"
    return None


def reason_to_leave(func):
    tags = set(func.tags)
    if func.namespace != "aten":
        return "is no ATen operator"
    if torch.Tag.nondeterministic_seeded in tags or any(
            one.real_type.kind() == "OptionalType" and str(one.real_type).find("Generator") >= 0
            for one in func._schema.arguments):
        return "random numbers"
    if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & tags:
        return "sizes or results that depend on data"
    if "empty" in func._schema.name:
        return "memory as it is"
    return None


class Recorder(TorchDispatchMode):
    """calls: (overload, written arguments); refused: schemas by reason; left: counts by reason."""

    def __init__(self, refused, left):
        super().__init__()
        self.calls, self.refused, self.left = [], refused, left

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        arguments = None
        refusal = reason_to_refuse(func._schema)
        if refusal is not None:
            self.refused.setdefault(refusal, set()).add(str(func._schema))
        reason = refusal or reason_to_leave(func)
        try:
            if reason is None:
                arguments = write_arguments(func._schema, args, kwargs or {})
        except LeftOut as error:
            reason = str(error)
        result = func(*args, **(kwargs or {}))
        if reason is not None:
            self.left[reason] = self.left.get(reason, 0) + 1
        elif arguments is not None:
            self.calls.append((func, arguments))
        return result


# ---- drawing ----

def record_sample(info, dtype, draw, refused, left):
    torch.manual_seed(draw.randrange(1 << 30))
    samples = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES))
    if not samples:
        return []
    sample = draw.choice(samples)
    recorder = Recorder(refused, left)
    with torch.no_grad(), recorder:
        info.op(sample.input, *sample.args, **sample.kwargs)
    return recorder.calls


def compiled_results(call):
    """Returns the results of PyTorch's own compiler for a call, which sometimes differ from eager PyTorch."""
    namespace, name, overload = call["operator"].split(".")
    func = getattr(getattr(getattr(torch.ops, namespace), name), overload)

    def compiled(*args, **kwargs):
        return torch.compile(lambda: func(*args, **kwargs), fullgraph=True)()

    return expected_results(func, call["arguments"], compiled)


def expected_results(func, arguments, run=None):
    values = [read_value(value) for value in arguments]
    positional = [value for value, one in zip(values, func._schema.arguments) if not one.kwarg_only]
    keywords = {one.name: value for value, one in zip(values, func._schema.arguments) if one.kwarg_only}
    with torch.no_grad():
        results = (run or func)(*positional, **keywords)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    return [write_tensor(one)[:4] for one in results]


def metadata_of(func, arguments):
    """Returns what a request contains: everything except data."""
    def strip(value):
        if value[0] == "tensor":
            return ["tensor", value[1][:3]]
        if value[0] == "tensors":
            return ["tensors", [one and one[:3] for one in value[1]]]
        return value
    return repr([str(func), *map(strip, arguments)])


def draw_calls(seed, count):
    """Returns the calls, the schemas that no holder takes by reason, and how many other calls were left out by
    reason."""
    warnings.simplefilter("ignore")
    draw, operators = random.Random(seed), operator_table.database()
    names, refused, left = sorted(operators), {}, {}
    calls, seen, overloads = [], set(), {}
    while len(calls) < count:
        name = draw.choice(names)
        dtypes = sorted((one for one in operators[name].supported_dtypes("cpu")
                         if tensor_file.NUMBERS.get(one) in ELEMENT_BYTES), key=str)
        dtype = draw.choice(dtypes or [torch.float32])
        try:
            found = record_sample(operators[name], dtype, draw, refused, left)
            found = [call for call in found if metadata_of(*call) not in seen]
            if not found:
                continue
            least = min(overloads.get(str(func), 0) for func, _ in found)
            func, arguments = draw.choice([call for call in found if overloads.get(str(call[0]), 0) == least])
            expected = expected_results(func, arguments)
        except Exception as error:  # this PyTorch does not accept the sample as it is
            reason = "PyTorch's own error" if not isinstance(error, LeftOut) else str(error)
            left[reason] = left.get(reason, 0) + 1
            continue
        seen.add(metadata_of(func, arguments))
        overloads[str(func)] = overloads.get(str(func), 0) + 1
        calls.append({"operator": str(func), "schema": str(func._schema), "sample": f"{name}, {dtype}",
                      "arguments": arguments, "expected": expected})
    return calls, {reason: sorted(schemas) for reason, schemas in refused.items()}, left
