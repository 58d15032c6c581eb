"""Tests that libraries that PyTorch compiles give PyTorch's results in a process without PyTorch.

AOTInductor compiles the cases; tests/helpers/run_library runs them in a separate process on libaoticache_torchshim.so; their
results are compared with those of the same library in this process, on libtorch: bit by bit, except matrix multiplications and
functions like exp(), which are compared within PyTorch's own tolerances. Environment: BUILD, the build directory.
"""
import os
import subprocess
import warnings

import pytest
import torch

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", os.path.abspath(BUILD))
HELPER = os.path.join(BUILD, "tests", "helpers", "run_library")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))

from tensor_file import read_tensors, write_tensors

warnings.simplefilter("ignore")
os.environ["PYTHONWARNINGS"] = "ignore"


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def linear_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 5), torch.nn.LayerNorm(5))


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes).to(dtype)


def make_cases():
    """Returns name: (function or module, inputs)"""
    torch.manual_seed(0)
    integers = torch.randint(-50, 50, (6, 7))
    return {
        "pointwise": (lambda a, b: (torch.abs(a) + torch.sigmoid(b) * 2, torch.exp(-a * a), torch.atan2(a, b)),
                      [randn(5, 17), randn(5, 17)]),
        "functions": (lambda a, b: (torch.acos(b), torch.acosh(a), torch.asin(b), torch.asinh(a), torch.atanh(b),
                                    torch.cos(a), torch.cosh(a), torch.erf(a), torch.erfc(a), torch.exp2(a),
                                    torch.expm1(a), torch.lgamma(a), torch.log(a), torch.log10(a), torch.log2(a),
                                    torch.sin(a), torch.sinh(a), torch.tan(b), torch.tanh(a), torch.fmod(a, b),
                                    torch.hypot(a, b), torch.pow(a, b), torch.copysign(a, b), torch.nextafter(a, b)),
                      [torch.rand(67) * 5 + 1, torch.rand(67) - 0.5]),
        "non_contiguous": (lambda a, b: a.relu() + b.tanh(), [randn(9, 8).t(), randn(8, 20)[:, 1::2][:, :9]]),
        "zero_dimensions": (lambda a, b: a * b + 1, [randn(()), randn(())]),
        "empty": (lambda a: (a * 2, a.sum()), [randn(0, 4)]),
        "reductions": (lambda a: (a.sum(1), a.mean(), a.amax(0), a.argmin(1), a.var(1), a.prod(0)), [randn(12, 31)]),
        "softmax_layer_norm": (lambda a: (torch.softmax(a, -1), torch.nn.functional.layer_norm(a, (40,))),
                               [randn(3, 6, 40)]),
        "cat_where_gather": (lambda a, b, i: (torch.cat([a, b, a], 1), torch.where(a > b, a, b), a[i],
                                              torch.gather(a, 0, i[:, None].expand(-1, 8) % 4)),
                             [randn(6, 8), randn(6, 8), torch.tensor([4, 0, 5, 2])]),
        "integers": (lambda a, b: (a // (b.abs() + 1), a % 7, a << 2, a.sum(), (a > b) & (b != 3), a.amin(0)),
                     [integers, integers.flip(0).contiguous()]),
        "float64": (lambda a, b: (torch.log1p(a * a), a @ b), [randn(7, 9, dtype=torch.float64),
                                                               randn(9, 4, dtype=torch.float64)]),
        "bfloat16": (lambda a, b: (a * b + a, a.sum(1), a.float()), [randn(6, 32, dtype=torch.bfloat16),
                                                                     randn(6, 32, dtype=torch.bfloat16)]),
        "float16_mm": (lambda a, b: torch.mm(a, b), [randn(17, 70, dtype=torch.float16),
                                                     randn(70, 9, dtype=torch.float16)]),
        "bfloat16_mm": (lambda a, b: torch.mm(a, b.t()), [randn(17, 70, dtype=torch.bfloat16),
                                                          randn(9, 70, dtype=torch.bfloat16)]),
        "conversions": (lambda a: (a.to(torch.int32), a.to(torch.uint8), a.bool(), a.half(), a.double(), a.bfloat16()),
                        [randn(40).abs() * 20]),
        "mm_large": (lambda a, b: a.mm(b), [randn(130, 300), randn(270, 300).t()]),
        "int_mm": (lambda a, b: a @ b, [torch.randint(-9, 9, (5, 6)), torch.randint(-9, 9, (6, 4))]),
        "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [randn(11), randn(13, 21), randn(21, 11)]),
        "bmm": (lambda a, b: torch.bmm(a, b), [randn(4, 9, 15), randn(4, 12, 15).transpose(1, 2)]),
        "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=-1), [randn(3, 1, 6), randn(3, 5, 7),
                                                                             randn(3, 7, 6)]),
        "weights": (linear_model(), [randn(8, 20)]),
        "clone_and_views": (lambda a: (a.t().clone(), a.view(-1)[3:20].clone(), a.unfold(1, 3, 2).contiguous(), a[1]),
                            [randn(4, 10)]),
        "mutated_input": (lambda a, b: a.add_(b), [randn(6), randn(6)]),
    }


def compile_case(model, inputs, path):
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    exported = torch.export.export(module.eval(), tuple(inputs), strict=False)
    options = {"aot_inductor.output_path": path, "aot_inductor.enable_line_tables": False}
    with torch.no_grad():
        torch._inductor.aot_compile(exported.module(), tuple(inputs), options=options)
    return module


