"""The models of the runner's test suite, compiled by PyTorch once per build directory, PyTorch version and text of this
file.

Defines the modules that the libraries are compiled from, and the inputs that they run with; test_runner_battery.py runs
them. Each model tests one way in which a library can differ for its host: shapes, where its weights are stored,
folding, what it does to its inputs, dtypes, number of outputs. Most compile to the library's own loops, so that their
results are bit for bit the same in every host; KERNELS names those that call kernels of PyTorch, which the shim
implements in its own way. (Constants of at most eight elements would become part of the code.)
"""
import contextlib
import hashlib
import os
import shutil
import sys
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import once
import own_build

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
KERNELS = {"linear": "addmm_out"}


class Model:
    """module is exported with examples; inputs: the lists of inputs that the tests run it with."""

    def __init__(self, module, inputs, dynamic=None, options=None, package=False):
        self.module, self.inputs, self.dynamic, self.package = module.eval(), inputs, dynamic, package
        self.options = options or {}


def define_modules(torch):
    """Their classes need PyTorch; inside a function they do not keep this file from being imported without it."""
    nn = torch.nn

    def small(*sizes):
        count = 1
        for size in sizes:
            count *= size
        return (torch.arange(float(count)) * 7 % 13 / 4 - 1.5).reshape(sizes)

    class Abs(nn.Module):
        def forward(self, x):
            return x.abs()

    class Weights(nn.Module):
        """Two outputs; a parameter, an integer buffer, and a constant that tracing makes."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(small(3, 20))
            self.bias = nn.Parameter(small(20) / 2)
            self.register_buffer("scale", torch.arange(20) - 9)

        def forward(self, x):
            y = x * self.weight + self.bias
            return torch.tanh(y) + torch.tensor([1.0 * i * i for i in range(20)]), (y * self.scale).sum(-1)

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(24, 40)
            with torch.no_grad():
                self.fc.weight.copy_(small(40, 24))
                self.fc.bias.copy_(small(40))

        def forward(self, x):
            return torch.relu(self.fc(x))

    class Dynamic(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, y]) * 2, x.sum(1), x.shape[0] + y.shape[0]

    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(small(33) - 4)
            self.register_buffer("shift", small(33) * 2)

        def forward(self, x):
            return x * self.weight + (self.weight * self.shift + self.shift).exp()

    class Mutation(nn.Module):
        """Changes its first input and a buffer."""

        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(20))
            self.weight = nn.Parameter(small(20))

        def forward(self, x, y):
            x.add_(y)
            self.count.add_(1)
            return x * self.weight + self.count

    class Dtypes(nn.Module):
        def forward(self, half, brain, small_int, long_int, flag, wide):
            return (half * 2, brain + 1, small_int // 3, long_int ^ 5, ~flag, wide.sqrt(), half + brain,
                    flag & (small_int > 2), (small_int & 127).to(torch.uint8))

    class Complex(nn.Module):
        def forward(self, z):
            return torch.view_as_real(z) * 2, torch.view_as_complex(torch.view_as_real(z) + 1), z

    class Zero(nn.Module):
        def forward(self, x):
            return x + 1, x.sum(0), x.sum()

    class Scalar(nn.Module):
        """Zero-dimensional tensors, and an integer, which becomes part of the code and is not an input of the library.
        (PyTorch 2.13 cannot compile an integer that stays dynamic: "Cannot cast None to number".)"""

        def forward(self, x, factor, n):
            return x * factor + n, factor.sin(), factor * n

    class Alias(nn.Module):
        """Outputs that share the memory of inputs and constants."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(small(16))

        def forward(self, x, y):
            return x, y.reshape(-1)[2:], y + 1, self.weight, y.t()

    class NoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(small(17))

        def forward(self):
            return self.weight * 3

    class NoOutputs(nn.Module):
        def forward(self, x):
            x.mul_(3)
            return ()

    class Typed(nn.Module):
        """Constants of many dtypes, one of them not contiguous."""

        def __init__(self):
            super().__init__()
            self.fp16 = nn.Parameter(small(9).half())
            self.brain = nn.Parameter(small(9).bfloat16())
            self.register_buffer("number", torch.arange(9, dtype=torch.int32) - 4)
            self.register_buffer("flag", torch.arange(9) % 3 == 0)
            self.register_buffer("wide", small(9).double())
            self.register_buffer("turned", small(9, 4).t())

        def forward(self, x):
            return (torch.where(self.flag, x, self.fp16.float() * self.number), self.brain * 2, self.wide + self.number,
                    self.turned + x)

    return locals()


