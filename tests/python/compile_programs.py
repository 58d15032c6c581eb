"""Programs for torch.compile, and a process that runs them and says what it started and what came out.

    compile_programs.py [--uninstalled] [--save FILE] [--load FILE] [NAME ...]

Prints one line of JSON: for each program the digest of its results, whether they are PyTorch's own, and the seconds of its
first call; the processes that were started; the counts of the compile cache; the warnings. Exit status 3: a program raised.
"""
import argparse
import hashlib
import json
import sys
import time
import warnings


def pointwise(torch):
    x = torch.linspace(-3, 3, 1000)
    return lambda x: torch.sin(x) * 2 + torch.relu(x), [(x,)]


def reduction(torch):
    x = torch.arange(6000.0).reshape(60, 100) / 6000
    return lambda x: torch.softmax(x, 1).sum(0) + x.mean(), [(x,)]


def dynamic(torch):
    """Three lengths: the second compile is for all of them, and one graph gets guards."""
    return lambda x: (x * x + 1).cumsum(0), [(torch.linspace(0, 1, n),) for n in (50, 70, 90)]


def training(torch):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    x, y = torch.linspace(-1, 1, 128).reshape(8, 16), torch.linspace(0, 1, 32).reshape(8, 4)

    def step(x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    def run(function, x, y):
        model.zero_grad()
        loss = function(x, y)
        loss.backward()
        return (loss.detach(), *(parameter.grad.clone() for parameter in model.parameters()))
    step.run = run
    return step, [(x, y)]


def bfloat16(torch):
    x = torch.linspace(-2, 2, 512).to(torch.bfloat16)
    return lambda x: torch.tanh(x) * x + torch.exp(x), [(x,)]


def unseen(torch):
    """For tests of misses: nothing else compiles it."""
    x = torch.linspace(0, 1, 77)
    return lambda x: torch.cos(x) * 17 - torch.abs(x) / 3, [(x,)]


PROGRAMS = {one.__name__: one for one in (pointwise, reduction, dynamic, training, bfloat16, unseen)}
USUAL = ("pointwise", "reduction", "dynamic", "training", "bfloat16")


def results(function, compiled, argument_sets):
    run = getattr(function, "run", lambda call, *arguments: (call(*arguments),))
    return [run(compiled, *arguments) for arguments in argument_sets]


def digest(values):
    hasher = hashlib.sha256()
    for value in values:
        for one in value:
            hasher.update(one.detach().float().contiguous().numpy().tobytes())
    return hasher.hexdigest()


def play(torch, name):
    torch._dynamo.reset()
    function, argument_sets = PROGRAMS[name](torch)
    begun = time.perf_counter()
    got = results(function, torch.compile(function), argument_sets)
    seconds = time.perf_counter() - begun
    own = results(function, function, argument_sets)
    loose = {"rtol": 2e-2, "atol": 2e-2} if name == "bfloat16" else {"rtol": 1e-4, "atol": 1e-5}
    same = all(torch.allclose(a, b, **loose) for x, y in zip(got, own) for a, b in zip(x, y))
    return {"digest": digest(got), "same": same, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--uninstalled", action="store_true")
    parser.add_argument("--any", action="store_true")
    parser.add_argument("--save")
    parser.add_argument("--load")
    parser.add_argument("names", nargs="*", default=USUAL)
    options = parser.parse_args()
    started = []
    sys.addaudithook(lambda event, arguments: started.append([str(one) for one in arguments[:2]])
                     if event in ("subprocess.Popen", "os.posix_spawn", "os.system") else None)
    said = []
    warnings.showwarning = lambda message, category, *_: said.append(f"{category.__name__}: {message}")
    import torch
    import aoticache
    if not options.uninstalled:
        aoticache.install_compile_cache(any_compiler=options.any)
    report = {"programs": {}, "error": ""}
    if options.load:
        with open(options.load, "rb") as file:
            report["loaded"] = torch.compiler.load_cache_artifacts(file.read()) is not None
    try:
        for name in options.names:
            report["programs"][name] = play(torch, name)
    except Exception as error:
        report["error"] = f"{type(error).__name__}: {error}"
    if options.save:
        with open(options.save, "wb") as file:
            file.write(torch.compiler.save_cache_artifacts()[0])
    counts = {kind: vars(count) for kind, count in aoticache.stats().compile.items()}
    print(json.dumps({**report, "started": started, "counts": counts, "warnings": said}))
    return 3 if report["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
