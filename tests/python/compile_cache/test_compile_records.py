"""Tests the rarer kinds of records of torch.compile: profiles of dynamic shapes, choices of autotuning, and graphs that PyTorch's
precompile need not trace (docs/torch-compile.md)."""
import os

from compile_runs import DIRECTORY, QUICK, check_warm, digests, fresh, run
from torch_scenarios import play

CACHE = os.path.join(DIRECTORY, "records")
JOB = {"TORCH_COMPILE_JOB_ID": "aoticache-test", **QUICK}


def traced(found, name):
    return found["programs"][name]["traced"]


def test_a_profile_saves_the_compile_for_the_first_length():
    """The first process finds out that lengths vary, and traces twice. The second has the profile, and starts no compiler."""
    first = run(CACHE, "named", compiler=True, **JOB)
    assert traced(first, "named") == 2 and first["counts"]["dynamo-profile"]["stored"] >= 1, first
    again = run(CACHE, "named", **JOB)
    check_warm(again, first)
    assert traced(again, "named") == 1 and again["counts"]["dynamo-profile"]["hits"] >= 1, again
    other = run(CACHE, "named", **{**JOB, "TORCH_COMPILE_JOB_ID": "aoticache-other"})  # another job has its own profile
    assert traced(other, "named") == 2 and other["counts"]["dynamo-profile"]["hits"] == 0 and not other["started"], other


def test_graphs_that_differ_in_a_constant_are_two():
    """The values of constants are in PyTorch's keys: the second program does not get the first's record, and has its own
    results."""
    first = run(CACHE, "constant_one", compiler=True, **QUICK)
    other = run(CACHE, "constant_two", compiler=True, **QUICK)
    assert other["counts"]["inductor-graph"]["hits"] == 0 and other["programs"]["constant_two"]["same"], other
    check_warm(run(CACHE, "constant_one", **QUICK), first)
    check_warm(run(CACHE, "constant_two", **QUICK), other)


def test_programs_in_the_mode_of_autotuning_are_served():
    """mode="max-autotune" on a CPU: the choice is part of the graph's record."""
    first = run(CACHE, "tuned", compiler=True, **QUICK)
    assert first["counts"]["inductor-graph"]["stored"] == 1, first["counts"]
    check_warm(run(CACHE, "tuned", **QUICK), first)


