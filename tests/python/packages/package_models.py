"""The .pt2 packages of the tests and the benchmark, compiled by PyTorch once per build directory, version and text.

"embedded": weights in the library, a dynamic dimension. "blob": weights in a separate file, 4 MiB of them, and 512 KiB that
every run changes. "pickled": weights in the library and also pickled, next to it. "several": two models in one archive.
"""
import hashlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import once

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def export(torch, module, example, dynamic=None):
    return torch.export.export(module.eval(), example, dynamic_shapes=dynamic)


def define_modules(torch):
    """Weights are computed, so that every process has the same ones."""
    def numbers(*sizes):
        count = 1
        for size in sizes:
            count *= size
        return (torch.arange(float(count)) * 7 % 13 / 4 - 1.5).reshape(sizes)

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(numbers(64, 64) / 16), torch.nn.Parameter(numbers(64))
            self.register_buffer("offset", numbers(64) / 2)

        def forward(self, x):
            y = torch.nn.functional.linear(x, self.weight, self.bias)
            return y.relu() + self.offset, (y * self.offset).sum(-1)

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.table = torch.nn.Parameter(numbers(1000)), torch.nn.Parameter(numbers(2048, 512))
            self.register_buffer("count", torch.zeros(1 << 17))

        def forward(self, x):
            self.count.add_(1)
            return x * self.weight + self.count.sum() + self.table.sum()

    class Times(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    return Linear(), Counting(), Times(2.0), Times(3.0)


def compile_package(torch, name, path):
    linear, counting, *scaling = define_modules(torch)
    pack = torch._inductor.aoti_compile_and_package
    configs = {"pickled": {"aot_inductor.package_constants_on_disk_format": "pickle_weights"},
               "blob": {"aot_inductor.package_constants_on_disk_format": "binary_blob"}}.get(name)
    if name in ("embedded", "pickled"):
        program = export(torch, linear, (torch.zeros(4, 64),), ({0: torch.export.Dim("n", min=2, max=128)},))
        pack(program, package_path=path, inductor_configs=configs)
    elif name == "blob":
        pack(export(torch, counting, (torch.zeros(1000),)), package_path=path, inductor_configs=configs)
    else:
        files = {one: torch._inductor.aot_compile(export(torch, module, (torch.zeros(8),)).module(), (torch.zeros(8),),
                                                  options={"aot_inductor.package": True})
                 for one, module in zip(("twice", "thrice"), scaling)}
        torch._inductor.package.package_aoti(path, files)


def package(name):
    """Returns the path of one of the packages."""
    import torch
    import torch._inductor.package
    with open(__file__, "rb") as text:
        digest = hashlib.sha256(text.read() + torch.__version__.encode()).hexdigest()[:16]
    directory = os.path.join(BUILD, "test-packages", digest)
    path = os.path.join(directory, f"{name}.pt2")
    with once.lock(directory):
        if not os.path.exists(path):
            compile_package(torch, name, f"{path}.new.pt2")
            os.rename(f"{path}.new.pt2", path)
    return path


def packages():
    """Returns the directory with all packages."""
    return [os.path.dirname(package(name)) for name in ("embedded", "pickled", "blob", "several")][0]


if __name__ == "__main__":
    print(packages())
