"""Scenarios in processes of their own, for the tests of the Python package: each is a Python text that prints "done"."""
import os
import subprocess
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CACHE = os.path.join(BUILD, "torch-package-cache")
LIMIT = float(os.environ.get("SCENARIO_TIMEOUT", "280"))


def environment(**more):
    variables = {**os.environ, "PYTHONPATH": os.path.join(TOP, "eager", "torch"), "AOTICACHE_HOME": BUILD,
                 "AOTICACHE_DIR": CACHE, "PYTHONDONTWRITEBYTECODE": "1",
                 "TORCHINDUCTOR_CACHE_DIR": os.path.join(BUILD, "inductor-cache")}
    variables.update(more)
    return {name: value for name, value in variables.items() if value is not None}


def play(text, arguments=(), status=0, **more):
    """What it printed, both channels. Fails unless it ends with this status and says "done" (status 0)."""
    words = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    done = subprocess.run(words, env=environment(**more), capture_output=True, text=True, timeout=LIMIT)
    said = done.stdout + done.stderr
    assert done.returncode == status, f"status {done.returncode}, expected {status}:\n{said}"
    assert status != 0 or "done" in done.stdout.split(), f"it did not come to its end:\n{said}"
    return said


def main(functions):
    """Runs test functions, or those that the command line names."""
    failed = 0
    for function in functions:
        name = function.__name__.removeprefix("test_")
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            function()
            print(f"ok - {name}", flush=True)
        except Exception as error:  # the others are still of interest
            failed += 1
            print(f"not ok - {name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)
