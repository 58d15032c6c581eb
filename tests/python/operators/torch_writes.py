"""Makes calls that write to their arguments, for torch_checks.py: each entry of PyTorch's operator database in place and
with out=, on separate tensors, parts of larger ones, transposed, expanded and overlapping ones, of another dtype and of
another size. Compares not only values, but also the memory around the written tensors, how often their version counters
moved, whether the result is the argument itself, and the warnings.
"""

from __future__ import annotations

import warnings

DTYPES = ("float32", "int64", "bool", "bfloat16")


def embedded(torch, tensor, steps=2):
    """Returns the same values in every second position of a larger memory, and that memory."""
    memory = torch.zeros(max(1, tensor.numel() * steps + 3), dtype=tensor.dtype)
    strides, step = [], steps
    for size in reversed(tensor.shape):
        strides.insert(0, step)
        step *= size
    view = memory.as_strided(tensor.shape, strides, 1)
    view.copy_(tensor)
    return view, memory


def turned(torch, tensor):
    """Returns the same values with the strides in reverse order, as a transposed tensor has them."""
    places = tuple(reversed(range(tensor.dim())))
    memory = tensor.permute(places).contiguous().clone()
    return memory.permute(places), memory


def whole(torch, tensor):
    memory = tensor.contiguous().clone()
    return memory, memory


def expanded(torch, tensor):
    """Expands. If PyTorch accepts it, its own kernel writes to one position in any order: then nothing can be compared."""
    return tensor[:1].clone().expand(tensor.shape), None


def fits(tensor, change):
    return change is not expanded or (tensor.dim() > 0 and tensor.numel() > 1 and tensor.shape[0] > 1)


def observe(torch, written, call, dtypes=()):
    """
    Returns what a call does to `written` ((tensor, memory) pairs), as values that can be compared. dtypes: those of the
    results without out=, in which they are computed, and to whose precision they are compared.
    """
    dtypes = dtypes or [tensor.dtype for tensor, _ in written]
    before = [tensor._version for tensor, _ in written]
    bases = [tensor._base is not None for tensor, _ in written]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = call()
    results = result if isinstance(result, (tuple, list)) else (result,)
    if any(memory is None for _, memory in written):
        return {"version": [tensor._version - count for (tensor, _), count in zip(written, before)]}
    return {
        "values": [tensor.to(dtype, copy=True) for (tensor, _), dtype in zip(written, dtypes)],
        "memory": [memory.to(dtype, copy=True) for (_, memory), dtype in zip(written, dtypes)],
        "dtypes": [str(tensor.dtype) for tensor, _ in written],
        "versions": [tensor._version - count for (tensor, _), count in zip(written, before)],
        "views": [(tensor._base is not None) == is_view for (tensor, _), is_view in zip(written, bases)],
        "same": [one is tensor for one, (tensor, _) in zip(results, written)],
        "strides": [str((tuple(tensor.shape), tensor.stride())) for tensor, _ in written],
        "warnings": [str(one.message) for one in warned if "deprecated" not in str(one.message)],
    }


def exact(torch, op, sample):
    """Returns the results in float64, for float arguments."""
    from torch.utils import _pytree as pytree

    def widen(one):
        return one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one

    args, kwargs = pytree.tree_map(widen, (sample.args, sample.kwargs))
    result = op(widen(sample.input).clone(), *args, **kwargs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def is_nearer(torch, ours, theirs, results):
    """Returns whether everything but the values is the same, and ours are not further from `results` than PyTorch's:
    PyTorch rounds to 16 bits between the steps of an operator, compiled code at its end."""
    if any(ours[what] != theirs[what] for what in ours if what not in ("values", "memory")):
        return False
    for a, b, result in zip(ours["values"], theirs["values"], results):
        known = result.isfinite() & a.isfinite() & b.isfinite()
        if not torch.equal(torch.where(known, 0, a), torch.where(known, 0, b)):
            return False
        errors = [(one.double() - result)[known].abs() for one in (a, b)]
        if errors[0].numel() and (errors[0].max() > errors[1].max() or errors[0].mean() > errors[1].mean()):
            return False
    changed = [sum(int((a != b).sum()) for a, b in zip(ours[what], theirs[what])) for what in ("values", "memory")]
    return changed[0] == changed[1]  # the rest of the memory is unchanged


def in_place(torch, variant, sample, change):
    def call():
        tensor, memory = change(torch, sample.input)
        return observe(torch, [(tensor, memory)], lambda: variant(tensor, *sample.args, **sample.kwargs))

    call.exact = lambda: exact(torch, variant, sample)
    return call


def with_itself(torch, variant, sample):
    """Returns the sample with the written tensor as the first of the other arguments."""
    def call():
        tensor = sample.input.clone()
        args = [tensor if one is sample.args[0] else one for one in sample.args]
        return observe(torch, [(tensor, tensor)], lambda: variant(tensor, *args, **sample.kwargs))

    return call


def outs_of(torch, op, sample):
    """Returns the operator's results without out, as the tensors for out=, or None if they are not tensors."""
    try:
        results = op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return None
    single = isinstance(results, torch.Tensor)
    results = (results,) if single else results
    if not isinstance(results, (tuple, list)) or not all(isinstance(one, torch.Tensor) for one in results):
        return None
    return list(results), single


def out(torch, op, sample, change, single, results):
    def call():
        written = [change(torch, torch.zeros_like(one)) for one in results]
        tensors = tuple(tensor for tensor, _ in written)
        return observe(torch, written, lambda: op(sample.input, *sample.args, **sample.kwargs,
                                                  out=tensors[0] if single else tensors),
                       [one.dtype for one in results])

    call.exact = lambda: exact(torch, op, sample)
    return call


def of_dtype(dtype):
    return lambda torch, tensor: whole(torch, tensor.to(getattr(torch, dtype)))


def of_size(torch, tensor):
    memory = torch.zeros(tuple(tensor.shape) + (2,), dtype=tensor.dtype)
    return memory, torch.zeros(1)


def no_elements(torch, tensor):
    return torch.zeros(0, dtype=tensor.dtype), torch.zeros(1)


IN_PLACE = {"in place": whole, "in place in a larger memory": embedded, "in place, transposed": turned,
            "in place, expanded": expanded}
OUT = {"out": whole, "out in a larger memory": embedded, "out, transposed": turned, "out, expanded": expanded,
       "out of float64": of_dtype("float64"), "out of int64": of_dtype("int64"), "out of another size": of_size,
       "out without elements": no_elements}


def cases(torch, name, info, samples, quick):
    """Yields (name of the case, the call). samples: by dtype, as torch_checks.py chooses them."""
    for dtype, chosen in samples.items():
        for number, sample in enumerate(chosen[:1]):
            if not isinstance(sample.input, torch.Tensor):
                continue
            where = f"{name}, {dtype}"
            some = quick or dtype != "float32"
            if info.inplace_variant is not None:
                for what, change in list(IN_PLACE.items())[:2 if some else None]:
                    if fits(sample.input, change):
                        yield f"{where}, {what}", in_place(torch, info.inplace_variant, sample, change)
                if not some and sample.args and isinstance(sample.args[0], torch.Tensor) and \
                        sample.args[0].shape == sample.input.shape:
                    yield f"{where}, in place with itself", with_itself(torch, info.inplace_variant, sample)
            found = outs_of(torch, info.op, sample) if info.supports_out else None
            if found is not None:
                results, single = found
                for what, change in list(OUT.items())[:2 if some else None]:
                    if all(fits(one, change) for one in results):
                        yield f"{where}, {what}", out(torch, info.op, sample, change, single, results)
