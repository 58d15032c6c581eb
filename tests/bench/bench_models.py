"""Benchmarks of starting a whole model that is stored under a name, up to its first output.

- Without PyTorch, in C: aoticache_model_open() and a run, compared with dlopen, create, mapping of the same files and a
  run, which verifies nothing and looks nothing up. peers/open_model.c has both.
- With PyTorch: aoticache.load(name) and a call, compared with torch._inductor.aoti_load_package() and a call of the
  package that PyTorch compiles from the same exported program. Both processes have imported everything and loaded
  another model first.

Every measurement is a fresh process; the kinds alternate. Outputs are compared with those of the module. Prints one
JSON object per line, as scripts/bench collects them. `make bench-models`; it compiles for minutes the first time, keeps
the compiled files in BUILD/bench-whole-models, and is not part of `make bench`.

    bench_models.py [--rounds 9] [--without-pytorch] [PART...]

--without-pytorch: only the first kind (a minute; everything takes twenty). PART: only models whose names contain one of
these.

Environment: BUILD, the build directory.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY = os.path.join(BUILD, "bench-whole-models")
CACHE = os.path.join(DIRECTORY, "cache")
PROVIDER = os.path.join(DIRECTORY, "libtorch_cpu.so")
OPEN_MODEL = os.path.join(BUILD, "tests", "bench", "open_model")
TO_PLAIN, TO_TORCH = 1.2, 0.5  # at most; docs/models-cache.md
WARM_UP = "perceptron", "encoder"  # the first model warms up with the second


# ---- the models ----

def make(name):
    """Returns the module and its example, a tensor of ones."""
    import torch
    from torch import nn

    import eager_models as models

    class Separable(nn.Module):
        """Depthwise and pointwise convolutions, as MobileNet has them."""

        def __init__(self):
            super().__init__()
            layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
            for inside, outside, stride in ((32, 64, 1), (64, 128, 2), (128, 128, 1)):
                layers += [nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False), nn.BatchNorm2d(inside),
                           nn.ReLU6(), nn.Conv2d(inside, outside, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU6()]
            self.layers, self.head = nn.Sequential(*layers), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.layers(x).mean((2, 3)))

    torch.manual_seed(1)
    module, example = {
        "perceptron": lambda: (models.Perceptron(), torch.ones(16, 128)),
        "encoder": lambda: (models.Encoder(), torch.ones(4, 32, 96)),
        "ResNet": lambda: (models.ResNet(), torch.ones(4, 3, 32, 32)),
        "separable convolutions": lambda: (Separable(), torch.ones(1, 3, 64, 64)),
        "LSTM": lambda: (models.Recurrent(), torch.ones(8, 16, 32)),
        "GPT": lambda: (models.Gpt(), torch.ones(4, 32, dtype=torch.int64)),
        "64 MB of weights": lambda: (models.Perceptron(2048, 4096, 10), torch.ones(1, 2048)),
        "500 MB of weights": lambda: (models.Perceptron(8192, 7630, 10), torch.ones(1, 8192)),
    }[name]()
    return module.eval(), example


NAMES = ("perceptron", "encoder", "ResNet", "separable convolutions", "LSTM", "GPT", "64 MB of weights", "500 MB of weights")


def directory_of(name):
    return os.path.join(DIRECTORY, name.replace(" ", "-"))


def prepare(name):
    """Compiles it both ways, and keeps its files and the module's output."""
    import torch

    import aoticache

    directory = directory_of(name)
    if os.path.exists(os.path.join(directory, "about.json")):
        return
    os.makedirs(directory, exist_ok=True)
    module, example = make(name)
    print(f"bench_models: {name} is compiled", file=sys.stderr)
    with torch.no_grad():
        aoticache.compile(module, (example,), id=name)
        torch._inductor.aoti_compile_and_package(torch.export.export(module, (example,)),
                                                 package_path=os.path.join(directory, "torch.pt2"))
        total = float(module(example).double().sum())
    subprocess.run([OPEN_MODEL, "copy", CACHE, name, directory], check=True)
    word = str(example.dtype).split(".")[-1] + ":" + "x".join(map(str, example.shape))
    with open(os.path.join(directory, "about.json"), "w") as file:
        json.dump({"input": word, "sum": total}, file)


def make_provider():
    """Makes a shim with PyTorch's soname, which the plain program loads instead of PyTorch."""
    with open(os.path.join(BUILD, "lib", "libaoticache_torchshim.so"), "rb") as file:
        shim = file.read()
    own, theirs = b"libaoticache_torchshim.so\0", b"libtorch_cpu.so\0"
    with open(PROVIDER, "wb") as file:
        file.write(shim.replace(own, theirs + bytes(len(own) - len(theirs)), 1))


