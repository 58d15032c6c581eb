"""Builds samples of PyTorch's operator database in two ways, ours and PyTorch's own, and compares their results bit for
bit. One library is Inductor's code in our container (eager/compile/inductor/), the other is what Inductor builds by itself.

    inductor_builds.py [--ours-only] [--part I/N] [--names A,B] [--json FILE]   prints a line for each operator

--ours-only: does not build PyTorch's form, which takes most of the time; results are compared with eager PyTorch's. For
each operator the first sample that has a tensor is used, in float32 if the operator takes it. The last line counts
outcomes. The exit status is 1 if a result differs, or if our way cannot build more than 5 % of the operators that compile.
"""
import argparse
import collections
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import time
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import torch

import operator_table
import own_build

UNDEFINED = ("empty_like",)  # returns uninitialized memory
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


class Call(torch.nn.Module):
    """An operator whose arguments are all fixed, except its tensors."""

    def __init__(self, op, sample):
        super().__init__()
        self.op = op
        tree = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.leaves, self.spec = torch.utils._pytree.tree_flatten(tree)
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.inputs = tuple(self.leaves[i].detach() for i in self.places)

    def forward(self, *tensors):
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        input, args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.spec)
        result = self.op(input, *args, **kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else result


def first_sample(info):
    for dtype in DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        torch.manual_seed(1)
        for sample in info.sample_inputs("cpu", dtype):
            call = Call(info.op, sample)
            if call.inputs and any(tensor.numel() > 1 for tensor in call.inputs):
                return call
    return None


def build(program, inputs, directory):
    path = os.path.join(directory, "kernel.so")
    path = torch._inductor.aot_compile(program.module(), inputs, options={"aot_inductor.output_path": path})
    for name in os.listdir(directory):
        if name.endswith(".wrapper.json"):  # must be next to the library as kernel.json
            os.rename(os.path.join(directory, name), os.path.join(directory, "kernel.json"))
    return path


def tensors_of(result):
    return [one for one in torch.utils._pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]


def run(library, inputs):
    """Returns what the library computes in PyTorch's own runner."""
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1)
    torch.manual_seed(2)
    return runner.run([tensor.clone() for tensor in inputs])


def same_bits(a, b):
    if a.layout != b.layout or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.stride() != b.stride():
        return False
    a, b = (one.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for one in (a, b))
    return torch.equal(a, b)


def near(a, b):
    if a.shape != b.shape:
        return False
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    return torch.allclose(a.to(b.dtype), b, rtol=1e-3, atol=1e-3, equal_nan=True)


def play(builder, info, ours_only):
    """Returns {"outcome": ..., "reason": ...}: "same", "differs", "fallback", "not compiled", "no sample"."""
    call = first_sample(info)
    if call is None or info.name in UNDEFINED:
        return {"outcome": "no sample"}
    with torch.no_grad(), tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        try:
            program = torch.export.export(call, call.inputs, strict=False)
            begin = time.monotonic()
            with builder.active():
                own = build(program, call.inputs, ours)
            seconds = time.monotonic() - begin
        except Exception as error:  # neither way can compile it
            return {"outcome": "not compiled", "reason": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        found = {"seconds": round(seconds, 2), "bytes": os.path.getsize(own)}
        if builder.report()["by"] != "aoticache":
            return {**found, "outcome": "fallback", "reason": builder.reason}
        try:
            got = run(own, call.inputs)
        except RuntimeError as error:
            got = str(error)
        if ours_only:
            want, compare = tensors_of(call(*call.inputs)), near
        else:
            begin = time.monotonic()
            library = build(program, call.inputs, theirs)
            found["pytorch_seconds"], compare = round(time.monotonic() - begin, 2), same_bits
            found["pytorch_bytes"] = os.path.getsize(library)
            try:
                want = run(library, call.inputs)
            except RuntimeError as error:
                want = str(error)
    if isinstance(got, str) or isinstance(want, str):
        same = isinstance(got, str) and isinstance(want, str)
        return {**found, "outcome": "same" if same else "differs", "reason": f"{got!s:.200} / {want!s:.200}"}
    same = len(got) == len(want) and all(map(compare, got, want))
    return {**found, "outcome": "same" if same else "differs"}


def chosen(arguments):
    operator_table.load_torch()
    from torch.testing._internal.common_methods_invocations import op_db

    names = set(filter(None, arguments.names.split(",")))
    part, parts = map(int, arguments.part.split("/"))
    for number, info in enumerate(op_db):
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        if (name in names or info.name in names) if names else number % parts == part:
            yield name, info


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--part", default="0/1", help="every Nth operator, from the Ith on")
    parser.add_argument("--names", default="", help="these operators alone, with commas between")
    parser.add_argument("--json", help="where the results go; standard output without it")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    outcomes = collections.Counter()
    builder, out = own_build.make_builder(torch), open(arguments.json, "w", encoding="utf-8") if arguments.json else sys.stdout
    for name, info in chosen(arguments):
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                result = play(builder, info, arguments.ours_only)
            except Exception as error:
                result = {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"[:200]}
            torch._dynamo.reset()
        print(json.dumps({"name": name, **result}), file=out, flush=True)
        outcomes[result["outcome"]] += 1
    print(", ".join(f"{count} {name}" for name, count in outcomes.most_common()), file=sys.stderr)
    built = outcomes["same"] + outcomes["differs"]
    return 1 if outcomes["differs"] or outcomes["failed"] or outcomes["fallback"] * 19 > built else 0


if __name__ == "__main__":
    sys.exit(main())
