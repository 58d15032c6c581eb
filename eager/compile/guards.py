"""The guard of a library for symbolic shapes: for which tensors it serves, as text for aoticache_check_parse().

Owns the ranges of the symbols of an exported program, which are chosen so that every condition of the program holds, and the
words of the text (docs/formats/checks.md). worker.py, in the same directory, exports, and turns Inexpressible into an unsupported
request.
"""

import itertools
import math
import re
import sys

# A symbol of a guard (docs/formats/checks.md) has a range and a multiple. Other conditions of a program are proved from these. If a
# condition does not follow, they are narrowed around the example until it does.
UNLIMITED = 2**63 - 1
MAX_SYMBOLS, MAX_FACTORS = 64, 4
WIDEST_SEARCH = 1 << 20


class Inexpressible(Exception):
    """A guard cannot express the shapes that the program serves."""


class Symbol:
    """The values of a symbol: least to most (None: no limit), multiples of `multiple`. hint: its value in the example."""

    def __init__(self, least, most, hint):
        self.least, self.most, self.multiple, self.hint = least, most, 1, hint

    def copy(self, least, most, multiple=None):
        other = Symbol(least, most, self.hint)
        other.multiple = multiple or self.multiple
        return other

    def text(self):
        most = "" if self.most is None else self.most
        return f"{self.least}..{most}" + (f"%{self.multiple}" if self.multiple > 1 else "")


def opaque_parts(sympy, expression, ranges):
    """Turns the expression into a polynomial: a quotient or a maximum in it becomes a new symbol of the same range."""
    from torch.utils._sympy.value_ranges import bound_sympy

    changes = {}

    def change(part):
        if part.is_Symbol or part.is_Number:
            return part
        if not (part.is_Add or part.is_Mul or (part.is_Pow and part.exp.is_Integer and part.exp > 0)):
            found = bound_sympy(part, ranges)
            if type(part).__name__ == "Max":  # mostly Max(1, size) with a size known to be larger
                bounds = [bound_sympy(arg, ranges) for arg in part.args]
                largest = [arg for arg, bound in zip(part.args, bounds)
                           if all(bound.lower >= other.upper for other in bounds if other is not bound)]
                if largest:
                    return change(largest[0])
            return changes.setdefault(part, (sympy.Symbol(f"opaque{len(changes)}", integer=True), found))[0]
        return part.func(*map(change, part.args))

    polynomial = change(expression)
    return polynomial, {**ranges, **dict(changes.values())}


