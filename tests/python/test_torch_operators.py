"""PyTorch's operators with the cache behind them: samples of PyTorch's operator database, with every operator enabled that
the binding accepts, give eager PyTorch's results, gradients and exceptions; a second process has them all without any
compile.

A result is right if dtype, sizes, strides (where they mean something), requires_grad and the inputs whose memory it has are
eager PyTorch's, and its values are equal, or within torch.testing.assert_close's default tolerances. A sample with another
result fails the test, unless torch.compile makes exactly the same of its operators: then PyTorch's compiler differs from
eager PyTorch. Samples in which no compiled kernel answered are counted, with the reason.

Compiles are kept in $BUILD/torch-package-cache. The normal form makes a dozen; COUNT=300 is the long form, and
SECONDS=3600 goes on with other seeds until so much time has passed.
Environment: BUILD; SEED, COUNT, SECONDS; CACHE: another directory; VERBOSE: name every sample.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import operator_table

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
SEED, COUNT = int(os.environ.get("SEED", "7")), int(os.environ.get("COUNT", "12"))
SECONDS = float(os.environ.get("SECONDS", "0"))
CACHE = os.environ.get("CACHE", os.path.join(BUILD, "torch-package-cache"))  # the other tests' too: one bridge for all
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
LEAST_SERVED = 0.7  # of the samples: in the rest, PyTorch's kernel answers for a reason that is printed
KINDS = ("equal", "within tolerance", "as PyTorch compiles it", "PyTorch's kernel", "wrong")
# Compiled libraries that call PyTorch's own kernel through its proxy executor are not used; what cannot be compiled is not.
REASONS = (("proxy executor", "the compiled kernel would call PyTorch's own"), ("hook worker", "PyTorch's compiler fails"),
           ("wrapped", "wrapped numbers or conjugated tensors"), ("no kernel", "no kernel in the cache"))


def call(*words, **environment):
    command = [sys.executable, "-W", "ignore", os.path.join(HERE, "torch_operators.py"), *map(str, words)]
    done = subprocess.run(command, env={**os.environ, **environment})
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}"


def read(path):
    with open(path) as file:
        return json.load(file)


def reason_of(verdict):
    return next((reason for text, reason in REASONS if text in verdict), verdict[:120])


# ---- counting ----

def judge_pass(name, found, place):
    """Prints what is not as eager PyTorch has it; the counts by kind."""
    counts, why = collections.Counter(), collections.Counter()
    for sample in found["samples"]:
        one = sample["passes"][place]
        kind = one["verdict"].partition(":")[0]
        counts[kind] += 1
        if kind == "PyTorch's kernel":
            why[reason_of(one["verdict"])] += 1
        if kind in ("wrong", "as PyTorch compiles it") or os.environ.get("VERBOSE"):
            print(f"# {name}: {sample['name']}: {' '.join(one['verdict'].split())[:600]}")
    print(f"# {name}: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    if why:
        print(f"# {name}: PyTorch's kernel since " + ", ".join(f"{count}: {one}" for one, count in why.items()))
    sys.stdout.flush()
    return counts


def overloads_of(found, place):
    """(served, not served): overloads that were called, by whether a compiled kernel answered."""
    served, others = set(), set()
    for sample in found["samples"]:
        for name, moved in sample["passes"][place]["operators"].items():
            (served if moved["calls"] > moved["fallbacks"] + moved["refused"] else others).add(name)
    return served, others - served


def check_counts(name, counts, least=LEAST_SERVED):
    total = sum(counts.values())
    assert counts["wrong"] == 0, f"{name}: {counts['wrong']} of {total} samples have other results than eager PyTorch's"
    served = total - counts["PyTorch's kernel"]
    assert served >= least * total, f"{name}: a compiled kernel answers in {served} of {total} samples"


# ---- checks ----

def check_binding(names):
    """What explain() says can be served can be enabled."""
    refused = read(names)["disagreeing"]
    assert not refused, f"explain() accepts {len(refused)} that cannot be enabled: {', '.join(sorted(refused))}"


def check_first(found):
    """Background compiles, PyTorch's kernels answering; then compiled kernels, twice."""
    print(f"# {found['passes'][0]['enabled']} operators enabled by the {found['passes'][0]['interface']}; "
          f"{[one['totals'] for one in found['passes']]} in {found['seconds']}")
    judged = [judge_pass(name, found, place) for place, name in enumerate(("background", "wait", "again"))]
    served, others = overloads_of(found, 2)
    print(f"# {len(served)} overloads served: {' '.join(sorted(served))}")
    print(f"# {len(others)} overloads not served: {' '.join(sorted(others))}", flush=True)
    check_counts("background", judged[0], 0.0)
    for counts in judged[1:]:
        check_counts("wait", counts)
    assert found["passes"][2]["totals"]["hits"] > 0, "no call is a hit"
    last = [sample["passes"][2]["operators"].values() for sample in found["samples"]]
    assert not sum(one["compiles"] for operators in last for one in operators), "a kernel is compiled twice"


def check_again(found):
    """Another process compiles nothing, and has the same results."""
    counts, totals = judge_pass("a second process", found, 0), found["passes"][0]["totals"]
    print(f"# a second process: {totals}", flush=True)
    assert totals["compiles"] == 0, f"{totals['compiles']} compiles"
    check_counts("a second process", counts)
    assert totals["hits"] > 0, "no call is a hit"


def check_stable(found):
    """Without the bridge: fewer operators, the same cache, the same results."""
    counts, one = judge_pass("stable C interface", found, 1), found["passes"][1]
    print(f"# stable C interface: {one['enabled']} operators enabled, {one['skipped']} skipped, {one['totals']}")
    assert one["interface"] == "stable C interface", one["interface"]
    check_counts("stable C interface", counts, 0.3)


# ---- all ----

def report(name, check, *arguments):
    try:
        check(*arguments)
        print(f"ok - torch operators: {name}", flush=True)
        return 0
    except Exception as error:
        print(f"not ok - torch operators: {name}: {' '.join(str(error).split())[:600]}", flush=True)
        return 1


def play_seed(seed, folder):
    names, results = os.path.join(folder, f"names-{seed}.json"), os.path.join(folder, "results.json")
    call("draw", seed, COUNT, names, results, CACHE, "background", "wait", "wait")
    task = read(names)
    print(f"# seed {seed}: {len(task['names'])} samples, {sum(one['grad'] for one in task['names'])} with gradients, "
          f"{sum(one['kind'] == 'error' for one in task['names'])} errors; {len(task['accepted'])} operators accepted")
    print("# left out: " + ", ".join(f"{count} {reason}" for reason, count in sorted(task["left"].items())), flush=True)
    failed = report("what explain() accepts can be enabled", check_binding, names)
    failed += report("eager PyTorch's results", check_first, read(results))
    call("play", names, results, CACHE, "wait", "stable")
    failed += report("a second process compiles nothing", check_again, read(results))
    return failed + report("the stable C interface, the same results", check_stable, read(results))


def main():
    if not operator_table.load_torch():
        print("this Python has no PyTorch")
        return 77
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    failed, seed, began = 0, SEED, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aoticache-torch.") as folder:
        while seed == SEED or time.monotonic() - began < SECONDS:
            failed += play_seed(seed, folder)
            seed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
