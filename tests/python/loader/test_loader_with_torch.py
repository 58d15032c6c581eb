"""Tests the loader and the real PyTorch in one process, in either order.

AOTInductor compiles the libraries; some are linked to libtorch_cpu.so and some are not. Each case runs in its own process,
because the result depends on what the process has loaded first. Environment: BUILD, the build directory.
"""
import pytest
import torch

import loader_host


@pytest.mark.parametrize("case", ["torch_first", "private_copies", "shim_first"])
def test_case(case):
    """torch_first: libraries use its libtorch. private_copies: they run next to PyTorch's own loader, and are unloaded.
    shim_first: if PyTorch is imported later, it works, and so do the libraries."""
    loader_host.play(case, loader_host.libraries(torch))
