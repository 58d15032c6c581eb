"""The examples of docs/examples run, their results are PyTorch's, and a second run compiles nothing."""
import os
import re
import subprocess
import sys

from torch_scenarios import CACHE, TOP, environment, main


def run(name):
    path = os.path.join(TOP, "docs", "examples", name)
    done = subprocess.run([sys.executable, path, "--cache-dir", CACHE], env=environment(), capture_output=True, text=True,
                          timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AoticacheWarning" not in done.stderr, done.stderr
    return done.stdout


def check(name):
    run(name)
    said = run(name)
    assert re.search(r" 0 compiled by this process", said), said
    hits = sum(int(line.split()[2]) for line in said.splitlines() if line.startswith("aten::"))
    assert hits > 100, said
    print(said.splitlines()[0])


def test_mlp():
    check("mlp.py")


def test_cnn():
    check("cnn.py")


if __name__ == "__main__":
    main([test_mlp, test_cnn])
