"""Compares our runner with PyTorch's own, on libraries that PyTorch made.

The same calls are made to torch._C._aoti.AOTIModelContainerRunnerCpu, to ours in a process that has PyTorch, and to ours in one
without it, in which the libraries run on the shim; and again, in all three, with the libraries that our build makes of the same
code (eager/compile/inductor/). The calls are a list written by hand for each model, and random ones. After every call both must
have accepted or both refused, and results must be bit for bit the same: outputs with their sizes and strides, the inputs after
the run, which outputs share the memory of which inputs, extracted constants. In the process without PyTorch, libraries that call
PyTorch's kernels (runner_models.KERNELS) may differ by the tolerances of PyTorch's own tests.

Left out, because PyTorch's runner has no defined result (it uses null, dangling or too short tensors, or never returns;
test_container_sequences.py has the list for the container):
- runs, folds and extractions of a buffer that was freed and not completely filled again, or never complete; freeing one whose
  constants were folded;
- updates of the inactive buffer while the active one is incomplete, and partial updates of a freed one;
- tensors that are part of a larger one; a blob given again; user-managed tensors for a part of the inactive buffer;
- runs of a library with separate weights before it has them (the test makes these calls to ours, which refuses them).
Ours makes these calls as well: PyTorch's reaches the same state by other calls (Author.alike), and the following runs are
compared. Only ours makes the following calls, because it is stricter on purpose: names that no constant has or that are given
twice (PyTorch's ignores the former and cannot express the latter), tensors of another dtype, other sizes or strides (PyTorch's
copies their data), a blob of another size.

Environment: BUILD; BATTERY_STEPS, the number of random steps (60); BATTERY_SEED.
"""
import json
import os
import subprocess
import sys
import sysconfig

import pytest
import torch

import runner_models
import runner_players
import runner_scenarios
import runner_tensors
import shim_checks
import tensor_file
from torch_scenarios import python

HERE = os.path.dirname(os.path.abspath(__file__))
# Refusals that our runner makes before the library does, or for which PyTorch's runner drops the library's message.
OWN_WORDS = {"expected inputs": "inputs", "API call failed": "", "Unknown constant state": "has no value"}
# Our library in PyTorch's runner: the library's own message, as with PyTorch's library.
OWN_WORDS_IN_TORCH = {"API call failed": ""}
BOTH = ("fast path", "pool only")
# With PyTorch and without it; then with our build's libraries: in PyTorch's runner, with PyTorch, and without it.
HOSTS = {"beside": BOTH, "alone": BOTH, "torch-own": ("",), "beside-own": BOTH, "alone-own": BOTH}
MODELS = runner_models.make_models(torch)

# ---- comparing ----

def play(kind, directory, peer):
    """Returns (variant, scenario, step) to answer, and what the process printed if it died."""
    results = os.path.join(directory, kind)
    with open(os.path.join(directory, kind + ".log"), "w+") as log:
        words = [os.path.join(HERE, "runner_players.py"), kind, os.path.join(directory, "scenarios"), results] + ([peer] if peer else [])
        command = [sys.executable, *words] if kind.startswith("alone") else python(*words)
        code = subprocess.run(command, stdout=log, stderr=log, timeout=900).returncode
        log.seek(0)
        said = [line for line in log.read().splitlines() if "[WARNING]" not in line][-12:]
    answers = {}
    with open(results) as lines:
        for variant, name, step, answer in map(json.loads, lines):
            answers[variant, name, step] = answer
    return answers, ([f"exit {code}"] + said if code != 0 else [])


def is_close(torch, tensors, one, other):
    """Compares tensors as PyTorch's own tests do; everything else must be equal."""
    if one == other:
        return True
    if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
        return False
    if len(one) == 4 and isinstance(one[3], str) and one[:3] == other[:3]:
        try:
            torch.testing.assert_close(tensors.make(one), tensors.make(other))
            return True
        except AssertionError:
            return False
    return all(is_close(torch, tensors, a, b) for a, b in zip(one, other))


def check_step(step, answer, reference, same, words):
    """Returns None, or what is wrong."""
    if answer is None:
        return "no answer"
    wanted = step.get("expect", reference)
    if wanted is None:
        return None  # PyTorch's runner died earlier; that is its own fault
    if wanted[0] == "refused" and answer[0] == "refused":
        said = wanted[1] if len(wanted) > 1 else ""
        own = next((ours for theirs, ours in words.items() if theirs in said), said)  # otherwise the library's
        return None if own in answer[1] else f"says {answer[1]}, not {own}"
    return None if same(answer, wanted) else f"is {answer} and should be {wanted}"


def check_scenario(scenario, answers, references, variant, same, in_torch):
    wrong, words = [], OWN_WORDS_IN_TORCH if in_torch else OWN_WORDS
    for i, step in enumerate(scenario["steps"]):
        if step.get("only") in ("torch", "ours" if in_torch else None):
            continue
        answer, reference = answers.get((variant, scenario["name"], i)), references.get(("", scenario["name"], i))
        fault = check_step(step, answer, reference, same, words)
        if fault:
            before = " ".join(one["method"] for one in scenario["steps"][max(0, i - 6):i])
            shown = {key: value for key, value in step["arguments"].items() if key not in ("pairs", "inputs")}
            names = [name for name, _ in step["arguments"].get("pairs", [])]
            wrong.append(f"step {i}, {step['method']} {shown} {names} after {before}: {fault}")
    return wrong


def pokes_that_show(scenario, references):
    """Returns how often a run, a poke and a run in succession have two results."""
    count, methods = 0, [step["method"] for step in scenario["steps"]]
    for i in range(1, len(methods) - 1):
        if methods[i - 1:i + 2] == ["run", "poke", "run"]:
            before, after = (references.get(("", scenario["name"], j)) for j in (i - 1, i + 1))
            count += before != after
    return count


