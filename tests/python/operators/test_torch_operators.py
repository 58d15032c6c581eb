"""Tests PyTorch's operators with the cache: samples of PyTorch's operator database, with every operator enabled that the
binding accepts, give eager PyTorch's results, gradients and exceptions; a second process gets the same results without any
compile.

A result is right if dtype, sizes, strides (if they have a meaning), requires_grad and the inputs whose memory it shares are
eager PyTorch's, and its values are equal, or within torch.testing.assert_close's default tolerances. A sample with another
result fails the test, unless torch.compile gives exactly the same for its operators: then PyTorch's compiler differs from
eager PyTorch. Samples in which no compiled kernel answered are counted, with the reason.

Compiles are kept in $BUILD/torch-package-cache. The normal form makes a dozen; COUNT=300 is the long form, and SEEDS=20
uses that many seeds, from SEED on.
Environment: BUILD; SEED, SEEDS, COUNT; CACHE: another directory; VERBOSE: name every sample.
"""
import collections
import json
import os
import subprocess
import sys

import pytest

from torch_scenarios import python

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
SEED, COUNT = int(os.environ.get("SEED", "7")), int(os.environ.get("COUNT", "12"))
CACHE = os.environ.get("CACHE", os.path.join(BUILD, "torch-package-cache"))  # shared with other tests: one bridge for all
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
LEAST_SERVED = 0.7  # of the samples: for the rest, PyTorch's kernel answers for a reason that is printed
KINDS = ("equal", "within tolerance", "as PyTorch compiles it", "PyTorch's kernel", "wrong")
# Compiled libraries that call PyTorch's own kernel through its proxy executor are not used.
REASONS = (("proxy executor", "the compiled kernel would call PyTorch's own"), ("hook worker", "PyTorch's compiler fails"),
           ("wrapped", "wrapped numbers or conjugated tensors"), ("no kernel", "no kernel in the cache"))


def call(*words, **environment):
    command = python("-W", "ignore", os.path.join(HERE, "torch_operators.py"), *map(str, words))
    done = subprocess.run(command, env={**os.environ, **environment})
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}"


def read(path):
    with open(path) as file:
        return json.load(file)


def reason_of(verdict):
    return next((reason for text, reason in REASONS if text in verdict), verdict[:120])


# ---- counting ----

def judge_pass(name, found, place):
    """Prints what differs from eager PyTorch. Returns the counts by kind."""
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
    """Returns (served, not served): overloads that were called, by whether a compiled kernel answered."""
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

@pytest.fixture(scope="module", params=range(int(os.environ.get("SEEDS", "1"))), ids=lambda number: f"seed {SEED + number}")
def played(request, tmp_path_factory):
    """Returns the samples of a seed, and the findings of each pass: those of a first process, and those of a
    second."""
    seed, directory = SEED + request.param, str(tmp_path_factory.mktemp("operators"))
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    names, first, second = (os.path.join(directory, f"{name}.json") for name in ("names", "first", "second"))
    call("draw", seed, COUNT, names, first, CACHE, "background", "wait", "wait")
    task = read(names)
    print(f"# seed {seed}: {len(task['names'])} samples, {sum(one['grad'] for one in task['names'])} with gradients, "
          f"{sum(one['kind'] == 'error' for one in task['names'])} errors; {len(task['accepted'])} operators accepted")
    print("# left out: " + ", ".join(f"{count} {reason}" for reason, count in sorted(task["left"].items())), flush=True)
    call("play", names, second, CACHE, "wait")
    return task, read(first), read(second)


def test_what_explain_accepts_can_be_enabled(played):
    refused = played[0]["disagreeing"]
    assert not refused, f"explain() accepts {len(refused)} that cannot be enabled: {', '.join(sorted(refused))}"


def test_results_are_those_of_eager_pytorch(played):
    """Background compiles, while PyTorch's kernels answer; then compiled kernels, twice."""
    found = played[1]
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


def test_another_process_compiles_nothing(played):
    """The other process gets the same results."""
    found = played[2]
    counts, totals = judge_pass("a second process", found, 0), found["passes"][0]["totals"]
    print(f"# a second process: {totals}", flush=True)
    assert totals["compiles"] == 0, f"{totals['compiles']} compiles"
    check_counts("a second process", counts)
    assert totals["hits"] > 0, "no call is a hit"