# ---- one measurement, in a separate process ----

def load(kind, name):
    import torch

    import aoticache
    if kind == "theirs":
        return torch._inductor.aoti_load_package(os.path.join(directory_of(name), "torch.pt2"))
    return aoticache.load(name)


def play(kind, name):
    import torch
    import torch._inductor  # noqa: F401
    with open(os.path.join(directory_of(name), "about.json")) as file:
        about = json.load(file)
    dtype, sizes = about["input"].split(":")
    example = torch.ones([int(size) for size in sizes.split("x")], dtype=getattr(torch, dtype))
    other = WARM_UP[name == WARM_UP[0]]
    with torch.no_grad():
        load(kind, other)
        begun = time.perf_counter_ns()
        output = load(kind, name)(example)
        nanoseconds = time.perf_counter_ns() - begun
    print(nanoseconds, float(output.double().sum()))


def measure(kind, name):
    """Returns milliseconds; fails if the output is wrong."""
    with open(os.path.join(directory_of(name), "about.json")) as file:
        about = json.load(file)
    if kind == "C":
        words = [OPEN_MODEL, "ours", CACHE, name, about["input"]]
    elif kind == "plain C":
        words = [OPEN_MODEL, "plain", directory_of(name), PROVIDER, about["input"]]
    else:
        words = [sys.executable, "-W", "ignore", __file__, "--play", kind, name]
    answer = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment()).stdout
    nanoseconds, total = answer.splitlines()[-1].split()
    if abs(float(total) - about["sum"]) > 1e-3 * max(1.0, abs(about["sum"])):
        sys.exit(f"bench_models: {name}, {kind}: the sum of the output is {total}, the module's {about['sum']:.9g}")
    return int(nanoseconds) / 1e6


def environment():
    return {**os.environ, "AOTICACHE_DIR": CACHE, "AOTICACHE_HOME": BUILD, "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.path.join(HERE, "..", "..", "eager", "torch")}


def row(name, value, peer, peer_value, target):
    ratio = value / peer_value
    print(json.dumps({"name": name, "value": round(value, 3), "unit": "ms", "peer": peer, "peer_value": round(peer_value, 3),
                      "ratio": round(ratio, 4), "target": target, "met": ratio <= target}), flush=True)
    print(f"{name:58} {value:9.2f} ms  {peer:24} {peer_value:9.2f} ms  {ratio:6.3f}  "
          f"{'met' if ratio <= target else 'NOT MET'}", file=sys.stderr)


def take_turns(kinds, name, rounds):
    """Returns the medians of both kinds."""
    times = {kind: [] for kind in kinds}
    for pause in (0, 3, 0):  # the first ones have files to read, and digests to record
        for kind in kinds:
            measure(kind, name)
        time.sleep(pause)  # the query cache is kept if the index has not changed for two seconds
    for number in range(rounds):
        for kind in kinds if number % 2 else kinds[::-1]:
            times[kind].append(measure(kind, name))
    return [statistics.median(times[kind]) for kind in kinds]


def compare(name, rounds, is_short):
    """Measures without PyTorch: processes are short, so there are more rounds, and none follows one that used much
    memory."""
    ours, plain = take_turns(("C", "plain C"), name, rounds * 5)
    row(f"first output of {name}, without PyTorch", ours, "dlopen + create + map", plain, TO_PLAIN)
    if is_short:
        return
    ours, theirs = take_turns(("ours", "theirs"), name, rounds)
    row(f"first output of {name}, beside PyTorch", ours, "aoti_load_package", theirs, TO_TORCH)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--without-pytorch", action="store_true", help="only processes without PyTorch")
    parser.add_argument("--play", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("parts", nargs="*", metavar="PART")
    words = parser.parse_args()
    if words.play:
        return play(*words.play)
    if words.prepare:
        return prepare(words.prepare)
    os.makedirs(DIRECTORY, exist_ok=True)
    make_provider()
    chosen = [name for name in NAMES if not words.parts or any(part in name for part in words.parts)]
    for name in dict.fromkeys([*WARM_UP, *chosen]):
        subprocess.run([sys.executable, "-W", "ignore", __file__, "--prepare", name], check=True, env=environment())
    for name in chosen:
        compare(name, words.rounds, words.without_pytorch)


if __name__ == "__main__":
    main()
