"""Replacements for operators for which Inductor then generates faster code, or results with PyTorch's layout.

Owns the functions that are called instead of an operator when a library for it is exported. Knows nothing of how libraries are
built.
"""

# PyTorch rounds the number arguments of these operators to the dtype of 16-bit float tensors, and then computes in 32 bits.
# (Measured: PyTorch's result is the same for the number and the rounded one, and differs from 32 bits with the exact number.)
ROUNDING = frozenset(("add", "sub", "subtract", "rsub", "fmod", "remainder", "pow", "eq", "ne", "ge", "gt", "le", "lt", "xlogy",
                      "special_xlog1py", "logit", "hardshrink"))
# For these it uses the exact number. Operators in neither list have not been compared.
NOT_ROUNDING = frozenset(("mul", "multiply", "div", "leaky_relu", "elu", "softplus", "hardtanh", "threshold", "clamp",
                          "clamp_min", "clamp_max"))
CLAMPS = ("aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::hardtanh")
BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit_no_training")


def form_of(torch, operator, name, inputs):
    """Returns what to call instead of the operator: the operator itself, or a function of the same arguments.

    name: as requested; inputs: example tensors, in the order of the arguments.
    """
    if name in BATCH_NORMS and inputs[0].device.type == "cpu":
        return batch_norm(torch, operator, inputs[0])
    if name == "aten::softshrink":
        return softshrink(operator)
    if name in CLAMPS and len(inputs) == 1 and inputs[0].is_floating_point():
        return clamp(torch, operator, name)
    if len(inputs) > 1 and not all(one.is_contiguous() for one in inputs) and is_elementwise(torch, operator):
        return elementwise(torch, operator, inputs)
    return operator


def rounding_of(torch, name, inputs, numbers):
    """Returns the dtype to which known numbers must be rounded, or None; and why this operator cannot be compiled so, or "".

    name: as in "aten::add_.Tensor"; inputs: example tensors; numbers: positions of inputs that stand for numbers which the
    library reads at run time.
    """
    given = [one for at, one in enumerate(inputs) if at not in numbers]
    counting = [one for one in given if one.dim() > 0] or given
    dtype = counting[0].dtype if counting else None
    if dtype not in (torch.float16, torch.bfloat16) or any(one.dtype != dtype for one in counting):
        return None, ""
    base = name.partition("::")[2].partition(".")[0].removesuffix("_").removeprefix("_foreach_")
    wider = numbers or any(one.dtype != dtype for one in given)
    if wider and base not in NOT_ROUNDING:
        return None, f"a number must be known beside tensors of {dtype}, to which PyTorch rounds it"
    return dtype if base in ROUNDING else None, ""


def is_elementwise(torch, operator):
    overload = getattr(operator, "default", operator)
    if torch.Tag.pointwise not in getattr(overload, "tags", ()):
        return False
    returns = overload._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "Tensor" and returns[0].alias_info is None


def elementwise(torch, operator, inputs):
    """Orders the dimensions of the result as PyTorch does, by the tensors' strides.

    The decompositions of some operators in Inductor consider the tensors in another order, or only some of them. clone() is kept,
    and the operator's own loop writes the copy; contiguous() would be dropped before the operator is decomposed.
    """
    order, _ = torch._prims_common.compute_elementwise_output_logical_to_physical_perm(*torch.broadcast_tensors(*inputs))
    back = sorted(range(len(order)), key=order.__getitem__)

    def call(*arguments, **keywords):
        result = operator(*arguments, **keywords)
        return result.permute(order).clone(memory_format=torch.contiguous_format).permute(back)

    return call


def softshrink(operator):
    """Checks the number, as PyTorch's kernel does."""

    def call(tensor, lambd=0.5):
        if not isinstance(lambd, (int, float)) or lambd < 0:
            raise ValueError(f"softshrink by {lambd}, which PyTorch looks at")
        return operator(tensor, lambd)

    return call


def clamp(torch, operator, name):
    """Keeps values that equal a bound, and so the sign of a zero, as PyTorch does."""
    argument_names = [one.name for one in getattr(operator, "default", operator)._schema.arguments]
    defaults = {"min_val": -1.0, "max_val": 1.0} if name == "aten::hardtanh" else {}

    def call(tensor, *bounds, **named):
        given = {**defaults, **dict(zip(argument_names[1:], bounds)), **named}
        least, most = (given.get(one, given.get(f"{one}_val")) for one in ("min", "max"))
        if any(isinstance(one, float) and one != one for one in (least, most)):
            return operator(tensor, *bounds, **named)
        if least is not None:
            tensor = torch.where(tensor < least, least, tensor)
        if most is not None:
            tensor = torch.where(tensor > most, most, tensor)
        return tensor

    return call


def batch_norm(torch, operator, example):
    """Gives the result the layout of PyTorch's kernel, and computes statistics in the dtype of the parameters.

    In evaluation with adjacent channels, scale and shift of each channel are computed first, as in PyTorch's kernel. Inductor would
    put the whole computation into the loop over the elements, with a square root and a division for each. as_strided() makes it
    keep the intermediate values.
    """
    has_channels_side_by_side = example.dim() > 2 and example.shape[1] > 1 and example.stride(1) == 1
    layout = torch.contiguous_format if example.is_contiguous() else torch._prims_common.suggest_memory_format(example)

    def kept(tensor, ndim):
        return tensor.as_strided(tensor.shape, tensor.stride()).view(-1, *[1] * (ndim - 2))

    def normalized(tensors, epsilon):
        wide = torch.promote_types(example.dtype, torch.float32)
        x, weight, bias, mean, variance = (None if one is None else one.to(wide) for one in tensors)
        scale = 1 / torch.sqrt(variance + epsilon)
        scale = scale if weight is None else scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        return x * kept(scale, x.dim()) + kept(shift, x.dim())

    def call(x, weight, bias, mean, variance, *rest):
        params = [one for one in (weight, bias, mean, variance) if one is not None]
        computed = x.to(params[0].dtype) if params else x
        result, *statistics = operator(computed, weight, bias, mean, variance, *rest)
        is_training = len(rest) == 3 and rest[0]
        if has_channels_side_by_side and not is_training and mean is not None and variance is not None:
            result = normalized((x, weight, bias, mean, variance), rest[-1])
        return (result.to(x.dtype).clone(memory_format=layout), *statistics)

    return call
