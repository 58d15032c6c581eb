"""Runs PyTorch's operators through kernel holders: calls drawn from PyTorch's operator database give PyTorch's results
in a process with PyTorch and then, from the same cache and without any compile, in one without it.

A result is right if dtype, sizes and strides are PyTorch's and its values are equal, or within
torch.testing.assert_close's default tolerances. (Strides of dimensions of size 0 or 1, and of tensors without elements,
have no meaning.) A refused call gives its reason. A call with another result fails the test, unless torch.compile has
exactly the same result: then PyTorch's compiler differs from eager PyTorch.

Compiles are kept in $BUILD/holder-cache. COUNT=300 is the long form: 20 minutes on two cores, the first time.
Environment: BUILD; SEED and COUNT: which calls, and how many; CACHE: another directory; VERBOSE: name every call.
"""
import collections
import json
import os
import subprocess
import sys
import time

import pytest

import operator_table
from torch_scenarios import python

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
SEED, COUNT = int(os.environ.get("SEED", "6")), int(os.environ.get("COUNT", "12"))
CACHE = os.environ.get("CACHE", os.path.join(BUILD, "holder-cache"))
WORKERS = 2
# The share of the drawn calls that must be served: the rest is refused with a reason.
LEAST_SERVED, LEAST_ALONE = 0.75, 0.7
KINDS = ("equal", "within tolerance", "as PyTorch compiles it", "refused", "wrong")
REFUSALS = ("UNSUPPORTED", "COMPILE_FAILED", "NOT_FOUND")


# ---- making the calls ----

def play(kind, task, directory, miss, workers=WORKERS):
    calls, results = os.path.join(directory, "calls.json"), os.path.join(directory, f"{kind}-{miss}.json")
    with open(calls, "w") as file:
        json.dump(task, file)
    words = ["-W", "ignore", os.path.join(HERE, "holder_player.py"), kind, calls, results, CACHE, miss, str(workers)]
    done = subprocess.run([sys.executable, *words] if kind == "alone" else python(*words))
    lines = []
    if os.path.exists(results):
        with open(results) as file:
            lines = [json.loads(line) for line in file]
    assert done.returncode == 0, f"the process ended with {done.returncode} after {len(lines)} results"
    return {line[0]: line[1:] for line in lines}


# ---- comparing ----

def strides_matter(sizes, strides):
    return [] if 0 in sizes else [stride for size, stride in zip(sizes, strides) if size > 1]


def judge_tensor(got, expected, make):
    import torch
    if got[:2] != expected[:2]:
        return f"dtype and sizes {got[:2]}, PyTorch's are {expected[:2]}"
    if strides_matter(got[1], got[2]) != strides_matter(expected[1], expected[2]):
        return f"strides {got[2]} of sizes {got[1]}, PyTorch's are {expected[2]}"
    if got[3] == expected[3]:
        return "equal"
    got, expected = make(got), make(expected)
    for tolerance in ({"rtol": 0, "atol": 0}, {}):
        try:
            torch.testing.assert_close(got, expected, equal_nan=True, **tolerance)
            return "equal" if tolerance else "within tolerance"
        except AssertionError as error:
            message = " ".join(str(error).split())
    return f"{message}: {got.flatten()[:6].tolist()}, PyTorch's are {expected.flatten()[:6].tolist()}"


def judge(call, answer, make):
    """Returns "equal", "within tolerance", "refused: ..." or what is wrong."""
    if answer is None:
        return "wrong: no answer"
    if answer[0] == "refused":
        # A library that calls PyTorch's proxy executor is refused only when it runs, if the host has no such executor.
        accepted = answer[1].startswith(REFUSALS) or "proxy_executor" in answer[1]
        return ("refused: " if accepted else "wrong: ") + answer[1]
    found = judge_tensors(answer[1], call["expected"], make)
    if found.startswith("wrong") and as_compiled(call, answer[1], make):
        return found.replace("wrong", "as PyTorch compiles it", 1)
    return found


def judge_tensors(got, expected, make):
    if len(got) != len(expected):
        return f"wrong: {len(got)} results, PyTorch has {len(expected)}"
    found = [judge_tensor(*pair, make) for pair in zip(got, expected)]
    wrong = [one for one in found if one not in ("equal", "within tolerance")]
    if wrong:
        return "wrong: " + wrong[0]
    return "within tolerance" if "within tolerance" in found else "equal"


