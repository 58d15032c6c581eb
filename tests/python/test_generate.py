"""docs/examples/generate.c, compiled as its first lines say, on the two packages that docs/examples/generate.py makes: its
greedy tokens are those of eager PyTorch, which has no keys and values to keep and sees all tokens anew each time; what it
samples is among the most likely ones and the same for the same seed; what it cannot do it says.

"measure" as an argument prints milliseconds per token beside PyTorch's aoti_load_package(), with larger models.
"""
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
EXAMPLES = os.path.join(TOP, "docs", "examples")
sys.path.insert(0, EXAMPLES)
PROMPTS = ([17, 4, 99], [1, 2], list(range(40, 77)))
failures = 0


def check(name, holds, detail=""):
    global failures
    failures += not holds
    print(f"{'ok' if holds else 'not ok'} - {name}", flush=True)
    if not holds and detail:
        print(f"# {detail}", file=sys.stderr)


def compile_program(folder):
    program = os.path.join(folder, "generate")
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", os.path.join(EXAMPLES, "generate.c"), "-o",
                    program, "-I", os.path.join(BUILD, "include", "aoticache"), "-L", os.path.join(BUILD, "lib"),
                    "-laoticache", "-lm", "-Wl,-rpath," + os.path.join(BUILD, "lib")], check=True)
    return program


def generate(program, package, prompt, *options):
    done = subprocess.run([program, *options, package, *map(str, prompt)], capture_output=True, text=True,
                          env={**os.environ, "AOTICACHE_DIR": os.path.join(os.path.dirname(package), "cache")})
    return done.returncode, [int(word) for word in done.stdout.split()], done.stderr


def eager_logits(torch, step, tokens):
    with torch.no_grad():
        return step(torch.tensor(tokens))[0]


def eager_tokens(torch, step, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(eager_logits(torch, step, tokens).argmax()))
    return tokens[len(prompt):]


def test_model(torch, kind, step, package, program):
    for prompt in PROMPTS:
        expected = eager_tokens(torch, step, prompt, 64)
        code, got, err = generate(program, package, prompt)
        check(f"{kind}, a prompt of {len(prompt)}: 64 tokens are those of eager PyTorch", code == 0 and got == expected
              and len(got) == 64, f"{got} {expected} {err}")
        check(f"{kind}: they are not the same again and again", len(set(expected)) > 8, str(expected))
    prompt = PROMPTS[0]
    chance = ("-n", "40", "-t", "1.5", "-k", "5")
    code, got, err = generate(program, package, prompt, *chance, "-s", "7")
    check(f"{kind}: the same seed gives the same tokens", (code, got) == generate(program, package, prompt, *chance, "-s", "7")[:2]
          and len(got) == 40, err)
    check(f"{kind}: another one does not", got != generate(program, package, prompt, *chance, "-s", "8")[1])
    ranks = []
    for place, token in enumerate(got):
        logits = eager_logits(torch, step, prompt + got[:place])
        ranks.append(int((logits > logits[token] + 1e-4).sum()))
    check(f"{kind}: sampled tokens are among the 5 most likely, and not always the first", max(ranks) < 5 and len(set(ranks)) > 1,
          str(ranks))
    check(f"{kind}: among one there is no choice", generate(program, package, prompt, "-t", "2", "-k", "1")[1]
          == generate(program, package, prompt)[1])


def test_chances(torch, step, package, program):
    """The first token under many seeds, against the probabilities that PyTorch's logits give."""
    turns, temperature = 150, 3.0
    logits = eager_logits(torch, step, PROMPTS[0])
    best = logits.topk(3)
    chances = torch.softmax(best.values / temperature, dim=0).tolist()
    options = ("-n", "1", "-t", str(temperature), "-k", "3", "-s")
    found = [generate(program, package, PROMPTS[0], *options, str(seed))[1][0] for seed in range(turns)]
    for token, chance in zip(best.indices.tolist(), chances):
        often = found.count(token) / turns
        check(f"a token of probability {chance:.2f} comes in {often:.2f} of the cases",
              abs(often - chance) < 5 * math.sqrt(chance * (1 - chance) / turns), str(chances))


def test_refusals(package, other, program):
    for name, options, prompt in (("one token", (), [1]), ("no number", (), [1, "x"]), ("a negative count", ("-n", "-3"), [1, 2]),
                                  ("an option that there is not", ("-x",), [1, 2]), ("a temperature below 0", ("-t", "-1"), [1, 2])):
        code, got, err = generate(program, package, prompt, *options)
        check(f"{name}: says how it is used", code == 2 and not got and "usage:" in err, f"{code} {err}")
    code, got, err = generate(program, package, [place % 331 for place in range(510)], "-n", "9")
    check("more tokens than the model has places for: an end in words, not beyond them", code == 1 and len(got) < 9
          and "511" in err, f"{code} {got} {err[-300:]}")
    code, got, err = generate(program, other, [1, 2])
    check("a package without these models", code == 1 and "prefill" in err, err)


def compile_other(torch, path):
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    torch._inductor.aoti_compile_and_package(program, package_path=path)


def torch_tokens(torch, package, prompt, count):
    """The same loop with PyTorch's loader. Tokens, and milliseconds for each after the first."""
    from torch._inductor.package import load_package  # what aoti_load_package() calls, with a model's name

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
import torch, test_generate
torch.set_num_threads(1)
with torch.inference_mode():
    tokens, ms = min((test_generate.torch_tokens(torch, sys.argv[3], [17, 4, 99], 200) for _ in range(3)), key=lambda one: one[1])
print(ms, *tokens)
"""


def measure(torch, example, folder, program):
    for kind in ("gpt", "llama"):
        for sizes in ({}, {"vocabulary": 8000, "width": 512, "heads": 8, "layers": 8}):
            step, package = example.make(kind, **sizes), os.path.join(folder, f"{kind}{len(sizes)}.pt2")
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


def main():
    if shutil.which("cc") is None:
        print("skip - generate: there is no C compiler")
        return 77
    import generate as example
    import torch
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(folder)
        if "measure" in sys.argv:
            return measure(torch, example, folder, program)
        packages = {}
        for kind in ("gpt", "llama"):
            step, packages[kind] = example.make(kind), os.path.join(folder, kind + ".pt2")
            example.compile_package(step, packages[kind])
            test_model(torch, kind, step, packages[kind], program)
            check(f"{kind}: PyTorch's own loader gives the same", torch_tokens(torch, packages[kind], PROMPTS[0], 64)[0]
                  == generate(program, packages[kind], PROMPTS[0])[1])
        test_chances(torch, step, packages["llama"], program)
        other = os.path.join(folder, "other.pt2")
        compile_other(torch, other)
        test_refusals(packages["gpt"], other, program)
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
