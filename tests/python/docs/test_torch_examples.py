"""Tests that the examples of docs/examples and the tutorial run, that they give PyTorch's results, and that a second run
compiles nothing."""
import concurrent.futures
import os
import re
import subprocess
import sys

import pytest

from torch_scenarios import CACHE, TOP, environment

EXAMPLES = ("mlp.py", "cnn.py")


def run(name):
    path = os.path.join(TOP, "docs", "examples", name)
    done = subprocess.run([sys.executable, path, "--cache-dir", CACHE], env=environment(), capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AoticacheWarning" not in done.stderr, done.stderr
    return done.stdout


def test_examples():
    """They run concurrently, since each mostly waits for its own compiles."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(run, EXAMPLES))
        for said in pool.map(run, EXAMPLES):
            assert re.search(r" 0 compiled by this process", said), said
            hits = sum(int(line.split()[2]) for line in said.splitlines() if line.startswith("aten::"))
            assert hits > 100, said
            print(said.splitlines()[0])


@pytest.mark.quick
def test_tutorial():
    """docs/tutorials/pytorch-user.md program, as printed; it compares its results with PyTorch itself."""
    with open(os.path.join(TOP, "docs", "tutorials", "pytorch-user.md"), encoding="utf-8") as page:
        program = re.search(r"^<!-- example: program -->\n```python\n(.*?)^```$", page.read(), re.DOTALL | re.MULTILINE).group(1)
    for compiled in (True, False):
        done = subprocess.run([sys.executable, "-"], input=program, env=environment(), capture_output=True, text=True,
                              timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith("aten::")]
        assert len(rows) == 3, done.stdout
        assert compiled or all(row[1] == row[2] == "2" and row[4] == "0" for row in rows), done.stdout
