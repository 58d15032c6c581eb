"""Two models, compiled by PyTorch, whose counterparts in C are tests/hosts/kernels/affine.c and folded.c. All numbers
are small integers, so that both give the same bits. They are compiled once per build directory, PyTorch version and
text of this file. Environment: BUILD; MODELS: another build directory whose models may be used.
"""
import hashlib
import os

import once

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
MODELS = os.environ.get("MODELS", BUILD)
INPUT_SIZES = {"affine": (2, 4), "folded": (2, 12), "pointwise": (2, 3), "reduction": (2, 3), "failing": (2, 3)}


def c_library(name):
    return os.path.join(BUILD, "tests", "hosts", f"{name}.so")


def make_models(torch):
    class Affine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 12)
            self.register_buffer("scale", torch.arange(12.) - 3)
            with torch.no_grad():
                self.fc.weight.copy_(torch.arange(48.).reshape(12, 4) - 5)
                self.fc.bias.copy_(torch.arange(12.) - 7)

        def forward(self, x):
            return self.fc(x) * self.scale + torch.tensor([1.0 * i * i for i in range(12)]), x.sum()

    class Folded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(12.) - 4)
            self.register_buffer("shift", torch.arange(12.) * 2 - 9)

        def forward(self, x):
            return x * self.weight + (self.weight * self.shift + self.shift)

    return {"affine": (Affine(), {}), "folded": (Folded(), {"aot_inductor.use_runtime_constant_folding": True})}


def torch_libraries(torch):
    """Returns name to path of the libraries that PyTorch makes."""
    with open(__file__, "rb") as text:
        version = hashlib.sha256(torch.__version__.encode() + text.read()).hexdigest()[:16]
    directory = os.path.join(MODELS, "tests", "hosts", f"torch-{version}")
    paths = {}
    with once.lock(directory):
        for name, (model, options) in make_models(torch).items():
            paths[name] = os.path.join(directory, f"{name}.so")
            if os.path.exists(paths[name]):
                continue
            example = (torch.ones(INPUT_SIZES[name]),)
            made = torch._inductor.aot_compile(torch.export.export(model, example).module(), example, options={
                "aot_inductor.output_path": f"{paths[name]}.{os.getpid()}.so",
                "aot_inductor.enable_line_tables": False, **options})
            os.rename(made, paths[name])
    return paths
