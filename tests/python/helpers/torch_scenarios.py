"""Runs scenarios for the tests of the Python package: Python texts in separate processes, which print "done", or many in one
process, which saves the seconds that importing PyTorch takes."""
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CACHE = os.path.join(BUILD, "torch-package-cache")
LIMIT = float(os.environ.get("SCENARIO_TIMEOUT", "900"))


def environment(**more):
    variables = {**os.environ, "PYTHONPATH": os.path.join(TOP, "eager", "torch"), "AOTICACHE_HOME": BUILD,
                 "AOTICACHE_DIR": CACHE, "PYTHONDONTWRITEBYTECODE": "1",
                 "TORCHINDUCTOR_CACHE_DIR": os.path.join(BUILD, "inductor-cache")}
    variables.update(more)
    return {name: value for name, value in variables.items() if value is not None}


def python(*words):
    """Returns the words of a command that runs Python with these arguments: as a fork of scripts/run-tests' server, which is
    faster, if there is one (fork_server.py). Its process id is not that of the process that does the work; use [sys.executable,
    ...] to get that."""
    server = os.environ.get("TEST_FORKS")
    return [sys.executable, *(("-S", "-E", os.path.join(HERE, "fork_server.py"), "--run", server) if server else ()), *words]


def run(words, status, more, fresh=False):
    done = subprocess.run([sys.executable, *words] if fresh else python(*words), env=environment(**more), capture_output=True, text=True,
                          timeout=LIMIT)
    said = done.stdout + done.stderr
    assert done.returncode == status, f"status {done.returncode}, expected {status}:\n{said}"
    assert status != 0 or "done" in done.stdout.split(), f"it did not come to its end:\n{said}"
    return said


def play(text, arguments=(), status=0, fresh=False, **more):
    """Returns what the text printed, both channels. Fails unless it ends with this status and prints "done" (status 0). fresh:
    the text tests the order of imports, so it is not run as a fork of a process that has imported PyTorch."""
    return run(["-c", textwrap.dedent(text), *arguments], status, more, fresh)


def play_file(text, **more):
    """Does the same with a file, whose classes and functions other processes can import."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="scenario_") as file:
        file.write(textwrap.dedent(text))
        file.flush()
        return run([file.name], 0, more)


def need_bridge():
    """Stores the bridge to PyTorch in the cache, unless it is there: for tests that compile nothing."""
    play("import aoticache\nfrom aoticache import Settings\nfrom aoticache._core import caches\n"
         "from aoticache._operators import bridges\n"
         "bridges.prepare(caches.open_cache(None), Settings(), compile=True)\nprint('done')")


def bring_bridge(cache):
    """Stores the bridge to PyTorch in another cache, since compiling it takes a quarter of a minute. Returns the cache."""
    need_bridge()
    done = subprocess.run([os.path.join(BUILD, "bin", "aoticache"), "copy", cache, "--op", "aoticache::torch_bridge",
                           "--allow-unsigned"], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return cache


# Runs texts that arrive as lines of JSON, and answers each with a line that begins with its first argument: an error, or
# nothing. Restores the initial state before each.
PLAYER = """
import json, sys, traceback
import torch, aoticache
from aoticache._core.errors import forget_warnings
for line in sys.stdin:
    name, text = json.loads(line)
    error = ""
    try:
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
    except Exception:
        error = traceback.format_exc()
    aoticache.disable()
    aoticache.wait(300)
    aoticache.configure(**vars(aoticache.Settings()))
    forget_warnings()
    print("\\n" + sys.argv[1] + json.dumps(error), flush=True)
"""


class Together:
    """Runs texts in one process, each after `begin`, which saves the seconds that importing PyTorch takes. If a text kills the
    process, the following ones get a new process."""

    ANSWER = "-- the player answers: "

    def __init__(self, begin, **more):
        self.begin, self.more, self.process = begin, more, None

    def play(self, name, text):
        if self.process is None:
            self.process = subprocess.Popen(python("-c", PLAYER, self.ANSWER), env=environment(**self.more), text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        late = threading.Timer(LIMIT, self.process.kill)
        late.start()
        try:
            self.process.stdin.write(json.dumps([name, self.begin + textwrap.dedent(text)]) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith(self.ANSWER):
                    error = json.loads(line.removeprefix(self.ANSWER))
                    assert not error, error
                    return
                sys.stdout.write(line)
        finally:
            late.cancel()
        status, self.process = self.process.wait(), None
        raise AssertionError(f"the process ended with {status} in it")