def make_peer(torch):
    """Returns the module that folds, or None if it does not compile."""
    path = os.path.join(runner_models.BUILD, "battery-models", f"runner_fold-{torch.__version__}.so")
    source = os.path.join(HERE, "..", "..", "bench", "peers", "runner_fold.cpp")
    if os.path.exists(path) and os.path.getmtime(path) > os.path.getmtime(source):
        return path
    home = os.path.dirname(torch.__file__)
    command = ["c++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", f"-I{home}/include",
               f"-I{sysconfig.get_paths()['include']}", source, "-o", f"{path}.{os.getpid()}", f"-L{home}/lib",
               "-ltorch_cpu", "-lc10"]
    if subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0:
        return None
    os.rename(f"{path}.{os.getpid()}", path)
    return path


class Battery:
    """The scenarios, and their results in each host; a host runs everything when its results are first requested."""

    def __init__(self, names, directory):
        self.tensors, self.directory = runner_tensors.TorchTensors(torch, tensor_file), directory
        models = {name: MODELS[name] for name in names}
        paths, own = (runner_models.libraries(torch, models, own=one) for one in (False, True))
        self.scenarios = runner_scenarios.write_scenarios(torch, self.tensors, models, paths)
        self.peer, self.played = make_peer(torch), {}
        for scenario in self.scenarios:
            scenario["own_library"] = own[scenario["model"]] + ".so" if scenario["model"] in own else None
            if self.peer is None:  # ours does not fold either, so that all run the same; folding before the next run stays
                scenario["steps"] = [step for step in scenario["steps"] if step["method"] != "fold"]
        with open(os.path.join(directory, "scenarios"), "w") as file:
            json.dump(self.scenarios, file)

    def play(self, kind):
        """Returns the answers, and what the process printed if it died."""
        if kind not in self.played:
            self.played[kind] = play(kind, self.directory, self.peer if kind.startswith("torch") else None)
        return self.played[kind]

    def of(self, model):
        return [one for one in self.scenarios if one["model"] == model]


@pytest.fixture(scope="module")
def battery(request, tmp_path_factory):
    """Returns the scenarios of the models whose cases were selected."""
    params = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = {one.params["model"] for one in params if one is not None and "model" in one.params}
    return Battery([name for name in MODELS if name in chosen] or list(MODELS), str(tmp_path_factory.mktemp("battery")))


@pytest.mark.parametrize("kind", ["torch", *HOSTS])
def test_plays_to_the_end(battery, kind):
    assert not battery.play(kind)[1]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", HOSTS)
def test_query_cache(battery, kind, model):
    """Checks each variant; without PyTorch, libraries with kernels of PyTorch may differ."""
    answers, references = battery.play(kind)[0], battery.play("torch")[0]
    close = kind.startswith("alone") and model in runner_models.KERNELS
    same = (lambda a, b: is_close(torch, battery.tensors, a, b)) if close else (lambda a, b: a == b)
    wrong = []
    for scenario in battery.of(model):
        if kind.endswith("-own") and not scenario["own_library"]:
            continue
        for variant in HOSTS[kind]:
            wrong += [f"{scenario['name']}, {variant}, {one}"
                      for one in check_scenario(scenario, answers, references, variant, same, kind == "torch-own")]
    assert not wrong, "\n".join(wrong[:8])


def test_pytorchs_runner_accepts_most_and_refuses_some(battery, request):
    """The scenarios must do something, and writes to the user's memory must change results."""
    shim_checks.skip_unless_all_run(request)
    references = battery.play("torch")[0]
    told = [references.get(("", scenario["name"], i)) for scenario in battery.scenarios
            for i, step in enumerate(scenario["steps"]) if "only" not in step]
    assert None not in told, f"{told.count(None)} of {len(told)} steps without an answer"
    refused = sum(one[0] == "refused" for one in told)
    assert 0 < refused < len(told) / 5, f"{refused} of {len(told)} steps refused"
    assert sum(pokes_that_show(scenario, references) for scenario in battery.scenarios) > 20


def test_pytorchs_folding_on_request(battery):
    if battery.peer is None:
        pytest.skip("no C++ compiler, or no headers of Python")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")
def test_a_frozen_constant_is_left_alone():
    """A constant that the compile laid out for oneDNN is not a strided tensor: no update replaces or copies it."""
    tensors, inputs = runner_tensors.TorchTensors(torch, tensor_file), [torch.ones(2, 16, 12, 12)]
    model = runner_models.Model(torch.nn.Conv2d(16, 32, 3), [inputs], options={"freezing": True})
    with torch.no_grad():
        path = runner_models.libraries(torch, {"frozen": model})["frozen"]
    player = runner_players.Ours(runner_players.Library(), tensors, path + ".so", 1, False)
    describe = tensors.describe
    names = [one.name.decode() for one in player.constants()]
    frozen = next((name for name in names if "frozen" in name), None)
    if frozen is None:
        pytest.skip(f"this processor's compile has none, but {names}")
    before = player.attempt("run", {"inputs": [describe(inputs[0])]})
    steps = [{"pairs": [[frozen, describe(torch.ones(32, 16, 3, 3))]], "partial": True},
             {"pairs": [], "inactive": True}, {"pairs": [], "inactive": True, "partial": True}]
    answers = [player.attempt("update", step) for step in steps]
    assert all(answer[0] == "refused" for answer in answers), answers
    assert "a custom layout" in answers[0][1] and "a custom layout" in answers[2][1], answers
    assert before[0] == "ok" and player.attempt("run", {"inputs": [describe(inputs[0])]}) == before, "a run is not what it was"
    player.close()
