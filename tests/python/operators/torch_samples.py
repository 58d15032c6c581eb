"""Draws samples of PyTorch's operator database by a seed, runs and compares them, for test_torch_operators.py.

A sample is named by (operator, dtype, kind, index, grad). Every process makes it again from this name, with the same
numbers in its tensors. Its outcome is what it returns or raises, the gradients of its inputs if `grad` is set, and the
inputs afterwards. Needs PyTorch; operator_table.load_torch() must run first.
"""
import itertools
import random
import zlib
from dataclasses import dataclass, field

import numpy
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import operator_table
from holder_calls import TENSORS
from test_holder_operators import judge_tensor

DTYPES = {str(one).removeprefix("torch."): one
          for one in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)}
SAMPLES, MAX_ELEMENTS = 12, 1 << 14
MOST_CALLS = 5  # calls of one sample that would have to be compiled
SHARE_OF_GRADIENTS, SHARE_OF_ERRORS = 0.5, 0.12
TRIES = 60


class LeftOut(Exception):
    """Raised with the reason why a sample is left out."""


@dataclass(frozen=True)
class Name:
    operator: str
    dtype: str
    kind: str  # "sample" or "error"
    index: int
    grad: bool

    def __str__(self):
        what = {"sample": "", "error": ", an error"}[self.kind] + (", with gradients" if self.grad else "")
        return f"{self.operator}, {self.dtype}, {self.index}{what}"


@dataclass
class Outcome:
    values: list = field(default_factory=list)     # tensors and others, in order
    gradients: list = field(default_factory=list)
    inputs: list = field(default_factory=list)     # the input tensors, afterwards
    shared: list = field(default_factory=list)     # for each value, the inputs whose memory it shares
    error: str = ""                                # the exception's type
    message: str = ""


# ---- samples ----

def seed_all(number):
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


class Sample:
    """The function and the leaves of its arguments; `fresh()` copies those."""

    def __init__(self, name, info):
        self.name, self.op = name, info.op
        self.seed = zlib.crc32(f"{name.operator} {name.dtype}".encode())
        seed_all(self.seed)
        sample = self._find(info)
        tree = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.leaves, self.spec = pytree.tree_flatten(tree)
        for leaf in self.leaves:
            if isinstance(leaf, torch.Tensor):
                check_tensor(leaf)

    def _find(self, info):
        dtype = DTYPES[self.name.dtype]
        if self.name.kind == "error":
            found = [one.sample_input for one in itertools.islice(info.error_inputs("cpu"), SAMPLES)]
        else:
            found = itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=self.name.grad), SAMPLES)
        found = list(found)
        if not found:
            raise LeftOut("the database has no such sample")
        return found[self.name.index % len(found)]

    def fresh(self):
        memory = {}
        return [copy_tensor(leaf, memory) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]

    def call(self, leaves):
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.op(first, *args, **kwargs)


def check_tensor(tensor):
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_quantized:
        raise LeftOut("a tensor that is not strided")
    if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        raise LeftOut("a tensor that is elsewhere, conjugated or negative")
    if tensor.numel() > MAX_ELEMENTS:
        raise LeftOut("a large tensor")