def range_of(sympy, expression, ranges):
    """Returns bounds of the expression: the better ones of two ways to compute them."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    whole = bound_sympy(expression, ranges)
    polynomial, known = opaque_parts(sympy, expression, ranges)
    shifts, shifted = {}, {}
    for name in polynomial.free_symbols:
        found = known[name]
        if found.lower == -int_oo:
            return whole
        # Offsets from the least values are 0 or more, and a sum of terms of one sign has that sign.
        offset = sympy.Symbol(f"over_{name}", integer=True, nonnegative=True)
        shifts[name] = offset + found.lower
        shifted[offset] = ValueRanges(0, int_oo if found.upper == int_oo else found.upper - found.lower)
    return whole & bound_sympy(sympy.expand(polynomial.xreplace(shifts)), shifted)


def follows(sympy, condition, symbols):
    """Returns whether the condition can be shown to hold for all values of the symbols."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    values, ranges = {}, {}
    for name in condition.free_symbols:
        symbol = symbols.get(name)
        if symbol is None:
            return False
        if symbol.least == symbol.most:
            values[name] = sympy.Integer(symbol.least)
            continue
        part = sympy.Symbol(f"part_{name}", integer=True, positive=True)
        values[name] = symbol.multiple * part
        most = int_oo if symbol.most is None else symbol.most // symbol.multiple
        ranges[part] = ValueRanges(-(-symbol.least // symbol.multiple), most)

    def holds(part):
        if part in (sympy.true, True):
            return True
        if isinstance(part, sympy.And):
            return all(map(holds, part.args))
        if isinstance(part, sympy.Or):
            return any(map(holds, part.args))
        if not isinstance(part, sympy.core.relational.Relational):
            return False
        found = range_of(sympy, part.lhs - part.rhs, ranges)
        if isinstance(part, sympy.Eq):
            return found.lower == 0 and found.upper == 0
        if isinstance(part, sympy.Ne):
            return bool(found.lower > 0) or bool(found.upper < 0)
        if isinstance(part, sympy.Ge):
            return bool(found.lower >= 0)
        if isinstance(part, sympy.Gt):
            return bool(found.lower > 0)
        if isinstance(part, sympy.Le):
            return bool(found.upper <= 0)
        return isinstance(part, sympy.Lt) and bool(found.upper < 0)

    try:
        return holds(condition.xreplace(values))
    except Exception:  # a condition that cannot be evaluated is not shown
        return False


def smallest(low, high, fine):
    """Returns the smallest fine value of low..high by bisection; fine(high) must be true."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fine(middle) else (middle + 1, high)
    return high


def widen(sympy, condition, symbols, name):
    """Returns the widest range of a symbol around the example for which the condition follows; None: there is none."""
    symbol = symbols[name]

    def fine(least, most):
        return follows(sympy, condition, {**symbols, name: symbol.copy(least, most)})

    if not fine(symbol.hint, symbol.hint):
        return None
    least = smallest(symbol.least, symbol.hint, lambda value: fine(value, symbol.hint))
    if fine(least, symbol.most):
        return symbol.copy(least, symbol.most)
    limit = min(symbol.most or UNLIMITED, symbol.hint + WIDEST_SEARCH)
    last = limit - smallest(0, limit - symbol.hint, lambda less: fine(least, limit - less))
    return symbol.copy(least, last)


def width(symbol):
    return UNLIMITED if symbol.most is None else symbol.most - symbol.least


def divisible(sympy, condition, symbols):
    """Returns the symbol's name and the number of a condition "symbol % number == 0"."""
    if isinstance(condition, sympy.Eq) and condition.rhs == 0 and len(condition.lhs.args) == 2:
        name, number = condition.lhs.args
        if "Mod" in type(condition.lhs).__name__ and name in symbols and number.is_Integer and number > 0:
            return name, int(number)
    return None, None


def narrow(sympy, condition, symbols):
    """Narrows the symbols as little as possible so that the condition follows: it fixes none of them, then one, two ..."""
    name, number = divisible(sympy, condition, symbols)
    if name is not None:
        multiple = number * symbols[name].multiple // math.gcd(number, symbols[name].multiple)
        symbols[name] = symbols[name].copy(symbols[name].least, symbols[name].most, multiple)
    if follows(sympy, condition, symbols):
        return
    names = sorted(condition.free_symbols, key=str)
    unknown = [str(name) for name in names if name not in symbols]
    if unknown:
        raise Inexpressible(f"the program requires {condition}, but {unknown[0]} does not belong to an input")
    for count in range(len(names)):
        found = []
        for fixed in itertools.combinations(names, count):
            pinned = {name: symbols[name].copy(symbols[name].hint, symbols[name].hint) for name in fixed}
            for name in names:
                wide = None if name in fixed else widen(sympy, condition, {**symbols, **pinned}, name)
                if wide is not None:
                    found.append((width(wide), len(found), {**pinned, name: wide}))
        # A range of one value is not better than fixing one more symbol, which may leave another one free.
        found = [entry for entry in found if entry[0] > 0] or (found if count + 1 == len(names) else [])
        if found:
            symbols.update(max(found, key=lambda entry: (entry[0], -entry[1]))[2])
            return
    raise Inexpressible(f"the program requires {condition}, which ranges of its symbols cannot express")


def shape_environment(program):
    """Returns PyTorch's data on symbols, and the inputs as it traced them. None: nothing is symbolic."""
    tensors = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    names = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    inputs = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    modes = [tensor.fake_mode for tensor in tensors if hasattr(tensor, "fake_mode")]
    return (modes[0].shape_env if modes else None), inputs


def expression_of(sympy, environment, value):
    node = getattr(value, "node", None)
    return sympy.Integer(int(value)) if node is None else sympy.expand(environment.replace(node.expr))


def dimension_text(sympy, expression, numbers):
    """Returns a size or a stride in the words of a guard: number*symbol*symbol+number."""
    offset, product = expression.as_independent(*expression.free_symbols, as_Add=True)
    coefficient, rest = product.as_coeff_Mul()
    if not expression.free_symbols:
        return str(int(expression))
    factors = []
    for base, power in rest.as_powers_dict().items():
        if base not in numbers or not power.is_Integer or power < 1:
            raise Inexpressible(f"a size or stride is {expression}, which is not a product plus a number")
        factors += [f"s{numbers[base]}"] * int(power)
    if not (offset.is_Integer and coefficient.is_Integer and coefficient > 0 and len(factors) <= MAX_FACTORS):
        raise Inexpressible(f"a size or stride is {expression}, which is not a product plus a number")
    text = "*".join(([str(coefficient)] if coefficient != 1 else []) + factors)
    return text if offset == 0 else f"{text}{int(offset):+d}"


def dense_strides(sympy, sizes, order):
    strides, step = [None] * len(sizes), sympy.Integer(1)
    for place in order:
        strides[place] = step
        step = sympy.expand(step * sizes[place])
    return strides


def format_of(sympy, sizes, strides):
    """Returns the memory format of these strides, ignoring dimensions of size 1, whose strides are not used; or None."""
    orders = {"contiguous": range(len(sizes) - 1, -1, -1)}
    if len(sizes) in (4, 5):
        name = "channels_last" if len(sizes) == 4 else "channels_last_3d"
        orders[name] = [1, *range(len(sizes) - 1, 1, -1), 0]
    for name, order in orders.items():
        dense = dense_strides(sympy, sizes, order)
        if all(size == 1 or a == b for size, a, b in zip(sizes, dense, strides)) and 0 not in sizes:
            return name
    return None


def strides_text(sympy, sizes, strides, numbers):
    return format_of(sympy, sizes, strides) or ", ".join(dimension_text(sympy, stride, numbers) for stride in strides)


def program_symbols(environment, expressions):
    """Returns the symbols of the inputs, in order of appearance, with the ranges that PyTorch found."""
    from torch.utils._sympy.numbers import int_oo

    hints = environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val
    symbols = {}
    for expression in expressions:
        for name in sorted(expression.free_symbols, key=str):
            if name not in hints:
                raise Inexpressible(f"{name} depends on the values of a tensor")
            known = environment.var_to_range[name]
            most = None if known.upper in (int_oo, sys.maxsize) or known.upper > UNLIMITED else int(known.upper)
            symbols.setdefault(name, Symbol(max(int(known.lower), 2), most, int(hints[name])))
    return symbols


def make_guard(torch, program):
    """Returns the text for aoticache_check_parse() (loader/check/check.h): for which tensors the library serves."""
    import sympy

    environment, inputs = shape_environment(program)
    if environment is None:
        raise Inexpressible("the program has no tensors")
    shapes = []
    for tensor in inputs:
        sizes = [expression_of(sympy, environment, size) for size in tensor.shape]
        shapes.append((sizes, [expression_of(sympy, environment, stride) for stride in tensor.stride()]))
    symbols = program_symbols(environment, [value for sizes, strides in shapes for value in sizes + strides])
    unbacked = [str(name) for name in program.range_constraints if str(name).startswith("u")]
    if unbacked:
        raise Inexpressible(f"{unbacked[0]} depends on the values of a tensor")
    if any(environment.deferred_runtime_asserts.values()):
        raise Inexpressible("the program checks values when it runs: "
                          f"{next(iter(environment.deferred_runtime_asserts.values()))[0].expr}")
    meet_conditions(sympy, environment, symbols)
    return guard_text(torch, sympy, inputs, shapes, symbols)


def meet_conditions(sympy, environment, symbols):
    conditions = [sympy.sympify(environment.replace(guard.expr)) for guard in environment.guards]
    # Conditions that narrow one symbol come before those that could narrow any of several.
    for condition in sorted(conditions, key=lambda condition: len(condition.free_symbols)):
        narrow(sympy, condition, symbols)


def guard_text(torch, sympy, inputs, shapes, symbols):
    text = check_text(torch, sympy, inputs, shapes, symbols)
    if ";" not in text:
        raise Inexpressible("the operator's code is for these sizes only")
    return text


def check_text(torch, sympy, inputs, shapes, symbols):
    fixed = {name: sympy.Integer(symbol.least) for name, symbol in symbols.items() if symbol.least == symbol.most}
    shapes = [([size.xreplace(fixed) for size in sizes], [stride.xreplace(fixed) for stride in strides])
              for sizes, strides in shapes]
    # A memory format has no strides. A symbol that occurs only in the stride of a size 1 dimension is thus not in the guard.
    used = {name for sizes, strides in shapes
            for value in sizes + ([] if format_of(sympy, sizes, strides) else strides) for name in value.free_symbols}
    names = [name for name in symbols if name not in fixed and name in used]
    numbers = {name: number for number, name in enumerate(names)}
    alone = {name for sizes, strides in shapes for value in sizes + strides
             for name in value.free_symbols if value.free_symbols == {name} and sympy.degree(value, name) == 1}
    if len(names) > MAX_SYMBOLS or set(names) - alone:
        raise Inexpressible(f"{len(names)} symbols, of which {len(alone)} are independent sizes")
    tensors = []
    for tensor, (sizes, strides) in zip(inputs, shapes):
        dtype = str(tensor.dtype).removeprefix("torch.")
        dims = ", ".join(dimension_text(sympy, size, numbers) for size in sizes)
        tensors.append(f"{dtype}[{dims}]{{{strides_text(sympy, sizes, strides, numbers)}}}@{tensor.device}")
    ranges = ", ".join(f"s{numbers[name]}={symbols[name].text()}" for name in names)
    return ", ".join(tensors) + (f"; {ranges}" if ranges else "")


# ---- whole models ----


def make_check(torch, program, module):
    """Returns the text for aoticache_check_parse(): which tensors a compiled model accepts. Call it after the compile.

    program: an ExportedProgram, whose ranges count. PyTorch's compiler assumes that a free size is at least 2. If the export
    allows 1 or 0, these are accepted if module, the program's own, then has the results that the code computes for them.
    """
    import sympy

    environment, values = shape_environment(program)
    inputs = [value for value in values if isinstance(value, torch.Tensor)]
    if environment is None:
        shapes = [([sympy.Integer(size) for size in tensor.shape], [sympy.Integer(s) for s in tensor.stride()]) for tensor in inputs]
        return check_text(torch, sympy, inputs, shapes, {})
    shapes = []
    for tensor in inputs:
        sizes = [expression_of(sympy, environment, size) for size in tensor.shape]
        strides = [expression_of(sympy, environment, stride) for stride in tensor.stride()]
        shapes.append((sizes, plain_strides(sympy, sizes, strides)))
    symbols = program_symbols(environment, [value for sizes, strides in shapes for value in sizes + strides])
    for name, limits in program.range_constraints.items():
        symbol = symbols.get(environment.replace(name))
        if symbol is None:
            continue
        symbol.least = max(int(limits.lower), 0)
        if symbol.least < 2:
            symbol.least = small_size(torch, sympy, environment, module, values, name, symbol.least)
        if limits.upper < UNLIMITED:
            symbol.most = min(int(limits.upper), symbol.most or UNLIMITED)
    known = set(symbols)
    conditions = [sympy.sympify(environment.replace(guard.expr)) for guard in environment.guards]
    # The code itself checks conditions on values of tensors.
    for condition in sorted(conditions, key=lambda condition: len(condition.free_symbols)):
        if condition.free_symbols <= known:
            narrow(sympy, condition, symbols)
    return re.sub(r"@(\w+):\d+", r"@\1", check_text(torch, sympy, inputs, shapes, symbols))  # any device of the kind


def plain_strides(sympy, sizes, strides):
    """Removes Max(1, size), which PyTorch writes if a size may be 0: then no element uses the stride."""
    def plain(part):
        if part.is_Symbol or part.is_Number:
            return part
        if type(part).__name__ == "Max" and 1 in part.args and len(part.args) == 2:
            return plain(next(arg for arg in part.args if arg != 1))
        return part.func(*map(plain, part.args))

    return [sympy.expand(plain(stride)) for stride in strides]


def small_size(torch, sympy, environment, module, values, name, least):
    """Returns the least value from 0 to 2, at least `least`, for which the program's results are those of its formulas."""
    for value in (1, 0):
        if value < least or not serves_size(torch, sympy, environment, module, values, name, value):
            return value + 1
    return 0


def serves_size(torch, sympy, environment, module, values, name, value):
    """Returns whether each operation of the program, run without data, has the sizes that it was compiled for."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    hints = environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val
    chosen = {**hints, environment.replace(name): sympy.Integer(value)}

    def number(size):
        node = getattr(size, "node", None)
        found = sympy.Integer(size) if node is None else environment.replace(node.expr).xreplace(chosen)
        return int(found) if found.is_number else None

    class Trial(torch.fx.Interpreter):
        def run_node(self, node):
            result, known = super().run_node(node), node.meta.get("val")
            for one, other in zip(tensors_of(torch, result), tensors_of(torch, known)):
                sizes = [(size, number(wanted)) for size, wanted in zip(one.shape, other.shape)]
                if one.dim() != other.dim() or any(isinstance(size, int) and size != wanted is not None for size, wanted in sizes):
                    raise ValueError(node.name)
            return result

    try:
        with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True), torch.no_grad():
            given = [torch.empty([number(size) for size in tensor.shape], dtype=tensor.dtype, device=tensor.device)
                     if isinstance(tensor, torch.Tensor) else tensor for tensor in values]
            Trial(module).run(*given)
        return True
    except Exception:  # an operation that cannot be run is not shown
        return False


def tensors_of(torch, value):
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]