def test_choices_of_tritons_heuristics_are_served():
    """Uses PyTorch's own class for them: their kernels need a GPU, their records do not."""
    text = """
        import sys
        import torch, aoticache
        assert aoticache.install_compile_cache()
        import torch._inductor.codecache
        from torch._inductor import config
        from torch._inductor.runtime.autotune_cache import AutotuneCache
        assert config.autotune_remote_cache
        class Config:
            kwargs, num_warps, num_stages = {"XBLOCK": 64}, 4, 2
        meta = {"backend_hash": "b", "autotune_local_cache": False, "autotune_remote_cache": True}
        file = sys.argv[2] + "/kernel.py"
        open(file, "w").write("# a kernel of Triton's")
        cache = AutotuneCache.create(meta, file, "configs")
        found = cache._read()
        if sys.argv[1] == "save":
            assert found is None
            cache.save(Config, 7_000_000)
        else:
            assert found["XBLOCK"] == 64 and found["num_warps"] == 4 and found["configs_hash"] == "configs", found
            other = AutotuneCache.create(meta, file, "other configs")._read()
            assert other is None, other
        counts = aoticache.stats().compile["autotune"]
        assert (counts.hits, counts.stored) == ((0, 1) if sys.argv[1] == "save" else (1, 0)), counts
        print("done")
    """
    for what in ("save", "read"):  # also with another directory
        play(text, [what, fresh("kernels")], AOTICACHE_DIR=CACHE, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"))


def test_precompiled_programs_trace_nothing():
    """PyTorch's precompile stores bytecode and guards in its portable artifacts, and ours adds the libraries to them."""
    file, precompile = os.path.join(DIRECTORY, "precompiled"), {"TORCH_CACHING_PRECOMPILE": "1", **QUICK}
    first = run(CACHE, "--save", file, "named", compiler=True, **precompile)
    found = run(os.path.join(fresh("empty"), "cache"), "--load", file, "named", **precompile)
    assert found["loaded"] and found["started"] == [] and traced(first, "named") == 2 and traced(found, "named") == 0, found
    assert digests(found) == digests(first) and found["counts"]["inductor-cpp"]["misses"] == 0, found
    found = run(os.path.join(fresh("empty"), "cache"), "--load", file, "--uninstalled", "named", status=3, **precompile)
    assert found["loaded"] and found["error"], found  # PyTorch alone loads no libraries from them


def test_records_among_artifacts_that_cannot_be_read():
    """PyTorch's own artifacts are loaded anyway, with one warning; of unreadable records nothing is stored."""
    text = """
        import sys, warnings
        import torch, aoticache
        assert aoticache.install_compile_cache()
        import torch._inductor.codecache
        from aoticache._compile_cache import portable_artifacts
        from aoticache._core import errors
        good = portable_artifacts.name_with([("key", b"{}\\nbytes"), ("other", b"")])
        assert portable_artifacts.records_in(good) == [("key", b"{}\\nbytes"), ("other", b"")]
        def load(name):
            whole = portable_artifacts.append_name((0).to_bytes(4, "big") + (1).to_bytes(8, "big"), name)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                info = torch.compiler.load_cache_artifacts(whole)
            return info, [str(one.message) for one in said if "aoticache" in str(one.message)]
        for number, name in enumerate((good, good[:-9], good[:20] + "!" + good[21:], portable_artifacts.PREFIX, "none of ours")):
            errors.forget_warnings()
            info, said = load(name)
            assert info is not None and len(said) == (number != 4), (number, said)
        counts = aoticache.stats().compile["inductor-cpp"]
        assert counts.stored == 0, counts
        print("done")
    """
    play(text, [], AOTICACHE_DIR=CACHE, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"))


def test_pytorchs_digest_of_its_sources_is_remembered():
    """The second process gets the digest of 2,300 files from the cache: the same bytes as PyTorch's, without reading a file."""
    cache = fresh("sources")
    text = """
        import builtins, sys
        import torch, aoticache
        from torch._inductor import codecache
        read, own = [], builtins.open
        builtins.open = lambda file, *words, **more: (read.append(str(file)), own(file, *words, **more))[1]
        assert aoticache.install_compile_cache()
        found = codecache.torch_key()
        builtins.open = own
        counts = aoticache.stats().compile["inductor-sources"]
        modules = [name for name in read if name.endswith(".py")]
        assert (counts.hits, counts.misses, counts.stored) == ((0, 1, 2) if sys.argv[1] == "first" else (1, 0, 0)), counts
        assert (len(modules) > 1000) == (sys.argv[1] == "first"), len(modules)
        codecache.torch_key.clear()
        assert codecache.torch_key() == found
        print("done")
    """
    for word in ("first", "second"):
        play(text, [word], AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"))


def test_sources_that_are_not_those_that_were_read():
    """A patched module with its old size and timestamps, and copies of both trees with `cp -a`: each tree has its own digest."""
    text = """
        import os, subprocess, sys, time
        import torch, aoticache
        from torch._inductor import codecache
        aoticache.install_compile_cache()
        from aoticache._compile_cache import installation, sources as module
        read, own = set(), os.path.dirname(torch.__file__)
        class Hasher:
            def update(self, content):
                pass
        real = open
        codecache.open = lambda name, mode: (read.add(os.path.relpath(name, own)), real(name, mode))[1]
        codecache.build_code_hash([own], "", Hasher())
        del codecache.open
        assert read <= {name for name, *_ in module.modules(own)}

        class Made:  # PyTorch's function, for another directory
            def __init__(self):
                self.value, self.was_read = None, False
            def set(self, value):
                self.value = value
            def __call__(self):
                if self.value is None:
                    self.was_read = True
                    directory = os.path.dirname(torch.__file__)
                    self.value = module.contents_of(directory, module.modules(directory))
                return self.value
        def find(directory):
            torch.__file__ = os.path.join(directory, "__init__.py")
            sources = object.__new__(module.Sources)
            sources.state, sources.own = installation._state, Made()
            sources.find()
            return sources.own(), sources.own.was_read
        def aged(directory):
            time.sleep(0.02)
            module.TICK_NS = 1_000_000  # nothing changes in this test while it is read
            return directory
        top = sys.argv[1]
        installed, copied = os.path.join(top, "installed"), os.path.join(top, "copied")
        os.makedirs(os.path.join(installed, "inside"))
        for name, content in (("__init__.py", ""), ("inside/__init__.py", "1"), ("inside/more.py", "factor = 2")):
            with open(os.path.join(installed, name), "w") as file:
                file.write(content)
        first, was_read = find(aged(installed))
        assert was_read and find(installed) == (first, False)
        subprocess.run(["cp", "-a", installed, copied], check=True)
        assert find(aged(copied)) == (first, False)  # the contents are known
        for directory in (installed, copied):
            path = os.path.join(directory, "inside", "more.py")
            before = os.stat(path)
            with open(path, "w") as file:
                file.write("factor = 5")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        second, was_read = find(aged(installed))
        assert was_read and second != first
        assert find(aged(copied)) == (second, False)
        again = os.path.join(top, "again")
        subprocess.run(["cp", "-a", copied, again], check=True)
        assert find(aged(again)) == (second, False)
        module.TICK_NS = 10**12
        with open(os.path.join(again, "inside", "more.py"), "w") as file:
            file.write("factor = 7")
        third, was_read = find(again)
        assert was_read and third not in (first, second)
        counts = aoticache.stats().compile["inductor-sources"]
        assert counts.refused == 0, counts
        print("done")
    """
    play(text, [fresh("torch")], AOTICACHE_DIR=fresh("sources"), TORCHINDUCTOR_CACHE_DIR=fresh("inductor"))
