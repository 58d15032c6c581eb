"""Tests what profilers and debuggers see of compiled kernels: a range of PyTorch's profiler inside the operator's own,
and functions that are named after their operator. Needs PyTorch, a C++ compiler and nm.
"""
import glob
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from torch_scenarios import play


def test_profiler_has_a_range_for_each_call_that_asks_the_cache():
    play("""
        import torch, aoticache
        from torch.profiler import ProfilerActivity, profile
        x = torch.linspace(-3, 3, 5 * 64).reshape(5, 64)

        def ranges():
            with profile(activities=[ProfilerActivity.CPU]) as found:
                y = torch.nn.functional.gelu(x)
                z = torch.abs(x)
                s = torch.add(x, 2)
            torch.testing.assert_close(z, x.clone().abs_())
            torch.testing.assert_close(s, x.clone().add_(2))
            return {one.key: one.count for one in found.key_averages()}, found.events()

        before, _ = ranges()
        assert not any(name.startswith("aoticache") for name in before), before
        aoticache.enable("aten::gelu", "aten::abs", judge=False, mode="wait")
        ranges()  # compiles
        now, events = ranges()
        assert now["aoticache::aten::gelu"] == now["aten::gelu"] == 1, now
        assert now["aoticache::aten::abs"] == 1 and "aoticache::aten::add" not in now, now
        inner = next(one for one in events if one.name == "aoticache::aten::gelu")
        assert inner.cpu_parent is not None and inner.cpu_parent.name == "aten::gelu", inner
        hits = aoticache.stats().total("hits")
        torch.nn.functional.gelu(x)  # without a profiler
        assert aoticache.stats().total("hits") == hits + 1
        aoticache.disable()
        assert not any(name.startswith("aoticache") for name in ranges()[0])
        print("done")
    """)


def test_functions_of_kernels_have_names_of_their_operators():
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm")
    with tempfile.TemporaryDirectory() as directory:
        play("""
            import torch, aoticache
            x = torch.linspace(-3, 3, 7)
            aoticache.enable("aten::gelu", "aten::_softmax", mode="wait")
            torch.nn.functional.gelu(x), torch.softmax(x, 0), torch.softmax(x[:3], 0)
            aoticache.wait()
            print("done")
        """, AOTICACHE_DIR=directory)
        names = []
        for path in glob.glob(os.path.join(directory, "objects", "*", "*")):
            said = subprocess.run([nm, "-DS", "--defined-only", path], capture_output=True, text=True).stdout
            names += re.findall(r"^[0-9a-f]+ [0-9a-f]*[1-9a-f][0-9a-f]* T (aten_\w+)$", said, re.M)
    names.sort()
    assert len(names) == len(set(names)) == 3, names
    assert all(re.fullmatch(r"aten_(softmax|gelu)_[0-9a-f]{8}", name) for name in names), names
    assert [name.split("_")[1] for name in names] == ["gelu", "softmax", "softmax"], names
