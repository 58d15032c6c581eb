"""Tests the binding on PyTorch's stable C ABI: binding_cases.py, each case in its own process with its own cache."""
import subprocess
import sys

import pytest

import binding_cases
from torch_scenarios import python

CASES = ["results", "fallback", "background", "exceptions", "disable", "refused", "autograd", "worker", "threads", "fork", "memory", "binding_without_torch"]


@pytest.mark.parametrize("case", CASES)
def test_case(case, tmp_path):
    words = [binding_cases.__file__, case, str(tmp_path)]
    done = subprocess.run([sys.executable, *words] if case == "binding_without_torch" else python(*words), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=1500)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-3000:]}"
