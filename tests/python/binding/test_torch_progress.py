"""Tests waiting for compiles at a terminal: Ctrl-C ends wait() immediately and loses nothing, a progress bar is drawn only
on a terminal, stats() counts queued compiles and saved time, and the log lists what was compiled.

Ctrl-C is a real one: SIGINT to the whole process group, as a terminal sends it.
"""
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from torch_scenarios import BUILD, LIMIT, TOP, environment, play

sys.path.insert(0, os.path.join(TOP, "eager", "torch"))

#: Every run requests sizes that the cache lacks, with one kernel each: the awaited kernels must be compiled.
SIZE = int(time.time()) % 1000000 + 17

BEGIN = f"""
import logging, sys, time, torch, aoticache
x = torch.linspace(-0.9, 0.9, {SIZE} + int(sys.argv[1]))
aoticache.enable("aten::sinh", "aten::atan", mode="background", dynamic="never")
aoticache.wait()
"""


def start(text, *words, **more):
    return subprocess.Popen([sys.executable, "-c", BEGIN + text, *words], env=environment(), start_new_session=True, text=True,
                            stdout=subprocess.PIPE, **more)


def read_until(process, word):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        line = process.stdout.readline()
        if not line or word in line:
            return line
    raise AssertionError(f"it never said {word}")


INTERRUPTED = """
torch.sinh(x), torch.atan(x)
now = aoticache.stats()
assert now.waiting + now.compiling >= 1, now
assert "under way" in str(now)
print("waiting", flush=True)
try:
    aoticache.wait()
    print("it was not interrupted", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
left = aoticache.stats()
assert left.waiting + left.compiling >= 1, left
assert aoticache.wait(600)
torch.sinh(x), torch.atan(x)
found = aoticache.stats()
assert found.total("compiles") == 2 and found.total("compile_failures") == 0 and found.waiting + found.compiling == 0, found
print("done", flush=True)
"""


def test_ctrl_c_ends_the_wait_and_not_the_compiles():
    process = start(INTERRUPTED, "0")
    assert "waiting" in read_until(process, "waiting")
    time.sleep(0.3)
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    said = read_until(process, "interrupted")
    seconds = time.monotonic() - begun
    assert said == "interrupted\n", said
    rest = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0 and "done" in rest, rest
    print(f"# the wait ended after {seconds * 1000:.0f} ms")


ENDED = """
torch.sinh(x), torch.atan(x)
print("waiting", flush=True)
aoticache.wait()
"""


def test_what_ctrl_c_has_ended_is_taken_up_by_the_next_process():
    process = start(ENDED, "1", stderr=subprocess.PIPE)
    assert "waiting" in read_until(process, "waiting")
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == -signal.SIGINT and said.rstrip().endswith("KeyboardInterrupt"), (process.returncode, said)
    play(BEGIN + """
torch.sinh(x), torch.atan(x)
assert aoticache.wait(600)
torch.sinh(x), torch.atan(x)
found = aoticache.stats()
assert found.total("compile_failures") == 0 and found.total("hits") + found.total("loads") >= 2, found
print("done")
""", ["1"])


ENDS = """
import ctypes
ctypes.CDLL(None).__cxa_atexit(ctypes.CDLL(None).sleep, ctypes.c_void_p(6), None)  # after Python itself has ended
torch.sinh(x), torch.atan(x)
now = aoticache.stats()
assert now.waiting + now.compiling >= 1, now
print("done", flush=True)
"""


def test_a_process_that_ends_while_kernels_compile_ends_well():
    """A kernel that takes 2 s would finish while the process ends, when Python's functions are gone."""
    said = play(BEGIN + ENDS, ["2"])
    assert "Warning" not in said, said


BRIDGE = """
import sys, tempfile, torch, aoticache
with tempfile.TemporaryDirectory() as directory:
    print("waiting", flush=True)
    try:
        aoticache.enable("aten::sinh", mode="wait", cache_dir=directory)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    aoticache.enable("aten::sinh", mode="wait")
    assert aoticache.wait(600) and aoticache.is_enabled("aten::sinh") and aoticache.stats().interface == "bridge"
    print("done", flush=True)
"""


