"""Tests packages whose model calls the user's operators: docs/examples/package_operator.c registers one in C and runs the
model without PyTorch, with PyTorch's results; so does tests/helpers/package_operators.c for all kinds of arguments and
results. Without the registration, or if a list of operators does not fit, the package is refused with the operator's name.
"""
import os
import shutil
import struct
import subprocess
import zipfile

import pytest
import torch
import torch._inductor.package

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
TOOL = os.path.join(BUILD, "bin", "aoticache")
EXAMPLE = os.path.join(TOP, "docs", "examples", "package_operator.c")
INPUTS = ([1.0, -2.5, 3.25], [0.0] * 7, [i / 8 for i in range(40)])


def define(name, schema, function):
    torch.library.define(name, schema)
    torch.library.impl(name, "CPU", function)
    torch.library.register_fake(name, lambda x, *rest, **named: torch.empty_like(x))


def define_all_kinds():
    """Defines the operators of tests/helpers/package_operators.c. All numbers are sums of eighths: results are exact in any
    order."""
    def many(x, y, d, f, b, s, ts, k, ots, oi=None, *, t=None, sizes=(), z=7):
        first = x + f + (0 if y is None else y) + len(s) + d[0] + 10 * d[1] + b
        second = x * k + ts[0] + 2 * ts[1] + z + (oi or 0) + sum(sizes)
        return first, second + sum(o for o in ots if o is not None)

    def bump(x, by):
        x.add_(by)

    torch.library.define("mine::many", "(Tensor x, Tensor? y, int[] d, float f, bool b, str s, Tensor[] ts, Scalar k, "
                         "Tensor?[] ots, int? oi=None, *, ScalarType? t=None, SymInt[] sizes=[], int z=7) -> (Tensor, Tensor)")
    torch.library.impl("mine::many", "CPU", many)
    torch.library.register_fake("mine::many", lambda x, *rest, **named: (torch.empty_like(x), torch.empty_like(x)))
    torch.library.define("mine::listed", "(Tensor x) -> Tensor[]")
    torch.library.impl("mine::listed", "CPU", lambda x: [x + 1, x + 2])
    torch.library.register_fake("mine::listed", lambda x: [torch.empty_like(x), torch.empty_like(x)])
    torch.library.define("mine::bump", "(Tensor(a!) x, int by) -> ()")
    torch.library.impl("mine::bump", "CPU", bump)
    torch.library.register_fake("mine::bump", lambda x, by: None)
    mine = torch.ops.mine

    class AllKinds(torch.nn.Module):
        def forward(self, x):
            a = x * 2
            mine.bump(a, 3)
            b, c = mine.many(a, None, [1, 2], 0.5, True, "hi", [a, x], 3, [None, a], 4, sizes=[x.shape[0], 2])
            d, e = mine.many(b, c, [3, 4], -0.25, False, "", [b, c], 2.5, [], z=1)
            f, g = mine.listed(d)
            return b + c, e, f * 2 + g, mine.many(x, None, [0, 0], 0.0, False, "", [x, x], 1, [])[1]

    return AllKinds()


def compile_packages(directory):
    """Returns the models and their packages, by the operators that they call."""
    mine = torch.ops.mine
    define("mine::twice_plus", "(Tensor x, int n=1) -> Tensor", lambda x, n=1: x * 2 + n)
    define("mine::shifted", "(Tensor x, ScalarType t) -> Tensor", lambda x, t: x + 1)

    class Known(torch.nn.Module):
        def forward(self, x):
            whole = mine.twice_plus(mine.twice_plus(x * x) - 3, 5) / 4
            return whole[::2] + mine.twice_plus(x[::2]), whole

    class Unknown(torch.nn.Module):
        def forward(self, x):
            return mine.shifted(mine.twice_plus(x), torch.float64)

    models = {}
    for name, module in (("known", Known()), ("unknown", Unknown()), ("all_kinds", define_all_kinds())):
        dynamic = ({0: torch.export.Dim("n", min=3, max=64)},)
        program = torch.export.export(module, (torch.zeros(4),), dynamic_shapes=dynamic)
        path = os.path.join(directory, name + ".pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=path)
        models[name] = module, path
    return models


def compile_program(directory):
    program = os.path.join(directory, "package_operator")
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", EXAMPLE, "-o", program, "-I",
                    os.path.join(BUILD, "include", "aoticache"), "-L", os.path.join(BUILD, "lib"), "-laoticache",
                    "-Wl,-rpath," + os.path.join(BUILD, "lib")], check=True)
    return program


