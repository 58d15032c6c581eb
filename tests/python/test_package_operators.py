"""Packages whose model calls operators of the user's: docs/examples/package_operator.c registers one in C and runs the model
without PyTorch, with PyTorch's results; so does tests/helpers/package_operators.c for all kinds of arguments and results.
Without the registration, or where a list of operators does not fit, the package is refused by name.
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
TOOL = os.path.join(BUILD, "bin", "aoticache")
EXAMPLE = os.path.join(TOP, "docs", "examples", "package_operator.c")
INPUTS = ([1.0, -2.5, 3.25], [0.0] * 7, [i / 8 for i in range(40)])
failures = 0


def check(name, holds, detail=""):
    global failures
    failures += not holds
    print(f"{'ok' if holds else 'not ok'} - {name}", flush=True)
    if not holds and detail:
        print(f"# {detail}", file=sys.stderr)


def define(torch, name, schema, function):
    torch.library.define(name, schema)
    torch.library.impl(name, "CPU", function)
    torch.library.register_fake(name, lambda x, *rest, **named: torch.empty_like(x))


def define_all_kinds(torch):
    """The operators of tests/helpers/package_operators.c. All numbers are sums of eighths: results are exact in any order."""
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


def compile_packages(torch, folder):
    """The models and their packages, by the operators that they call."""
    mine = torch.ops.mine
    define(torch, "mine::twice_plus", "(Tensor x, int n=1) -> Tensor", lambda x, n=1: x * 2 + n)
    define(torch, "mine::shifted", "(Tensor x, ScalarType t) -> Tensor", lambda x, t: x + 1)

    class Known(torch.nn.Module):
        def forward(self, x):
            whole = mine.twice_plus(mine.twice_plus(x * x) - 3, 5) / 4
            return whole[::2] + mine.twice_plus(x[::2]), whole

    class Unknown(torch.nn.Module):
        def forward(self, x):
            return mine.shifted(mine.twice_plus(x), torch.float64)

    models = {}
    for name, module in (("known", Known()), ("unknown", Unknown()), ("all_kinds", define_all_kinds(torch))):
        dynamic = ({0: torch.export.Dim("n", min=3, max=64)},)
        program = torch.export.export(module, (torch.zeros(4),), dynamic_shapes=dynamic)
        path = os.path.join(folder, name + ".pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=path)
        models[name] = module, path
    return models


def compile_program(folder):
    program = os.path.join(folder, "package_operator")
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", EXAMPLE, "-o", program, "-I",
                    os.path.join(BUILD, "include", "aoticache"), "-L", os.path.join(BUILD, "lib"), "-laoticache",
                    "-Wl,-rpath," + os.path.join(BUILD, "lib")], check=True)
    return program


def run(program, package, numbers, directory):
    done = subprocess.run([program, package, *map(repr, numbers)], capture_output=True, text=True,
                          env=dict(os.environ, AOTICACHE_DIR=directory))
    return done.returncode, done.stdout, done.stderr


def test_results(torch, model, path, program, directory):
    for numbers in INPUTS:
        expected = model(torch.tensor(numbers))[0].tolist()
        code, out, err = run(program, path, numbers, directory)
        got = [struct.unpack("f", struct.pack("f", float(line)))[0] for line in out.split()]
        check(f"{len(numbers)} numbers: the operator in C gives PyTorch's result", code == 0 and got == expected,
              f"{got} {expected} {err}")
    beside = torch._inductor.aoti_load_package(path)(torch.tensor(INPUTS[0]))[0].tolist()
    check("which is that of PyTorch's own loader", beside == model(torch.tensor(INPUTS[0]))[0].tolist())


def test_all_kinds(torch, model, path, directory):
    program = os.path.join(BUILD, "tests", "helpers", "package_operators")
    for numbers in INPUTS:
        expected = [output.tolist() for output in model(torch.tensor(numbers))]
        code, out, err = run(program, path, numbers, directory)
        got = [[float(word) for word in line.split()] for line in out.splitlines()]
        check(f"{len(numbers)} numbers: arguments and results of all kinds give PyTorch's results, twice",
              code == 0 and got == expected * 2, f"{got} {expected} {err}")


def rewrite(source, target, change):
    """A copy in which change() was applied to the list of operators."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name.endswith(".wrapper.json") else data)
    return target


def test_refusals(models, program, directory, work):
    known, unknown = models["known"][1], models["unknown"][1]
    done = subprocess.run([TOOL, "run-package", known, "--input", "float32:3=ones", "--cache-dir", directory],
                          capture_output=True, text=True)
    check("a process without the operator: refused, and named",
          done.returncode != 0 and "the model calls mine::twice_plus, which has no kernel for the CPU" in done.stderr,
          done.stderr)
    code, out, err = run(program, unknown, INPUTS[0], directory)
    check("of two operators the one that is missing is named",
          code == 1 and out == "" and "the model calls mine::shifted, which has" in err, err)
    for name, old, new, message in (
            ("an argument of another kind", b'{"as_int": 5}', b'{"as_device": {"type": "cpu", "index": null}}',
             "mine::twice_plus: argument n (int) as as_device is not supported"),
            ("an argument that the operator does not have", b'"name": "n"', b'"name": "m"', "has no input m"),
            ("another number of integers", b'{"name": "n", "arg": {"as_int": 5}, "kind": 1}', b"", "passes 1 integers"),
            ("no JSON", b"{", b"", "not JSON")):
        changed = rewrite(known, os.path.join(work, "changed.pt2"),
                          lambda data, old=old, new=new: data.replace(b", " + old if not new and len(old) > 9 else old, new))
        code, out, err = run(program, changed, INPUTS[0], directory)
        check(f"{name}: refused, and the message says so", code == 1 and out == "" and message in err, err)


def main():
    if shutil.which("cc") is None:
        print("skip - package operators: there is no C compiler")
        return 77
    import torch
    import torch._inductor.package
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as work:
        directory = os.path.join(work, "cache")
        models = compile_packages(torch, work)
        program = compile_program(work)
        test_results(torch, *models["known"], program, directory)
        test_all_kinds(torch, *models["all_kinds"], directory)
        test_refusals(models, program, directory, work)
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