def as_compiled(call, got, make):
    """Returns whether torch.compile has the same result, so that PyTorch's compiler differs from eager PyTorch."""
    import holder_calls
    try:
        return judge_tensors(got, holder_calls.compiled_results(call), make) == "equal"
    except Exception as error:
        print(f"# torch.compile of {call['operator']}: {' '.join(str(error).split())[:200]}")
        return False


def reason_of(refusal):
    """Returns what refusals have in common, for the summary."""
    for text, reason in (("proxy_executor", "needs PyTorch's proxy executor"), ("that the shim", "needs PyTorch"),
                         ("NOT_FOUND", "not in the cache"), ("COMPILE_FAILED", "PyTorch's compiler fails"),
                         ("cannot be exported", "cannot be exported")):
        if text in refusal:
            return reason
    return refusal[:100]


def shorten(value):
    """Returns an argument in human-readable form, without data."""
    if value[0] == "tensor":
        return "tensor %s %s %s" % tuple(value[1][:3])
    if value[0] == "tensors":
        return [one and one[:3] for one in value[1]]
    return value


def judge_all(name, calls, answers, make):
    """Prints refused and wrong calls. Returns the counts by kind."""
    counts, why = collections.Counter(), collections.Counter()
    for place, call in enumerate(calls):
        found = judge(call, answers.get(place), make)
        kind = found.partition(":")[0]
        counts[kind] += 1
        why[reason_of(found)] += kind == "refused"
        if kind in ("wrong", "refused", "as PyTorch compiles it") or os.environ.get("VERBOSE"):
            line = " ".join(found.split())
            print(f"# {name}: {call['operator']} ({call['sample']}): {line[:500]}")
        if kind == "wrong":
            print(f"#   {call['schema']}; arguments {[shorten(value) for value in call['arguments']]}")
    print(f"# {name}: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    print(f"# {name}: refused since " + ", ".join(f"{count}: {one}" for one, count in why.items() if count), flush=True)
    return counts


def check_counts(name, counts, calls, share):
    served = counts["equal"] + counts["within tolerance"]
    assert counts["wrong"] == 0, f"{counts['wrong']} of {len(calls)} calls have other results than PyTorch's"
    assert served >= share * len(calls), f"{served} of {len(calls)} calls are served"
    return f"{served} of {len(calls)}"


# ---- tests ----

@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Returns the calls, schemas that must be refused, a directory, and what makes tensors."""
    assert operator_table.load_torch()
    import holder_calls  # this module needs the operator database
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    calls, refused, left = holder_calls.draw_calls(SEED, COUNT)
    print(f"# seed {SEED}: {len(calls)} calls of {len({call['operator'] for call in calls})} overloads")
    print("# left out: " + ", ".join(f"{count} {reason}" for reason, count in sorted(left.items())))
    print(f"# refused by their schemas: {({reason: len(group) for reason, group in refused.items()})}", flush=True)
    schemas = sorted(schema for group in refused.values() for schema in group)
    return {"calls": calls, "refused": schemas}, str(tmp_path_factory.mktemp("holder")), holder_calls.TENSORS.make


def test_results_are_those_of_pytorch_with_pytorch_in_the_process(drawn):
    task, directory, make = drawn
    began = time.monotonic()
    answers = play("torch", task, directory, "wait")
    counts = judge_all("with PyTorch", task["calls"], answers, make)
    print(f"# {answers['counts'][0]} in {time.monotonic() - began:.0f} s")
    check_counts("with PyTorch", counts, task["calls"], LEAST_SERVED)
    for schema in task["refused"]:
        assert answers[schema][0] == "refused", f"a holder was made for {schema}"
        assert answers[schema][1].startswith("UNSUPPORTED"), answers[schema][1]


def test_a_second_process_compiles_nothing(drawn):
    task, directory, make = {**drawn[0], "refused": []}, *drawn[1:]
    answers = play("torch", task, directory, "never")
    check_counts("again", judge_all("again", task["calls"], answers, make), task["calls"], LEAST_SERVED)
    assert answers["counts"][0]["compiles"] == 0, f"{answers['counts'][0]['compiles']} compiles"


def test_a_process_without_pytorch_has_the_same_results(drawn):
    task, directory, make = {**drawn[0], "refused": []}, *drawn[1:]
    answers = play("alone", task, directory, "never")
    counts = judge_all("without PyTorch", task["calls"], answers, make)
    check_counts("without PyTorch", counts, task["calls"], LEAST_ALONE)
    assert answers["counts"][0]["compiles"] == 0, f"{answers['counts'][0]['compiles']} compiles"
