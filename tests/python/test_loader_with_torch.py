"""The loader and the real PyTorch in one process, in either order.

Libraries are compiled by AOTInductor, some name libtorch_cpu.so and some do not. Each case runs in a process of its own, because
what a process has loaded first is what is tested. Environment: BUILD, the build folder.
"""
import pytest
import torch

import loader_host


@pytest.mark.parametrize("case", ["torch_first", "private_copies", "shim_first"])
def test_case(case):
    """torch_first: libraries use its libtorch. private_copies: they run beside PyTorch's own loader, and go. shim_first: PyTorch that
    is imported later works, and so do the libraries."""
    loader_host.play(case, loader_host.libraries(torch))