def make_models(torch):
    """Returns name to Model."""
    modules = define_modules(torch)
    small, auto = modules["small"], torch.export.Dim.AUTO
    x = small(3, 20)
    weights = [[x], [x * -3 + 1]]
    batches = [[small(n, 24)] for n in (4, 1, 9)]
    # Enough rows for the loops' vectors and a remainder; the second input has a step between its elements.
    pairs = [[small(2, 17), small(5, 17)], [small(9, 17), small(3, 17) * 2], [small(40, 34)[:, ::2], small(3, 17)]]
    dtypes = [[small(19).half(), small(19).bfloat16(), torch.arange(19, dtype=torch.int32) - 8,
               torch.arange(19) * 2**40, torch.arange(19) % 2 == 0, small(19).double() + 2]]
    numbers = [[small(4), torch.tensor(2.5), 5], [small(4), torch.tensor(-0.5), 5]]
    empty = [[torch.empty(0, 4)], [torch.ones(0, 4)]]
    return {
        "static": Model(modules["Abs"](), [[small(1)], [small(1) * 4]]),
        "weights": Model(modules["Weights"](), weights),
        "appended": Model(modules["Weights"](), weights, options={"aot_inductor.force_mmap_weights": True}),
        "separate": Model(modules["Weights"](), weights, package=True,
                          options={"aot_inductor.package_constants_on_disk_format": "binary_blob"}),
        "linear": Model(modules["Linear"](), batches, dynamic=({0: auto},)),
        "dynamic": Model(modules["Dynamic"](), pairs, dynamic=({0: auto}, {0: auto})),
        "folded": Model(modules["Folded"](), [[small(33)], [small(33) * 2]],
                        options={"aot_inductor.use_runtime_constant_folding": True}),
        "mutation": Model(modules["Mutation"](), [[small(20), small(20) * 2], [small(20) * 5, small(20)]]),
        "dtypes": Model(modules["Dtypes"](), dtypes),
        "complex": Model(modules["Complex"](), [[torch.complex(small(3, 5), small(3, 5) + 1)]]),
        "zero": Model(modules["Zero"](), empty),
        "scalar": Model(modules["Scalar"](), numbers),
        "alias": Model(modules["Alias"](), [[small(3), small(4, 5)]]),
        "no_inputs": Model(modules["NoInputs"](), [[]]),
        "no_outputs": Model(modules["NoOutputs"](), [[small(6)]]),
        "typed": Model(modules["Typed"](), [[small(9)], [small(9) - 8]]),
    }


def copies(inputs):
    return tuple(one.clone() if hasattr(one, "clone") else one for one in inputs)


def compile_model(torch, model, path):
    """Writes path.so, and path.blob if the weights are a separate file."""
    examples = copies(model.inputs[0])
    program = torch.export.export(model.module, examples, dynamic_shapes=model.dynamic)
    options = {"aot_inductor.enable_line_tables": False, **model.options}
    if not model.package:
        made = torch._inductor.aot_compile(program.module(), examples,
                                           options={**options, "aot_inductor.output_path": f"{path}.{os.getpid()}.so"})
        os.rename(made, path + ".so")
        return
    package = f"{path}.{os.getpid()}.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=options)
    with zipfile.ZipFile(package) as archive:
        for ending, suffix in ((".blob", "_weights.blob"), (".so", ".so")):
            name = [name for name in archive.namelist() if name.endswith(suffix)]
            if name:
                with archive.open(name[0]) as source, open(f"{path}{ending}.{os.getpid()}", "wb") as target:
                    shutil.copyfileobj(source, target)
                os.rename(f"{path}{ending}.{os.getpid()}", path + ending)
    os.unlink(package)


def libraries(torch, models, own=False):
    """Returns name to path without suffix. own: those that our build makes, which are fewer."""
    made_by = own_build.fingerprint() if own else ""
    with open(__file__, "rb") as text:
        version = hashlib.sha256((torch.__version__ + made_by).encode() + text.read()).hexdigest()[:16]
    directory = os.path.join(BUILD, "battery-models", version)
    builder = own_build.make_builder(torch) if own else None
    paths = {}
    with once.lock(directory):
        for name, model in models.items():
            paths[name] = os.path.join(directory, name)
            if os.path.exists(paths[name] + ".so"):
                continue
            begin = time.monotonic()
            with builder.active() if own else contextlib.nullcontext():
                compile_model(torch, model, paths[name])
            print(f"# compiled {name} in {time.monotonic() - begin:.1f} s", flush=True)
            if own and builder.report()["by"] != "aoticache":
                print(f"# {name} is built PyTorch's way: {builder.reason}", flush=True)
                with open(paths[name] + ".not-own", "w") as reason:
                    reason.write(builder.reason)
    return {name: path for name, path in paths.items() if not os.path.exists(path + ".not-own")}


def main(names):
    """Prints the paths of these libraries, one per line, as the last lines of the output."""
    import torch
    models = {name: model for name, model in make_models(torch).items() if name in names}
    for path in libraries(torch, models).values():
        print(path + ".so")


if __name__ == "__main__":
    main(sys.argv[1:])