def run_alone(library, inputs, directory):
    given, got = os.path.join(directory, "inputs"), os.path.join(directory, "outputs")
    write_tensors(given, inputs)
    ran = subprocess.run([HELPER, library, given, got], capture_output=True, text=True, timeout=300)
    if ran.returncode != 0:
        raise RuntimeError("exit %d: %s" % (ran.returncode, ran.stderr.strip()))
    return read_tensors(got)


def run_on_libtorch(library, inputs):
    copies = [torch.empty_like(tensor).copy_(tensor) if tensor.is_contiguous() else tensor for tensor in inputs]
    return torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1).run(copies)


# The other cases call no matrix multiplication, so that a failure of one kind does not hide one of the other.
PRODUCTS = ("float64", "float16_mm", "bfloat16_mm", "mm_large", "int_mm", "addmm", "bmm", "baddbmm", "weights")

# Sums in another order, and functions like exp(), which the C library computes a little more exactly.
TOLERANCES = {
    "pointwise": {"rtol": 1.3e-6, "atol": 1e-5}, "softmax_layer_norm": {"rtol": 1.3e-6, "atol": 1e-5},
    "functions": {"rtol": 1.3e-6, "atol": 1e-5},
    "mm_large": {"rtol": 1e-5, "atol": 1e-4}, "float64": {"rtol": 1e-7, "atol": 1e-7},
    "float16_mm": {"rtol": 1e-3, "atol": 1e-3}, "bfloat16_mm": {"rtol": 0.016, "atol": 1e-3},
    "addmm": {"rtol": 1.3e-6, "atol": 1e-5}, "bmm": {"rtol": 1.3e-6, "atol": 1e-5},
    "baddbmm": {"rtol": 1.3e-6, "atol": 1e-5}, "weights": {"rtol": 1.3e-6, "atol": 1e-5},
}


class Several(torch.nn.Module):
    """Several functions and modules as one: takes the inputs of all, returns a tuple of results for each."""
    def __init__(self, cases):
        super().__init__()
        self.parts = torch.nn.ModuleList(model if isinstance(model, torch.nn.Module) else Function(model)
                                         for model, _ in cases)
        self.counts = [len(inputs) for _, inputs in cases]

    def forward(self, *inputs):
        results, begun = [], 0
        for part, count in zip(self.parts, self.counts):
            result = part(*inputs[begun:begun + count])
            results.append(result if isinstance(result, tuple) else (result,))
            begun += count
        return tuple(results)


def play(cases, directory):
    """Returns the results of each case here and on libtorch, by its name. One library has all cases, since compiling one takes
    PyTorch nearly as long as compiling ten."""
    library = os.path.join(directory, "of_%d_%s.so" % (len(cases), next(iter(cases))))
    model = Several(cases.values())
    inputs = [tensor for _, tensors in cases.values() for tensor in tensors]
    compile_case(model, [tensor.clone() if tensor.is_contiguous() else tensor for tensor in inputs], library)
    seen = run_alone(library, inputs, directory)
    wanted = run_on_libtorch(library, inputs)
    assert len(seen) == len(wanted), "%d outputs, %d wanted" % (len(seen), len(wanted))
    found, begun = {}, 0
    for name, result in zip(cases, model(*[tensor.clone() for tensor in inputs])):
        found[name] = seen[begun:begun + len(result)], wanted[begun:begun + len(result)]
        begun += len(result)
    assert begun == len(seen), "%d outputs, %d wanted" % (len(seen), begun)
    return found


CASES = make_cases()


@pytest.fixture(scope="module")
def played(request, tmp_path_factory):
    """Returns a function for the results of a case. The selected cases of its group are compiled together; if that fails, all
    of them fail: -k CASE compiles one alone."""
    chosen = {item.callspec.params["name"] for item in request.session.items if item.function is test_case}
    results = {}

    def results_of(name):
        group = {one: CASES[one] for one in CASES if one in chosen and (one in PRODUCTS) == (name in PRODUCTS)}
        if name not in results:
            results.update(dict.fromkeys(group))  # not tried again
            results.update(play(group, str(tmp_path_factory.mktemp("library"))))
        assert results[name], "its library could not be compiled or run"
        return results[name]

    return results_of


@pytest.mark.parametrize("name", CASES)
def test_case(name, played):
    for position, (ours, theirs) in enumerate(zip(*played(name))):
        assert ours.dtype == theirs.dtype, "output %d: %s, %s wanted" % (position, ours.dtype, theirs.dtype)
        assert ours.stride() == theirs.stride(), "output %d: strides %s, %s wanted" % (position, ours.stride(),
                                                                                       theirs.stride())
        torch.testing.assert_close(ours, theirs, equal_nan=True, **TOLERANCES.get(name, {"rtol": 0, "atol": 0}))


def test_bad_index(tmp_path):
    """If generated code's check of an index fails, the run must fail with the text of the check."""
    library, directory = str(tmp_path / "index.so"), str(tmp_path)
    data, index = randn(4, 3), torch.tensor([0, 3])
    compile_case(lambda a, i: a[i] * 2, [data, index], library)
    run_alone(library, [data, index], directory)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        run_alone(library, [data, torch.tensor([0, 4])], directory)
