"""Tests kernels that are used only if faster: PyTorch answers the calls of a slower one, in this process and in the next
ones; judge=False; what stats() and the tools report of it. Nothing is timed here: the test writes into the index beforehand
which kernel is slower."""
import functools
import os
import shutil
import sqlite3
import subprocess
import tempfile
import textwrap

import pytest

from torch_scenarios import BUILD, bring_bridge, environment, play

BEGIN = """
import os, sys, torch, aoticache
torch.set_num_threads(1)
x = torch.linspace(-3, 3, 12).reshape(3, 4)
def equal(call, expected, times):
    for _ in range(times):
        assert torch.equal(call(), expected)
def counts(name="aten::abs"):
    return aoticache.stats().operators[name]
"""


def in_process(text, **more):
    return play(BEGIN + textwrap.dedent(text), **more)


def tool(cache, *words):
    done = subprocess.run([os.path.join(BUILD, "bin", "aoticache"), *words], env=environment(AOTICACHE_DIR=cache),
                          capture_output=True, text=True)
    return done.stdout + done.stderr


def judge_all(cache, slower):
    """Records the kernels of the cache as faster or slower on this machine, with one thread."""
    with open("/proc/cpuinfo") as file:
        machine = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), None)
    if machine is None:  # the library's name for the machine is in its own records
        return False
    with sqlite3.connect(os.path.join(cache, "index.sqlite3")) as index:
        index.execute("DELETE FROM judgements")
        for threads in (1, 2, 4, 8, 16, 32, 64, 128):
            index.execute("INSERT INTO judgements SELECT DISTINCT key, ?, ?, 0, ?, ?, 1000, strftime('%s', 'now') * 1000000000"
                          " FROM entries", (machine, threads, int(slower), 2000 if slower else 500))
    index.close()
    return True


@functools.cache
def one_kernel():
    """Makes a cache with the bridge and a kernel of abs."""
    directory = bring_bridge(tempfile.mkdtemp(prefix="aoticache-judge-"))
    in_process("""
        aoticache.enable("aten::abs", mode="wait")
        with torch.no_grad():
            torch.abs(x)
        print("done")
    """, AOTICACHE_DIR=directory)
    return directory


def filled_cache():
    return shutil.copytree(one_kernel(), tempfile.mkdtemp(prefix="aoticache-judge-"), dirs_exist_ok=True)


def test_forced_loser_is_left_to_pytorch():
    directory = filled_cache()
    if not judge_all(directory, slower=True):
        pytest.skip("this kernel of Linux tells no model name")
    in_process("""
        expected = torch.where(x < 0, -x, x)
        aoticache.enable("aten::abs", mode="never")
        with torch.no_grad():
            equal(lambda: torch.abs(x), expected, 5)
            assert (counts().hits, counts().calls_lost, counts().fallbacks, counts().calls) == (0, 5, 5, 5), counts()
            assert counts().judged_slower == counts().judged == 1 and counts().loaded == counts().on_trial == 0, counts()
            equal(lambda: torch.abs(x), expected, 1000)  # most of them are passed on without asking us
        assert (counts().hits, counts().calls_lost, counts().calls) == (0, 1005, 1005), counts()
        y = x.clone().requires_grad_()
        torch.abs(y).sum().backward()
        assert torch.equal(y.grad, x.sign())
        assert " calls lost " in str(aoticache.stats()), aoticache.stats()
        aoticache.disable()
        assert counts().calls == 1006, counts()
        print("done")
    """, AOTICACHE_DIR=directory)
    index = sqlite3.connect(os.path.join(directory, "index.sqlite3"))
    key = index.execute("SELECT lower(hex(key)) FROM details WHERE op = 'aten::abs'").fetchone()[0]
    index.close()
    shown = tool(directory, "show", key)
    assert "slower than the host's own kernel" in shown and "2.00 times its time" in shown, shown
    shown = tool(directory, "show", key, "--json")
    assert '"judgements"' in shown and '"is_slower": true' in shown, shown
    said = tool(directory, "why", "aten::abs", "--input", "float32:3x4")
    assert "hit" in said and "slower than the host's own kernel" in said, said


def test_judge_false_calls_the_kernel_always():
    directory = filled_cache()
    judge_all(directory, slower=True)
    in_process("""
        aoticache.enable("aten::abs", mode="never", judge=False)
        with torch.no_grad():
            equal(lambda: torch.abs(x), torch.where(x < 0, -x, x), 100)
        assert (counts().hits, counts().calls_lost, counts().fallbacks) == (100, 0, 0), counts()
        assert counts().judged == counts().on_trial == 0, counts()
        print("done")
    """, AOTICACHE_DIR=directory)


def test_winner_of_before_answers_at_once():
    directory = filled_cache()
    if not judge_all(directory, slower=False):
        pytest.skip("this kernel of Linux tells no model name")
    in_process("""
        aoticache.enable("aten::abs", mode="never")
        with torch.no_grad():
            equal(lambda: torch.abs(x), torch.where(x < 0, -x, x), 100)
        assert (counts().hits, counts().calls_lost, counts().fallbacks) == (100, 0, 0), counts()
        assert counts().judged == 1 and counts().judged_slower == 0, counts()
        print("done")
    """, AOTICACHE_DIR=directory)


def test_trial_takes_turns_and_its_result_outlives_the_process():
    directory = filled_cache()
    in_process("""
        expected = torch.where(x < 0, -x, x)
        aoticache.enable("aten::abs", mode="never")
        with torch.no_grad():
            equal(lambda: torch.abs(x), expected, 4)
            assert counts().on_trial == 1 and counts().judged == 0, counts()
            equal(lambda: torch.abs(x), expected, 400)
        now = counts()
        assert now.on_trial == 0 and now.judged == 1 and now.hits >= 4 and now.fallbacks >= 4, now
        assert now.hits + now.fallbacks == now.calls == 404, now
        print("done")
    """, AOTICACHE_DIR=directory)
    index = sqlite3.connect(os.path.join(directory, "index.sqlite3"))
    rows = index.execute("SELECT threads, size, slower, kernel_ns > 0, fallback_ns > 0 FROM judgements").fetchall()
    index.close()
    assert len(rows) == 1 and rows[0][:2] == (1, 0) and rows[0][3:] == (1, 1), rows
    in_process(f"""
        aoticache.enable("aten::abs", mode="never")
        with torch.no_grad():
            equal(lambda: torch.abs(x), torch.where(x < 0, -x, x), 50)
        slower = {bool(rows[0][2])}
        assert (counts().judged_slower, counts().judged, counts().on_trial) == (int(slower), 1, 0), counts()
        assert (counts().calls_lost, counts().hits) == ((50, 0) if slower else (0, 50)), counts()
        print("done")
    """, AOTICACHE_DIR=directory)


def test_setting_is_checked():
    in_process("""
        try:
            aoticache.enable("aten::abs", judge="sometimes")
        except aoticache.SettingsError as error:
            assert "judge is 'sometimes'" in str(error), error
        else:
            raise AssertionError("it was taken")
        print("done")
    """)
