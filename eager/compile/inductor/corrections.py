"""Corrections of PyTorch's compiler: known errors that are fixed in the process that compiles for the cache.

Owns the corrections, one context manager each. Corrected code differs from that of PyTorch's own torch.compile. A change of any
correction changes what a key means: increase AOTICACHE_WORKER_REVISION in eager/compile/eager_face.h with it.
"""

import contextlib
import inspect


@contextlib.contextmanager
def applied():
    with contextlib.ExitStack() as stack:
        for one in (numbers_in_double, bytes_reduced_as_int32, means_of_nothing, values_checked, small_numbers, softshrink_of_nan):
            stack.enter_context(one())
        yield


@contextlib.contextmanager
def numbers_in_double():
    """Passes numbers that a library reads at run time to its loops as doubles.

    Inductor declares them `float`, which changes 0.1 when it is combined with float64 tensors.
    """
    from torch._inductor.codegen import common

    original = common.KernelArgs.cpp_argdefs

    def cpp_argdefs(self):
        definitions, calls, types = original(self)
        rounded = {f"const float {name}" for name in self.sizevars.values()}
        for at, definition in enumerate(definitions):
            if definition in rounded:
                definitions[at], types[at] = definition.replace("float", "double", 1), "const double"
        return definitions, calls, types

    try:
        common.KernelArgs.cpp_argdefs = cpp_argdefs
        yield
    finally:
        common.KernelArgs.cpp_argdefs = original


@contextlib.contextmanager
def bytes_reduced_as_int32():
    """Reduces int8 and uint8 as int32, with the same results.

    Inductor's vectorized loops over bytes also reduce the lanes of the last vector, which a masked load left at zero
    (PyTorch's issues 191499 and 191543).
    """
    from torch._inductor import ir

    kinds = [kind for kind in (ir.Reduction, getattr(ir, "ArgReduction", None)) if kind is not None]
    originals = [kind.__dict__["create"] for kind in kinds]
    try:
        for kind, original in zip(kinds, originals):
            kind.create = classmethod(reduce_wider(original.__func__))
        yield
    finally:
        for kind, original in zip(kinds, originals):
            kind.create = original


def reduce_wider(create):
    import torch
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import ops

    narrow = (torch.int8, torch.uint8)
    signature = inspect.signature(create)

    def wider(inner_fn):
        def load(*indices):
            value = inner_fn(*indices)
            if isinstance(value, tuple):
                return (ops.to_dtype(value[0], torch.int32), *value[1:])
            return ops.to_dtype(value, torch.int32)

        return load

    def narrowed(result, dtype):
        if result.get_dtype() != torch.int32 or dtype == torch.int32:
            return result
        if isinstance(result.data.data, ir.Reduction):
            result.realize()
        return lowering.to_dtype(result, dtype)

    def create_wider(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        wanted = given.arguments["dst_dtype"]
        if given.arguments["src_dtype"] not in narrow or given.arguments["device"].type != "cpu":
            return create(*args, **kwargs)
        given.arguments["src_dtype"] = torch.int32
        given.arguments["dst_dtype"] = torch.int32 if wanted in narrow else wanted
        given.arguments["inner_fn"] = wider(given.arguments["inner_fn"])
        results = create(*given.args, **given.kwargs)
        if isinstance(results, (tuple, list)):
            return (narrowed(results[0], wanted), *results[1:])
        return narrowed(results, wanted)

    return create_wider


@contextlib.contextmanager
def means_of_nothing():
    """Makes the mean of no elements NaN in var_mean and std_mean, as in PyTorch; Inductor returns 0."""
    from torch._inductor import ir, lowering
    from torch._inductor.utils import sympy_product
    from torch._inductor.virtualized import V

    original = ir.WelfordReduction.__dict__["create"]
    signature = inspect.signature(original.__func__)

    def create(*args, **kwargs):
        results = original.__func__(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        if V.graph.sizevars.simplify(sympy_product(given["reduction_ranges"])) != 0:
            return results
        mean = lowering.full_like(results[0], float("nan"))
        return (mean, *results[1:])

    try:
        ir.WelfordReduction.create = classmethod(create)
        yield
    finally:
        ir.WelfordReduction.create = original


#: Operators whose kernels check the values of their arguments: they refuse some and treat others specially. Code of PyTorch's
#: compiler does not.
CHECKED = ("binary_cross_entropy", "binary_cross_entropy_backward", "multilabel_margin_loss_forward", "multi_margin_loss")


@contextlib.contextmanager
def values_checked():
    """Makes Inductor call PyTorch's own kernels for operators that check the values of their arguments."""
    with contextlib.ExitStack() as stack:
        for name in CHECKED:
            stack.enter_context(taken_apart(name, None))
        yield


@contextlib.contextmanager
def softshrink_of_nan():
    """Makes softshrink(NaN) NaN; Inductor returns 0."""
    import torch

    def softshrink(tensor, lambd=0.5):
        x = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        rest = torch.where(x == x, 0.0, x)  # x * 0, which Inductor replaces by 0
        return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, rest)).to(tensor.dtype)

    with taken_apart("softshrink", softshrink):
        yield


