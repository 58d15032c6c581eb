"""Compiles docs/examples/generate.c as its first lines say, and runs the same loop with PyTorch's loader.

"python generate_host.py" prints milliseconds per token next to those of PyTorch's aoti_load_package(), also for larger models.
"""
import os
import subprocess
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
EXAMPLES = os.path.join(TOP, "docs", "examples")
sys.path.insert(0, EXAMPLES)


def compile_program(directory):
    program = os.path.join(directory, "generate")
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", os.path.join(EXAMPLES, "generate.c"), "-o",
                    program, "-I", os.path.join(BUILD, "include", "aoticache"), "-L", os.path.join(BUILD, "lib"),
                    "-laoticache", "-lm", "-Wl,-rpath," + os.path.join(BUILD, "lib")], check=True)
    return program


def generate(program, package, prompt, *options):
    done = subprocess.run([program, *options, package, *map(str, prompt)], capture_output=True, text=True,
                          env={**os.environ, "AOTICACHE_DIR": os.path.join(os.path.dirname(package), "cache")})
    return done.returncode, [int(word) for word in done.stdout.split()], done.stderr


def torch_tokens(torch, package, prompt, count):
    """Runs the same loop with PyTorch's loader. Returns the tokens, and the milliseconds for each after the first."""
    from torch._inductor.package import load_package  # aoti_load_package() calls it, with a model's name

    prefill, decode = (load_package(package, name, run_single_threaded=True) for name in ("prefill", "decode"))
    logits, keys, values = prefill(torch.tensor(prompt))
    tokens = [int(logits.argmax())]
    begin = time.perf_counter()
    for _ in range(count - 1):
        logits, keys, values = decode(torch.tensor(tokens[-1:]), keys, values)
        tokens.append(int(logits.argmax()))
    return tokens, (time.perf_counter() - begin) * 1e3 / (count - 1)


MEASURE = """
import sys; sys.path[:0] = sys.argv[1:3]
import torch, generate_host
torch.set_num_threads(1)
with torch.inference_mode():
    tokens, ms = min((generate_host.torch_tokens(torch, sys.argv[3], [17, 4, 99], 200) for _ in range(3)), key=lambda one: one[1])
print(ms, *tokens)
"""


def measure(torch, example, directory, program):
    for kind in ("gpt", "llama"):
        for sizes in ({}, {"vocabulary": 8000, "width": 512, "heads": 8, "layers": 8}):
            step, package = example.make(kind, **sizes), os.path.join(directory, f"{kind}{len(sizes)}.pt2")
            example.compile_package(step, package)
            os.environ.update(OMP_NUM_THREADS="1")
            runs = [generate(program, package, [17, 4, 99], "-n", "200") for _ in range(4)]
            ours = min(float(err.split()[-4]) for _, _, err in runs)
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", MEASURE, HERE, EXAMPLES, package],
                                  capture_output=True, text=True)
            theirs, *tokens = done.stdout.split()
            weights = sum(weight.numel() for weight in step.parameters()) * 4 / 1e6
            print(f"{kind}, {weights:.1f} MB of weights: {ours:.3f} ms a token, aoti_load_package {float(theirs):.3f}; "
                  f"tokens {'equal' if list(map(int, tokens)) == runs[0][1] else 'differ'}", flush=True)


if __name__ == "__main__":
    import generate as example
    import torch
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        measure(torch, example, made, compile_program(made))
