"""Tests faults of the cache under torch.compile: a full disk, a cache that cannot be written, one of another user, one that is
removed while a program runs, and an unknown PyTorch version. The program continues as without the cache, and one warning is
given per kind of records (docs/torch-compile.md).

Tests mount file systems in their own namespace. If that is not allowed, they are skipped and report why.
"""
import functools
import json
import os
import subprocess
import sys

import pytest

from compile_runs import PROGRAMS, QUICK, check_warm, copy_of, fresh, run
from torch_scenarios import environment, play

WAYS = (["unshare", "-m"], ["unshare", "-rm"])


@functools.cache
def filled():
    """Returns a cache with one program, and what the process that filled it reported."""
    cache = os.path.join(fresh("filled"), "cache")
    return cache, run(cache, "pointwise", compiler=True, **QUICK)


def way_to_mount():
    """Returns the words that start a command which may mount, or None if none of them works here."""
    for words in WAYS:
        done = subprocess.run([*words, "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"], capture_output=True)
        if done.returncode == 0:
            return words
    return None


def run_mounted(mount, cache, *words, compiler=True):
    """Runs a program in a namespace in which `mount` (a shell command) was run first. Returns None if it cannot."""
    way = way_to_mount()
    if way is None:
        return None
    variables = environment(AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), HOME=fresh("home"),
                            AOTICACHE_CONFIG="", **QUICK)
    path = "" if compiler else f"PATH={fresh('path')} "
    command = f'{mount} && {path}exec "$@"'
    done = subprocess.run([*way, "sh", "-c", command, "sh", sys.executable, PROGRAMS, *words], env=variables,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(one["same"] for one in found["programs"].values()), found["programs"]
    return found


def ours(found):
    """Returns the warnings of the cache; checks that each was given once."""
    said = [one for one in found["warnings"] if "aoticache" in one]
    kinds = [one.partition("does not serve ")[2].split(" ")[0] or one for one in said]
    assert len(kinds) == len(set(kinds)), said
    return said


def test_a_full_disk():
    """One disk is too small even for the index, the other becomes too small for a library."""
    for size in ("64k", "700k"):
        directory = fresh("disk")
        found = run_mounted(f"mount -t tmpfs -o size={size},mode=700 tmpfs {directory}", os.path.join(directory, "cache"),
                            "unseen", "pointwise")
        if found is None:
            pytest.skip("nothing can be mounted here")
        assert ours(found), (size, found["counts"])


def test_a_cache_that_cannot_be_written():
    """The cache serves its entries without a compiler, and warns once that new ones are not stored."""
    cache, before = filled()
    mount = f"mount --bind {cache} {cache} && mount -o remount,ro,bind {cache}"
    found = run_mounted(mount, cache, "pointwise", compiler=False)
    if found is None:
        pytest.skip("nothing can be mounted here")
    check_warm(found, before)
    found = run_mounted(mount, cache, "unseen")
    said = ours(found)
    assert any("cannot be written" in one for one in said), said
    assert found["counts"]["inductor-cpp"]["stored"] == 0, found["counts"]


def test_a_cache_of_another_user():
    if os.getuid() != 0:
        pytest.skip("it takes root to give one away")
    cache = copy_of(filled()[0])
    for path in (cache, os.path.join(cache, "objects")):
        os.chown(path, 65534, 65534)
    found = run(cache, "pointwise", compiler=True, **QUICK)  # the cache has it
    said = ours(found)
    assert said and found["programs"]["pointwise"]["same"], found
    assert all(one["hits"] == 0 for one in found["counts"].values()), found["counts"]


def test_a_cache_that_is_removed_while_a_program_runs():
    play("""
        import shutil, sys, warnings
        import torch, aoticache
        assert aoticache.install_compile_cache()
        x = torch.linspace(0, 1, 33)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert torch.allclose(torch.compile(lambda x: x * 3 + 1)(x), x * 3 + 1)
            shutil.rmtree(sys.argv[1])
            assert torch.allclose(torch.compile(lambda x: x * 5 - 1)(x), x * 5 - 1)
            assert torch.allclose(torch.compile(lambda x: x * 7 - 2)(x), x * 7 - 2)
        lines = [str(one.message) for one in said if "aoticache" in str(one.message)]
        assert len(lines) == len(set(lines)), lines
        print("done")
    """, [cache := os.path.join(fresh("removed"), "cache")], AOTICACHE_DIR=cache,
         TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), **QUICK)


def test_records_that_cannot_be_unpickled():
    """Records with the right kind and key but other contents: both kinds of graphs are compiled, to the right results."""
    text = """
        import sys
        import torch, aoticache
        assert aoticache.install_compile_cache()
        from torch._inductor import codecache
        from aoticache._compile_cache import graphs
        if sys.argv[1] == "first":
            put = graphs.Store.put
            graphs.Store.put = lambda store, key, payload, *more: put(store, key, b"no pickle", *more)
        x = torch.linspace(0, 1, 33)
        with torch.no_grad():
            assert torch.allclose(torch.compile(lambda x: x * 11 + 1)(x), x * 11 + 1)
        counts = aoticache.stats().compile
        for kind in ("inductor-graph", "aotautograd"):
            assert counts[kind].stored == 1 and (counts[kind].hits > 0) == (sys.argv[1] == "second"), (kind, counts[kind])
        print("done")
    """
    cache = os.path.join(fresh("unpickled"), "cache")
    for word in ("first", "second"):
        play(text, [word], AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), **QUICK)


def test_a_pytorch_that_is_not_known():
    """An unknown PyTorch version compiles by itself, to its own results, with one warning and nothing replaced."""
    play("""
        import warnings
        import torch, aoticache
        from torch._inductor import cpp_builder
        own = cpp_builder.CppBuilder.build
        torch.__version__ = "2.99.0"
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert not aoticache.install_compile_cache()
            x = torch.linspace(0, 1, 33)
            assert torch.allclose(torch.compile(lambda x: x * 9 + 1)(x), x * 9 + 1)
        lines = [str(one.message) for one in said if "aoticache" in str(one.message)]
        assert len(lines) == 1 and "2.99.0 compiles without it" in lines[0], lines
        assert cpp_builder.CppBuilder.build is own and not aoticache.stats().compile
        print("done")
    """, AOTICACHE_DIR=os.path.join(fresh("unknown"), "cache"), TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), **QUICK)