@contextlib.contextmanager
def taken_apart(name, function):
    """Uses the function as the decomposition of a PyTorch operator. None: the operator is not decomposed."""
    import torch
    from torch._inductor import decomposition

    operator, key = getattr(torch.ops.aten, name).default, torch._C.DispatchKey.Autograd
    # Some are decomposed by a kernel in Python instead, which the tracer calls.
    places = [(decomposition.decompositions, operator), (operator.py_kernels, key)]
    originals = [(table, at, table[at]) for table, at in places if at in table]

    def put(entries):
        for table, at, value in entries:
            if value is None:
                del table[at]
            else:
                table[at] = value
        decomposition.fast_random_decomps.cache_clear()  # a copy of the table
        operator._dispatch_cache.clear()

    put([(table, at, function) for table, at, _ in originals])
    try:
        yield
    finally:
        put(originals)


@contextlib.contextmanager
def small_numbers():
    """Keeps the digits of expm1, atanh and erf near zero.

    Inductor's vectorized loops compute exp(x) - 1 and half the logarithm of (1 + x) / (1 - x). In float32 only one digit of
    expm1(1e-7) is then right, and -0 becomes 0. ELU and its variants use expm1 too. Also, the erf() of float32 vectors has an
    absolute error of 1e-7, not a relative one.
    """
    import torch
    from torch._inductor.codegen.cpp import CppVecOverrides

    def expm1(x):
        return f"{x}.expm1()"

    def atanh(x):
        return f"{x}.atanh()"

    def erf(x):
        if x.dtype == torch.float64:
            return f"{x}.erf()"
        vector = f"decltype({x})"
        series = "1.1283791670955126", "-0.37612638903183754", "0.11283791670955126", "-0.026866170645131253", \
            "0.005223977625442188", "-0.0008548327023450853", "0.00012055332981789664"
        terms = f"{vector}({series[-1]})"
        for factor in reversed(series[:-1]):
            terms = f"({terms} * squared + {vector}({factor}))"
        return f"""[&]()
        {{
            auto squared = {x} * {x};
            return {vector}::blendv({x}.erf(), {x} * {terms}, {x}.abs() < {vector}(0.5));
        }}
        ()"""

    replacements = {one.__name__: one for one in (expm1, atanh, erf)}  # the scalar functions are found by their names
    originals = {name: CppVecOverrides.__dict__[name] for name in replacements}
    try:
        for name, replacement in replacements.items():
            setattr(CppVecOverrides, name, staticmethod(replacement))
        yield
    finally:
        for name, original in originals.items():
            setattr(CppVecOverrides, name, original)
