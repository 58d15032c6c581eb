"""Runs the situations of PyTorch's own tests of its compile caches (tests/python/compile_cache/compile_scenarios.py) with and
without ours.

PyTorch is the reference: hits and misses of a second process with PyTorch's directory warm must be the same here in an empty
directory without a compiler, with the same bits. CASES=all runs all of them, otherwise those of USUAL.
"""
import json
import os
import subprocess

from compile_runs import DIRECTORY, HERE, QUICK, fresh
from torch_scenarios import environment, python

SCENARIOS = os.path.join(HERE, "compile_scenarios.py")
CACHE = os.path.join(DIRECTORY, "scenarios")
USUAL = ("a_function_of_free_sizes", "inputs_that_share_memory", "an_input_that_is_written", "constants_in_the_graph",
         "sizes_that_may_be_free", "a_backward_pass_that_comes_later", "a_class_of_tensors", "no_graph_cache",
         "no_autograd_cache", "no_caches", "weights_that_are_frozen", "passes_of_ones_own", "results_in_one_record")
PLAYED = () if os.environ.get("CASES") == "all" else USUAL
#: Scenarios that PyTorch counts differently with our cache: it asks the cache, and gets nothing, since the option disables
#: ours.
MISSES = {
    "no_graph_cache": {"autograd_cache_bypass": 1},
    "no_autograd_cache": {},
}


def start(script, *words, directory, compiler, **more):
    variables = environment(TORCHINDUCTOR_CACHE_DIR=directory, AOTICACHE_CONFIG="", HOME=fresh("home"), **QUICK, **more)
    if not compiler:
        variables["PATH"] = fresh("path")
    return subprocess.Popen(python("-W", "ignore", script, *words), env=variables, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def report(process):
    said, errors = process.communicate(timeout=1200)
    assert process.returncode == 0, f"status {process.returncode}\n{said[-1000:]}{errors[-3000:]}"
    return said.splitlines()[-1]


def play_both(own, compiler):
    """Runs PyTorch alone in the directory `own` and, concurrently, with our cache in an empty one."""
    processes = (start(SCENARIOS, *PLAYED, directory=own, compiler=True),
                 start(SCENARIOS, "--cache", *PLAYED, directory=fresh("inductor"), compiler=compiler, AOTICACHE_DIR=CACHE))
    return [json.loads(report(one)) for one in processes]


def counted(step):
    return step["counted"]


def compare(theirs, ours):
    said = [one for one in ours["warnings"] if "aoticache" in one]
    assert not said, said
    for name, own in theirs["scenarios"].items():
        found = ours["scenarios"][name]
        assert "error" not in own and "error" not in found, (name, own, found)
        assert len(own["steps"]) == len(found["steps"]), name
        for number, (expected, step) in enumerate(zip(own["steps"], found["steps"])):
            where = f"{name}, step {number}: {expected} and {step}"
            assert step["same"] and step["digest"] == expected["digest"], where
            if name in MISSES:
                assert "autograd_cache_hit" not in counted(step), where
            else:
                assert counted(step) == counted(expected), where


def test_what_pytorch_caches_is_cached_here():
    own = fresh("own")
    compare(*play_both(own, compiler=True))
    theirs, ours = play_both(own, compiler=False)
    compare(theirs, ours)
    started = {name: one["started"] for name, one in ours["scenarios"].items() if one["started"]}
    assert not started, started
    hits = sum(counted(step).get("autograd_cache_hit", 0) for one in ours["scenarios"].values() for step in one["steps"])
    assert hits >= (18 if PLAYED else 40), hits


STANDALONE = '''
import sys
import torch
what, path, form, cached = sys.argv[1:5]
if cached == "cache":
    import aoticache
    assert aoticache.install_compile_cache()
import torch._inductor
x = torch.linspace(0, 1, 40)
if what == "save":
    graphs = []
    torch.compile(lambda x: (x.sin() * 3 + 1, x.sum()), backend=lambda *one: graphs.append(one) or one[0], fullgraph=True)(x)
    torch._inductor.standalone_compile(*graphs[0]).save(path=path, format=form)
else:
    y, z = torch._inductor.CompiledArtifact.load(path=path, format=form)(x)
    assert torch.allclose(y, x.sin() * 3 + 1) and torch.allclose(z, x.sum()), (y, z)
print("done")
'''


def standalone(what, path, form, cached, cache=CACHE, compiler=True):
    script = os.path.join(DIRECTORY, "standalone.py")
    with open(script, "w") as file:
        file.write(STANDALONE)
    done = report(start(script, what, path, form, cached, directory=fresh("inductor"), compiler=compiler,
                        AOTICACHE_DIR=cache))
    assert done == "done", done


def test_artifacts_that_stand_alone():
    """torch._inductor.standalone_compile(): with the cache the artifacts run without a compiler; without it PyTorch can load
    them."""
    for form in ("binary", "unpacked"):
        path = os.path.join(DIRECTORY, f"artifact-{form}")
        standalone("save", path, form, "cache")
        standalone("load", path, form, "cache", compiler=False)
        standalone("load", path, form, "own")
        if form == "binary":  # the file contains its libraries
            standalone("load", path, form, "cache", os.path.join(fresh("empty"), "cache"), compiler=False)