def copy_tensor(tensor, memory):
    """Copies with the same strides and offset; tensors that shared memory share it again."""
    with torch.no_grad():
        storage = tensor.untyped_storage()
        if storage._cdata not in memory:
            memory[storage._cdata] = storage.clone()
        copy = torch.empty(0, dtype=tensor.dtype)
        copy.set_(memory[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
    return copy.requires_grad_(tensor.requires_grad)


# ---- running ----

def tensors_of(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def differentiable(values):
    return [one for one in values if isinstance(one, torch.Tensor) and one.requires_grad]


def make_cotangents(sample, outcome):
    """Returns the cotangents for gradients: the same numbers in every process."""
    seed_all(sample.seed)
    return [torch.randn_like(one) for one in differentiable(outcome.values)]


def run(sample, leaves, cotangents=None):
    """Returns the outcome. The only operators called are the sample's and its gradients': copies are made elsewhere."""
    torch.manual_seed(sample.seed)
    outcome = Outcome()
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        with torch.set_grad_enabled(sample.name.grad):
            outcome.values = pytree.tree_leaves(sample.call(leaves))
            roots, leafs = differentiable(outcome.values), differentiable(inputs)
            if cotangents is not None and roots and leafs:
                outcome.gradients = list(torch.autograd.grad(roots, leafs, cotangents, allow_unused=True))
    except Exception as error:
        outcome.error, outcome.message = type(error).__name__, str(error)
    outcome.inputs = inputs
    outcome.shared = [shared_with(one, inputs) for one in outcome.values]
    return outcome


def shared_with(value, inputs):
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return []
    memory = value.untyped_storage().data_ptr()
    return [i for i, one in enumerate(inputs) if memory and one.untyped_storage().data_ptr() == memory]


def expected_outcome(sample):
    """Returns eager PyTorch's outcome, and the cotangents for the following runs."""
    if not sample.name.grad:
        return run(sample, sample.fresh()), None
    cotangents = make_cotangents(sample, run(sample, sample.fresh()))
    return run(sample, sample.fresh(), cotangents), cotangents


# ---- comparing ----

def judge(got, expected):
    """Returns "equal", "within tolerance", or "wrong: ..."."""
    if got.error != expected.error:
        return (f"wrong: it raises {got.error or 'nothing'} ({got.message[:200]}), "
                f"PyTorch {expected.error or 'nothing'} ({expected.message[:200]})")
    found = set()
    for what in ("values", "gradients", "inputs"):
        ours, theirs = getattr(got, what), getattr(expected, what)
        if len(ours) != len(theirs):
            return f"wrong: {len(ours)} {what}, PyTorch has {len(theirs)}"
        for place, pair in enumerate(zip(ours, theirs)):
            verdict = judge_leaf(*pair, strides=what != "gradients")
            if verdict not in ("equal", "within tolerance"):
                return f"wrong: {what} {place}: {verdict}"
            found.add(verdict)
    if got.shared != expected.shared:
        return f"wrong: the results share the memory of inputs {got.shared}, PyTorch's of {expected.shared}"
    return "within tolerance" if "within tolerance" in found else "equal"


def judge_leaf(got, expected, strides=True):
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        same = type(got) is type(expected) and (got == expected or got != got and expected != expected)
        return "equal" if same else f"{got!r}, PyTorch has {expected!r}"
    if got.requires_grad != expected.requires_grad:
        return f"requires_grad is {got.requires_grad}, PyTorch's is {expected.requires_grad}"
    if got.layout != torch.strided or expected.layout != torch.strided:
        return "equal" if got.layout == expected.layout and torch.equal(got.to_dense(), expected.to_dense()) else "differs"
    got, expected = plain(got), plain(expected)
    if not strides:  # autograd returns gradients with whatever strides its sums have
        got, expected = got.contiguous(), expected.contiguous()
    if not {got.dtype, expected.dtype} <= set(TENSORS.numbers):  # uint16 to uint64
        same = (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
        return "equal" if same and bytes_of(got) == bytes_of(expected) else f"{got!r}, PyTorch has {expected!r}"
    return judge_tensor(TENSORS.describe(got), TENSORS.describe(expected), TENSORS.make)


def bytes_of(tensor):
    return bytes(tensor.flatten().view(torch.uint8).tolist())


def plain(tensor):
    return tensor.detach().resolve_conj().resolve_neg()


# ---- the operators that a sample calls ----

class Recorder(TorchDispatchMode):
    """Records the calls that arrive below autograd: (overload, the arguments for which a kernel is compiled)."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func.name().removesuffix(".default"), describe_call(func, args, kwargs or {})))
        return func(*args, **(kwargs or {}))


class AsCompiled(TorchDispatchMode):
    """Replaces every overload of `served` by torch.compile's version."""

    def __init__(self, served):
        super().__init__()
        self.served = served

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.name().removesuffix(".default") not in self.served:
            return func(*args, **kwargs)
        torch._dynamo.reset()
        leaves, spec = pytree.tree_flatten((args, kwargs))

        def call(*leaves):
            args, kwargs = pytree.tree_unflatten(list(leaves), spec)
            return func(*args, **kwargs)

        with torch.no_grad():
            return torch.compile(call, fullgraph=True, dynamic=False)(*leaves)


def describe_call(func, args, kwargs):
    def describe(leaf):
        if isinstance(leaf, torch.Tensor):
            return (str(leaf.dtype), tuple(leaf.shape), tuple(leaf.stride()))
        return repr(leaf)
    return func.name() + repr([describe(leaf) for leaf in pytree.tree_leaves((args, kwargs))])


def record(sample):
    """Returns (the outcome, the calls of its operators and of their gradients'); raises if PyTorch refuses it."""
    cotangents = make_cotangents(sample, run(sample, sample.fresh())) if sample.name.grad else None
    recorder = Recorder()
    leaves = sample.fresh()
    with recorder:
        outcome = run(sample, leaves, cotangents)
    return outcome, recorder.calls


def as_compiled(sample, cotangents, served, got):
    """Returns whether torch.compile gives the same for the operators: then PyTorch's compiler differs from eager
    PyTorch."""
    leaves = sample.fresh()
    try:
        with AsCompiled(served):
            theirs = run(sample, leaves, cotangents)
        return not judge(got, theirs).startswith("wrong")
    except Exception as error:
        print(f"# torch.compile of {sample.name}: {' '.join(str(error).split())[:200]}")
        return False


# ---- drawing ----

def draw_name(draw, operators, names):
    operator = draw.choice(names)
    info = operators[operator]
    supported = info.supported_dtypes("cpu")
    dtypes = [text for text, dtype in DTYPES.items() if dtype in supported]
    if not dtypes:
        raise LeftOut("other dtypes")
    if info.error_inputs_func is not None and draw.random() < SHARE_OF_ERRORS:
        return Name(operator, dtypes[0], "error", draw.randrange(SAMPLES), False)
    dtype = draw.choice(dtypes)
    grad = (info.supports_autograd and DTYPES[dtype] in info.supported_backward_dtypes("cpu")
            and draw.random() < SHARE_OF_GRADIENTS)
    return Name(operator, dtype, "sample", draw.randrange(SAMPLES), grad)


def wanted_of(sample, accepted, seen):
    """Returns the kernels that would be compiled for the sample and for no earlier one."""
    outcome, calls = record(sample)
    if sample.name.kind == "error" and not outcome.error:
        raise LeftOut("PyTorch does not refuse it")
    if sample.name.kind == "sample" and outcome.error:
        raise LeftOut("PyTorch refuses it")
    if any(isinstance(one, torch.Tensor) and one.numel() > MAX_ELEMENTS for one in outcome.values):
        raise LeftOut("a large result")
    new = {(overload, what) for overload, what in calls if overload in accepted} - seen
    if not new:
        raise LeftOut("no operator that can be served, or known ones only")
    if len(new) > MOST_CALLS:
        raise LeftOut("many operators")
    return new


def draw_names(seed, count, accepted):
    """Returns names of samples that make `count` compiles, and counts of others by reason."""
    draw, operators = random.Random(seed), operator_table.database()
    # Their elements are uninitialized memory.
    names = sorted(set(operators) - operator_table.UNINITIALISED)
    chosen, left, seen, overloads, tries = [], {}, set(), set(), 0
    while len(seen) < count and tries < TRIES * count:
        tries += 1
        try:
            name = draw_name(draw, operators, names)
            new = wanted_of(Sample(name, operators[name.operator]), accepted, seen)
            if not {overload for overload, _ in new} - overloads and tries % 4:
                raise LeftOut("overloads that others have")
        except Exception as error:
            reason = str(error) if isinstance(error, LeftOut) else "the database's own error"
            left[reason] = left.get(reason, 0) + 1
            continue
        seen |= new
        overloads |= {overload for overload, _ in new}
        chosen.append(name)
    return chosen, left
