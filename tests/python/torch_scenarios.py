"""Scenarios for the tests of the Python package: Python texts, in processes of their own, where they print "done", or
many in one process, which is quicker by the seconds that PyTorch takes to be imported."""
import json
import os
import subprocess
import sys
import tempfile
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CACHE = os.path.join(BUILD, "torch-package-cache")
LIMIT = float(os.environ.get("SCENARIO_TIMEOUT", "900"))


def environment(**more):
    variables = {**os.environ, "PYTHONPATH": os.path.join(TOP, "eager", "torch"), "AOTICACHE_HOME": BUILD,
                 "AOTICACHE_DIR": CACHE, "PYTHONDONTWRITEBYTECODE": "1",
                 "TORCHINDUCTOR_CACHE_DIR": os.path.join(BUILD, "inductor-cache")}
    variables.update(more)
    return {name: value for name, value in variables.items() if value is not None}


def run(words, status, more):
    done = subprocess.run([sys.executable, *words], env=environment(**more), capture_output=True, text=True,
                          timeout=LIMIT)
    said = done.stdout + done.stderr
    assert done.returncode == status, f"status {done.returncode}, expected {status}:\n{said}"
    assert status != 0 or "done" in done.stdout.split(), f"it did not come to its end:\n{said}"
    return said


def play(text, arguments=(), status=0, **more):
    """What it printed, both channels. Fails unless it ends with this status and says "done" (status 0)."""
    return run(["-c", textwrap.dedent(text), *arguments], status, more)


def play_file(text, **more):
    """The same with a file, whose classes and functions other processes can import."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="scenario_") as file:
        file.write(textwrap.dedent(text))
        file.flush()
        return run([file.name], 0, more)


# Plays [name, text] pairs that come as JSON; everything is as at the start before each.
PLAYER = """
import json, sys, traceback
import torch, aoticache
from aoticache._errors import forget_warnings
for name, text in json.load(sys.stdin):
    try:
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
        print("ok - " + name, flush=True)
    except Exception as error:
        traceback.print_exc()
        print(f"not ok - {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
    aoticache.disable()
    aoticache.wait(300)
    aoticache.configure(**vars(aoticache.Settings()))
    forget_warnings()
"""


def is_wanted(name):
    return not sys.argv[1:] or name in sys.argv[1:]


def play_together(begin, texts, **more):
    """Plays {name: text}, each behind `begin`, in one process, and prints how each ended. False: one has failed."""
    pairs = [(name, begin + textwrap.dedent(text)) for name, text in texts.items() if is_wanted(name)]
    if not pairs:
        return True
    done = subprocess.run([sys.executable, "-c", PLAYER], input=json.dumps(pairs), env=environment(**more),
                          stdout=subprocess.PIPE, text=True, timeout=2 * LIMIT)
    sys.stdout.write(done.stdout)
    said = done.stdout.splitlines()
    ended = sum(line.startswith(("ok - ", "not ok - ")) for line in said)
    if ended < len(pairs):
        print(f"not ok - {pairs[ended][0]}: the process ended with {done.returncode} in it", flush=True)
    return done.returncode == 0 and all(f"ok - {name}" in said for name, _ in pairs)


def main(module, failed=0):
    """Runs a module's test functions, or those that the command line names. module: its globals(). failed: how many others did."""
    for function in [value for name, value in module.items() if name.startswith("test_")]:
        name = function.__name__.removeprefix("test_")
        if not is_wanted(name):
            continue
        try:
            function()
            print(f"ok - {name}", flush=True)
        except Exception as error:  # the others are still of interest
            failed += 1
            print(f"not ok - {name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)
