"""Other forms of operators, of which Inductor makes faster code, or results that are laid out as PyTorch's are.

Owns: what is called in an operator's place when a library for it is exported. Knows nothing of how libraries are built.
"""

# PyTorch rounds the numbers that these are given to the dtype of tensors of 16-bit floats, and computes in 32 bits then.
# (Measured: PyTorch answers alike for the number and for the rounded one, and otherwise than in 32 bits with the number.)
ROUNDING = frozenset(("add", "sub", "subtract", "rsub", "fmod", "remainder", "pow", "eq", "ne", "ge", "gt", "le", "lt", "xlogy",
                      "special_xlog1py", "logit", "hardshrink"))
# With these it uses the number as it is; those that are in neither list have not been compared.
NOT_ROUNDING = frozenset(("mul", "multiply", "div", "leaky_relu", "elu", "softplus", "hardtanh", "threshold", "clamp",
                          "clamp_min", "clamp_max"))
CLAMPS = ("aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::hardtanh")
BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit_no_training")


def form_of(torch, operator, name, inputs):
    """What to call instead of the operator: itself, or a function of the same arguments.

    name: as it was asked for; inputs: example tensors, in the order of the arguments.
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
    """To which dtype known numbers must be rounded, or None; and why this operator cannot be compiled so, or "".

    name: as "aten::add_.Tensor"; inputs: example tensors; numbers: the positions of those that stand for numbers which are
    read when the library runs.
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
    """With the dimensions of the result in the order that PyTorch gives them by the tensors' strides.

    What Inductor takes some operators apart into asks the tensors in another order, or only some of them. clone() is kept,
    and written by the operator's own loop; contiguous() would be dropped before the operator is taken apart.
    """
    order, _ = torch._prims_common.compute_elementwise_output_logical_to_physical_perm(*torch.broadcast_tensors(*inputs))
    back = sorted(range(len(order)), key=order.__getitem__)

    def call(*arguments, **keywords):
        result = operator(*arguments, **keywords)
        return result.permute(order).clone(memory_format=torch.contiguous_format).permute(back)

    return call


def softshrink(operator):
    """PyTorch's kernel looks at the number."""

    def call(tensor, lambd=0.5):
        if not isinstance(lambd, (int, float)) or lambd < 0:
            raise ValueError(f"softshrink by {lambd}, which PyTorch looks at")
        return operator(tensor, lambd)

    return call


def clamp(torch, operator, name):
    """With what equals a bound kept, and so the sign of a zero, as PyTorch does it."""
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
    """With the layout that PyTorch's kernel gives the result, and its statistics in the dtype of the parameters.

    In evaluation, where the channels lie side by side, scale and shift of each channel are made first, as PyTorch's kernel
    does. Inductor puts all of it into the loop over the elements: a root and a division for each. as_strided() makes it keep
    what it is called of.
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