def test_ctrl_c_ends_the_wait_for_the_bridge():
    process = subprocess.Popen([sys.executable, "-c", BRIDGE], env=environment(), start_new_session=True, text=True,
                               stdout=subprocess.PIPE)
    assert "waiting" in read_until(process, "waiting")
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    assert read_until(process, "interrupted") == "interrupted\n"
    rest = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0 and "done" in rest, rest


COMPILING = """
torch.sinh(x), torch.atan(x)
assert aoticache.wait()
print("done", flush=True)
"""


def on_terminal(text, *words, **more):
    """Returns what a program wrote to its standard error, a terminal."""
    theirs, ours = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", BEGIN + text, *words], env=environment(**more), stdout=subprocess.PIPE,
                               stderr=ours, text=True)
    os.close(ours)
    said = b""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if not select.select([theirs], [], [], 1)[0]:
            continue
        try:
            part = os.read(theirs, 4096)
        except OSError:  # the last process that had it open has ended
            part = b""
        if not part:
            break
        said += part
    os.close(theirs)
    assert "done" in process.communicate(timeout=LIMIT)[0] and process.returncode == 0
    return said.decode()


def test_a_terminal_has_a_bar():
    said = on_terminal(COMPILING, "2", TERM="xterm")
    assert re.search(r"\r\x1b\[Kaoticache: \d+ of 2 compiles, \d+ s \[[#.]+\]", said), repr(said)
    assert said.endswith("\r\x1b[K"), "it is still there: " + repr(said[-100:])


def test_nothing_else_has_one():
    assert on_terminal(COMPILING, "3", TERM="dumb") == ""
    process = start(COMPILING, "4", stderr=subprocess.PIPE)
    out, said = process.communicate(timeout=LIMIT)
    assert "done" in out and said == "", said


def test_a_bar_says_what_it_counts():
    from aoticache._operators.progress_bar import Bar, Compiles
    now = [0.0]
    stream = io.StringIO()
    bar = Bar(stream, clock=lambda: now[0])
    bar.show(Compiles(queued=3, running=1, ended=10))
    assert stream.getvalue() == "", "what is over soon needs none"
    now[0] = 2.0
    bar.show(Compiles(queued=1, running=1, ended=12))
    assert "aoticache: 2 of 4 compiles, 2 s [" in stream.getvalue()
    text = bar.text(Compiles(queued=1, running=1, ended=12), 80)
    assert text.count("#") == text.count(".") > 0 and len(text) < 80, text
    assert len(bar.text(Compiles(queued=1, running=1, ended=12), 20)) < 20
    assert "bridge" in bar.text(Compiles(is_bridge=True), 80)
    stream.close()
    bar.show(Compiles())
    bar.clear()


def test_the_log_says_what_was_compiled():
    said = play("""
        import logging, sys
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    """ + "".join(" " * 8 + line + "\n" for line in (BEGIN + COMPILING).splitlines()), ["5"])
    for name in ("sinh", "atan"):
        assert re.search(rf"aoticache INFO aten::{name}: compiled in \d+\.\d s", said), said


def test_gains_are_what_was_measured_times_hits():
    play("""
        import torch, aoticache
        x = torch.linspace(-3, 3, 64)
        aoticache.enable("aten::gelu")
        aoticache.wait()
        for _ in range(400):
            torch.nn.functional.gelu(x)
            aoticache.wait()
        one = aoticache.stats().operators["aten::gelu"]
        assert one.judged == 1, one
        assert (one.gained_seconds > 0) == (one.judged_slower == 0), one
        if one.judged_slower == 0:
            for _ in range(one.hits):
                torch.nn.functional.gelu(x)
            more = aoticache.stats().operators["aten::gelu"]
            ratio = (more.gained_seconds / more.hits) / (one.gained_seconds / one.hits)
            assert more.hits > 1.9 * one.hits and 0.999 < ratio < 1.001, (one, more)
        aoticache.disable()
        assert aoticache.stats().gained_seconds >= one.gained_seconds
        print("done")
    """)


@pytest.fixture(scope="module", autouse=True)
def forget_kernels():
    """Removes kernels: a dynamic one that another test has left would answer for every size."""
    for name in ("aten::sinh", "aten::atan"):
        subprocess.run([os.path.join(BUILD, "bin", "aoticache"), "rm", "--op", name, "--yes"], env=environment(), check=False,
                       capture_output=True)
