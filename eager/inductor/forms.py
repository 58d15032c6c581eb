"""Other forms of operators, of which Inductor makes faster code, or results that are laid out as PyTorch's are.

Owns: what is called in an operator's place when a library for it is exported. Knows nothing of how libraries are built.
"""

BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit_no_training")


def form_of(torch, operator, name, inputs):
    """What to call instead of the operator: itself, or a function of the same arguments.

    name: as it was asked for; inputs: example tensors, in the order of the arguments.
    """
    if name in BATCH_NORMS and inputs[0].device.type == "cpu":
        return batch_norm(torch, operator, inputs[0])
    if len(inputs) > 1 and not all(one.is_contiguous() for one in inputs) and is_elementwise(torch, operator):
        return elementwise(torch, operator, inputs)
    return operator


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