def run(program, package, numbers, directory):
    done = subprocess.run([program, package, *map(repr, numbers)], capture_output=True, text=True,
                          env=dict(os.environ, AOTICACHE_DIR=directory))
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return compile_packages(str(tmp_path_factory.mktemp("packages")))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_program(str(tmp_path_factory.mktemp("program")))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("packages") / "cache")


OF_ANY_LENGTH = pytest.mark.parametrize("numbers", INPUTS, ids=lambda numbers: f"{len(numbers)} numbers")


@OF_ANY_LENGTH
def test_the_operator_in_C_gives_pytorchs_result(models, program, directory, numbers):
    model, path = models["known"]
    code, out, err = run(program, path, numbers, directory)
    got = [struct.unpack("f", struct.pack("f", float(line)))[0] for line in out.split()]
    assert (code, got) == (0, model(torch.tensor(numbers))[0].tolist()), err


def test_pytorchs_own_loader_gives_it_too(models):
    model, path = models["known"]
    assert torch._inductor.aoti_load_package(path)(torch.tensor(INPUTS[0]))[0].tolist() == model(torch.tensor(INPUTS[0]))[0].tolist()


@OF_ANY_LENGTH
def test_arguments_and_results_of_all_kinds(models, directory, numbers):
    """Each runs twice in one process."""
    model, path = models["all_kinds"]
    code, out, err = run(os.path.join(BUILD, "tests", "helpers", "package_operators"), path, numbers, directory)
    got = [[float(word) for word in line.split()] for line in out.splitlines()]
    assert (code, got) == (0, [output.tolist() for output in model(torch.tensor(numbers))] * 2), err


def rewrite(source, target, change):
    """Writes a copy in which change() was applied to the list of operators."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name.endswith(".wrapper.json") else data)
    return target


def test_a_process_without_the_operator(models, directory):
    done = subprocess.run([TOOL, "run-package", models["known"][1], "--input", "float32:3=ones", "--cache-dir", directory],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "the model calls mine::twice_plus, which has no kernel for the CPU" in done.stderr, done.stderr


def test_of_two_operators_the_one_that_is_missing_is_named(models, program, directory):
    code, out, err = run(program, models["unknown"][1], INPUTS[0], directory)
    assert (code, out) == (1, "") and "the model calls mine::shifted, which has" in err, err


@pytest.mark.parametrize("old, new, message", [
    pytest.param(b'{"as_int": 5}', b'{"as_device": {"type": "cpu", "index": null}}',
                 "mine::twice_plus: argument n (int) as as_device is not supported", id="an argument of another kind"),
    pytest.param(b'"name": "n"', b'"name": "m"', "has no input m", id="an argument that the operator does not have"),
    pytest.param(b', {"name": "n", "arg": {"as_int": 5}, "kind": 1}', b"", "passes 1 integers", id="another number of integers"),
    pytest.param(b"{", b"", "not valid JSON", id="no JSON")])
def test_a_list_of_operators_that_does_not_fit(models, program, directory, tmp_path, old, new, message):
    changed = rewrite(models["known"][1], str(tmp_path / "changed.pt2"), lambda data: data.replace(old, new))
    code, out, err = run(program, changed, INPUTS[0], directory)
    assert (code, out) == (1, "") and message in err, err
