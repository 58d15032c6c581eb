"""Tests the counts of operators, as text and as data (aoticache.stats()), and the log messages that
TORCH_LOGS switches on (docs/pytorch.md)."""
import json
import os
import re
import sys
import tempfile

import pytest

from torch_scenarios import TOP, bring_bridge, play

sys.path.insert(0, os.path.join(TOP, "eager", "torch"))


def operator(name, state="enabled", **counts):
    import aoticache
    return aoticache.OperatorStats(name, "wait, dynamic never, on cpu", state, **counts)


def stats_of(*operators, **more):
    import aoticache
    return aoticache.Stats({one.name: one for one in operators}, **more)


@pytest.mark.quick
def test_text_has_only_operators_that_were_called():
    unused = [operator(f"aten::unused{i}") for i in range(284)]
    waiting, gone = operator("aten::waiting", "pending"), operator("aten::gone", "disabled")
    called = operator("aten::abs", calls=1234567, hits=1234000, misses=3, fallbacks=565, refused=2, calls_lost=1, compiles=3)
    failed = operator("aten::mul.Tensor", calls=2, fallbacks=2, misses=1, compile_failures=1, gained_seconds=0.25)
    lines = str(stats_of(*unused, failed, waiting, gone, called, interface="bridge")).splitlines()
    assert [line.split() for line in lines] == [
        "operator calls hits misses PyTorch calls lost gained compiles compile failures state".split(),
        "aten::abs 1234567 1234000 3 567 1 - 3 0 enabled".split(),
        "aten::mul.Tensor 2 0 1 2 0 250 ms 0 1 enabled".split(),
        "total 1234569 1234000 4 569 1 250 ms 3 1".split(),
        "284 enabled operators were not called".split(),
        "1 operator waits for the bridge".split(),
        "interface: bridge".split(),
    ]
    ends = {name: lines[0].index(name) + len(name) for name in ("calls", "hits", "misses", "PyTorch", "compiles")}
    for line in lines[1:4]:
        for name, end in ends.items():
            assert line[end - 1].isdigit() and not line[end].isdigit(), (name, lines)
    assert len(stats_of(*unused, called).to_dict()["operators"]) == 285


@pytest.mark.quick
def test_text_of_few_operators():
    assert "total" not in str(stats_of(operator("aten::abs", calls=1, hits=1)))
    said = str(stats_of(operator("aten::abs")))
    assert said == "no operator has been called while it was enabled\n1 enabled operator was not called", said
    assert "compiles 1" not in said and "not called" not in str(stats_of(operator("aten::abs", "disabled"))), said
    assert str(stats_of()) == "no operator has been enabled in this process"


@pytest.mark.quick
def test_text_has_records_that_were_used():
    from aoticache._core.records import KindStats
    none = {"inductor-cpp": KindStats(), "triton": KindStats()}
    assert str(stats_of(compile=none)) == str(stats_of())
    lines = str(stats_of(compile={**none, "inductor-graph": KindStats(12, 1, 1)})).splitlines()
    assert [line.split() for line in lines[1:]] == ["torch.compile hits misses stored refused".split(),
                                                    "inductor-graph 12 1 1 0".split()]


@pytest.mark.quick
def test_data_is_json():
    import aoticache
    from aoticache._core.records import KindStats
    cache = aoticache.CacheStats("/cache", False, 1, 2, 3, 4, 5, 6, 7.5, 8.5)
    found = stats_of(operator("aten::abs", calls=3, gained_seconds=0.5), cache=cache, interface="bridge", waiting=2,
                     compile={"triton": KindStats(hits=4)})
    data = json.loads(json.dumps(found.to_dict()))
    assert data == found.to_dict()
    assert set(data) == {"operators", "cache", "interface", "problem", "compile", "waiting", "compiling"}
    assert data["operators"]["aten::abs"] == found.operators["aten::abs"].to_dict() and data["waiting"] == 2
    assert data["operators"]["aten::abs"]["calls"] == 3 and data["operators"]["aten::abs"]["gained_seconds"] == 0.5
    assert data["cache"] == cache.to_dict() and data["cache"]["directory"] == "/cache" and data["cache"]["saved_seconds"] == 8.5
    assert data["compile"] == {"triton": {"hits": 4, "misses": 0, "stored": 0, "refused": 0}}
    assert json.loads(json.dumps(aoticache.Stats().to_dict()))["cache"] is None


LOGGING = """
    import torch, aoticache, logging, warnings
    x = torch.linspace(-3, 3, 12)
    print("level", logging.getLogger("aoticache").level, logging.getLogger("aoticache._core.caches").getEffectiveLevel())
    aoticache.enable("abs", mode="wait", judge=False)
    for _ in range(3):
        torch.abs(x)
    found = aoticache.stats()
    print(found)
    import json
    assert json.loads(json.dumps(found.to_dict()))["operators"]["aten::abs"]["calls"] == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from aoticache._core.errors import warn_once
        warn_once("topic", "aoticache: something failed")
        warn_once("topic", "aoticache: something failed again")
    print("done")
"""


def messages(said):
    """Returns levels (V, I, W) and texts of PyTorch's log lines."""
    return re.findall(r"^([VIWE])\d{4} .*?\] ((?:aten::abs|something).*)$", said, re.M)


def test_torch_logs_switches_messages_on():
    """The process has no handler of its own, and imports the package after PyTorch."""
    with tempfile.TemporaryDirectory() as directory:
        cache = bring_bridge(os.path.join(directory, "cache"))
        said = play(LOGGING, fresh=True, TORCH_LOGS="aoticache", AOTICACHE_DIR=cache)
        miss, compiled, failure = messages(said)
        assert "level 20 20" in said and miss[0] == compiled[0] == "I" and failure == ("W", "something failed"), said
        assert miss[1].startswith("aten::abs(float32[12]) on cpu: miss: ") and "waits for a compile" in miss[1], said
        assert re.fullmatch(r"aten::abs: compiled in \d+\.\d s", compiled[1]), said
        said = play(LOGGING, fresh=True, TORCH_LOGS="+aoticache", AOTICACHE_DIR=cache)
        assert messages(said) == [("V", "aten::abs: hit: a kernel of the cache was loaded"), ("W", "something failed"),
                                  ("V", "something failed again")], said
        assert "level 10 10" in said and "0 enabled" not in said
        said = play(LOGGING, fresh=True, TORCH_LOGS="-aoticache", AOTICACHE_DIR=cache)
        assert "level 40 40" in said and not messages(said), said
        said = play(LOGGING, fresh=True, TORCH_LOGS=None, AOTICACHE_DIR=cache)
        assert "something failed" not in said and "hit: " not in said, said


def test_worker_need_not_find_the_package():
    """The program extends its own path, so PyTorch in the worker would refuse the name in TORCH_LOGS."""
    with tempfile.TemporaryDirectory() as directory:
        cache = bring_bridge(os.path.join(directory, "cache"))
        said = play("""
            import sys
            sys.path.insert(0, sys.argv[1])
            import torch, aoticache
            aoticache.enable("abs", mode="wait", judge=False)
            assert torch.equal(torch.abs(torch.tensor([-1.0])), torch.ones(1))
            assert aoticache.stats().operators["aten::abs"].compiles == 1, aoticache.stats()
            print("done")
        """, [os.path.join(TOP, "eager", "torch")], fresh=True, TORCH_LOGS="aoticache", AOTICACHE_DIR=cache, PYTHONPATH=None)
        assert [level for level, _ in messages(said)] == ["I", "I"], said
