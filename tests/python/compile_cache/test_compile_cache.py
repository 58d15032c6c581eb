"""Tests torch.compile with the cache: a fresh machine without a compiler, damaged and foreign records, vector units, concurrent
processes, portable artifacts, and uninstalling (docs/torch-compile.md). Faults of the cache are in test_compile_faults.py, the
rarer kinds of records in test_compile_records.py.
"""
import importlib.metadata
import json
import os
import re
import subprocess
import textwrap

import pytest

from compile_runs import (COMPILER, DIRECTORY, FULL, PLAIN, QUICK, TOOL, check_warm, copy_of, digests, filled, fresh,
                          report, run, start)
from evil_pickle import evil_pickle
from torch_scenarios import environment, play, python

TAKES_WORDS = tuple(map(int, importlib.metadata.version("torch").split(".")[:2])) >= (2, 14)

# ---- hits on any machine ----

@pytest.mark.quick
def test_fresh_machine_without_compiler():
    before = filled()
    cache = os.path.join(fresh("imported"), "cache")
    done = subprocess.run([TOOL, "import", f"{DIRECTORY}/archive/warm.tar"],
                          env=environment(AOTICACHE_DIR=cache, AOTICACHE_KEYS=f"{DIRECTORY}/keys"), capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    found = run(cache)
    check_warm(found, before)
    assert not found["warnings"]
    assert found["counts"]["inductor-cpp"]["hits"] and found["counts"]["inductor-graph"]["hits"]
    done = subprocess.run([TOOL, "verify"], env=environment(AOTICACHE_DIR=cache), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("inductor-cpp", "inductor-probe", "inductor-graph", "aotautograd"):
        done = subprocess.run([TOOL, "ls", "--kind", kind], env=environment(AOTICACHE_DIR=cache), capture_output=True,
                              text=True)
        assert done.returncode == 0 and kind.replace("-", "_") in done.stdout, (kind, done.stdout, done.stderr)


def test_fresh_machine_with_compiler():
    """No process is started there either: the compiler is not even asked for its version."""
    before = filled()
    check_warm(run(FULL, "pointwise", "training", compiler=True), before)


def test_another_directory_of_temporary_files():
    before = filled()
    check_warm(run(FULL, "pointwise", "training", TMPDIR=fresh("tmp")), before)


def test_portable_artifacts_are_complete():
    before, file = filled(), os.path.join(DIRECTORY, "artifacts")
    run(FULL, "--save", file, "pointwise", "training")
    found = run(os.path.join(fresh("empty"), "cache"), "--load", file, "pointwise", "training")
    assert found["loaded"]
    check_warm(found, before, but=("inductor-graph", "aotautograd"))
    assert found["counts"]["inductor-cpp"]["hits"] >= 2
    alone = run("", "--uninstalled", "--load", file, "pointwise", compiler=True, **QUICK)  # PyTorch ignores our artifacts
    assert alone["loaded"] and alone["programs"]["pointwise"]["same"]


# ---- what must not be served ----

def entries_of(cache, kind):
    done = subprocess.run([TOOL, "ls", "--json", "--kind", kind], env=environment(AOTICACHE_DIR=cache), check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)["entries"]


def object_path(cache, name):
    return os.path.join(cache, "objects", name[:2], name[2:])


def objects_of(cache, kind):
    """Returns paths of the objects with the contents of entries of a kind; for records these are their manifests."""
    paths = [object_path(cache, entry["artifact"]) for entry in entries_of(cache, kind)]
    assert paths and all(map(os.path.isfile, paths)), paths
    return paths


def test_records_take_one_file():
    """Except for C++, whose libraries two entries share."""
    filled()
    listed = subprocess.run([TOOL, "ls", "--json"], env=environment(AOTICACHE_DIR=FULL), check=True, capture_output=True)
    entries = json.loads(listed.stdout)["entries"]
    libraries = {entry["library"] for entry in entries if os.path.exists(object_path(FULL, entry["library"]))}
    assert libraries == {entry["library"] for entry in entries_of(FULL, "inductor-cpp")}
    assert len(entries) > len(libraries) > 0
    assert sum(len(files) for _, _, files in os.walk(os.path.join(FULL, "objects"))) == len(entries) + len(libraries)


def spoil(path, change):
    with open(path, "rb") as file:
        content = file.read()
    os.chmod(path, 0o600)
    with open(path, "wb") as file:
        file.write(change(content))
    os.chmod(path, 0o444)


def test_damaged_records_never_reach_the_unpickler():
    """Graphs with wrong bytes after a correct first line, and truncated ones: PyTorch compiles them again."""
    before, marker = filled(), os.path.join(DIRECTORY, "marker")
    cache = copy_of(FULL)
    for number, path in enumerate(objects_of(cache, "inductor-graph") + objects_of(cache, "aotautograd")):
        head = lambda content: content[:content.index(b"\n") + 1]
        spoil(path, (lambda content: head(content) + evil_pickle(marker)) if number % 2 else lambda content: content[:-7])
    found = run(cache, "pointwise", "training")
    assert not os.path.exists(marker)
    check_warm(found, before, but=("inductor-graph", "aotautograd"))
    assert found["counts"]["inductor-graph"]["hits"] == 0 and found["counts"]["inductor-graph"]["stored"]


def test_foreign_records_never_reach_the_unpickler():
    """Valid entries whose content belongs to another key, or to none."""
    marker = os.path.join(DIRECTORY, "foreign")
    play("""
        import sys, warnings
        import torch, aoticache
        sys.path.insert(0, sys.argv[2])
        from evil_pickle import evil_pickle
        from torch._inductor import codecache
        assert aoticache.install_compile_cache()
        from aoticache._compile_cache import graphs, installation
        from aoticache._core.records import Answer, file_with
        state = installation._state
        store = codecache.FxGraphCache.get_remote_cache().backend.aoticache_store
        cache = codecache.FxGraphCache.get_remote_cache()
        key, other = cache._get_key("f1"), cache._get_key("f2")
        evil = evil_pickle(sys.argv[1])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for content in (evil, graphs.head_of(store.kind, other) + evil,
                            graphs.head_of("aotautograd", key) + evil, b"x"):
                with file_with(content) as path:
                    state.records.put(store.question(key), Answer(path, "test", guard="always"))
                assert list(codecache.FxGraphCache.iterate_over_candidates(False, cache, "f1")) == []
        assert len(said) == 1 and "does not belong" in str(said[0].message), list(map(str, said))
        assert state.snapshot()[store.kind].refused == 8
        with file_with(b"content") as path:  # a CPU feature that no machine has beside those of today
            question = store.question("x")
            state.records.put(question, Answer(path, "test", "fma4,avx512_fp16", "always"))
            assert state.records.lookup(question) is None
        print("done")
    """, [marker, os.path.dirname(os.path.abspath(__file__))], AOTICACHE_DIR=os.path.join(fresh("foreign"), "cache"))
    assert not os.path.exists(marker)


def test_several_guards_of_one_graph():
    """The newest record comes first, then the others; a record with the same guard is replaced."""
    play("""
        import pickle
        import torch, aoticache
        from torch._inductor import codecache
        assert aoticache.install_compile_cache()
        cache = codecache.FxGraphCache.get_remote_cache()
        class Graph:
            def __init__(self, number, guards): self.number, self.guards_expr = number, guards
        import base64, builtins
        builtins.Graph = Graph
        Graph.__module__ = "builtins"
        for number, guards in ((1, "s0 > 1"), (2, "s0 > 2"), (3, "s0 > 1"), (4, "")):
            data = base64.b64encode(pickle.dumps(Graph(number, guards))).decode()
            cache.put("f1", {"data": data, "time_taken_ms": 5})
        found = [one[0].number for one in codecache.FxGraphCache.iterate_over_candidates(False, cache, "f1")]
        assert sorted(found) == [2, 3, 4] and found[0] == 4, found
        print("done")
    """, AOTICACHE_DIR=os.path.join(fresh("guards"), "cache"))


def vector_units():
    return play("import torch; print(torch.cpu._is_avx512_supported() and 'wide', 'done')")


def test_code_for_another_vector_unit_is_refused():
    """Without a compiler. A cache that was filled with AVX-512 code serves nothing to an AVX2 machine, and the reverse."""
    before = filled()
    if "wide" not in vector_units():
        pytest.skip("this CPU has no AVX-512")
    found = run(FULL, "pointwise", status=3, ATEN_CPU_CAPABILITY="avx2")
    assert "InvalidCxxCompiler" in found["error"] or "C++ compiler" in found["error"], found["error"]
    assert any("aoticache: no C++ compiler here" in one for one in found["warnings"]), found["warnings"]
    assert found["counts"]["inductor-graph"]["hits"] == 0
    cache = os.path.join(fresh("narrow"), "cache")
    narrow = run(cache, "pointwise", compiler=True, ATEN_CPU_CAPABILITY="avx2", **PLAIN)
    found = run(cache, "pointwise", status=3)
    assert found["counts"]["inductor-graph"]["hits"] == 0 and "compiler" in found["error"].lower(), found
    check_warm(run(cache, "pointwise", ATEN_CPU_CAPABILITY="avx2", **PLAIN), narrow)
    assert before["programs"]["pointwise"]["same"]


# ---- one compile for several processes, and ranks ----


def logging_compiler(first="true"):
    """Returns a directory with a g++ that records what it is asked to make; `first` is a command that it runs first."""
    directory = fresh("compiler")
    with open(os.path.join(directory, "g++"), "w") as file:
        file.write(f'#!/bin/sh\necho "$@" >>{directory}/log\n{first}\nexec {COMPILER} "$@"\n')
    os.chmod(os.path.join(directory, "g++"), 0o755)
    return directory


def test_processes_at_once_compile_each_library_once():
    cache, directory = copy_of(FULL) if filled() else None, logging_compiler()
    variables = {"PATH": f"{directory}:{os.environ['PATH']}", **QUICK}
    processes = [start(cache, "unseen", compiler=True, **variables) for _ in range(4)]
    found = [report(one) for one in processes]
    assert all(one["programs"]["unseen"]["same"] for one in found)
    with open(os.path.join(directory, "log")) as file:
        made = [line for line in file if re.search(r"-o \S+\.so", line)]
    assert len(made) == len({sources(line) for line in made}), made  # includes trials of vector units
    counts = [one["counts"]["inductor-cpp"] for one in found]
    compiled, served = sum(one["misses"] for one in counts), sum(one["hits"] for one in counts)
    libraries = sum(".main.so" in line for line in made)
    assert libraries == compiled and served == 3 * compiled > 0, (made, counts)
    probes = [one["counts"]["inductor-probe"] for one in found]
    assert sum(one["stored"] for one in probes) >= len(made) - libraries, (made, probes)


def sources(line):
    return re.search(r"\S+\.cpp", line)[0].rsplit("/", 1)[-1]


def test_code_of_another_compiler():
    """With any_compiler=True it is accepted; then no other compiler is asked for its version."""
    before, directory = filled(), logging_compiler()
    check_warm(run(FULL, "--any", "pointwise", compiler=True, PATH=directory), before)
    assert not os.path.exists(os.path.join(directory, "log"))


def test_a_compiler_that_is_started_by_another_program():
    """Since 2.14 PyTorch accepts a compiler's name of several words. The compiler is found on PATH, and the library is served
    without it."""
    cache, named = os.path.join(fresh("words"), "cache"), {"CXX": "env g++", **PLAIN}
    first = run(cache, "pointwise", compiler=True, status=0 if TAKES_WORDS else 3, **named)
    if not TAKES_WORDS:
        assert "InvalidCxxCompiler" in first["error"], first
        return
    assert first["counts"]["inductor-cpp"]["stored"] == 1 and not first["warnings"], first
    again = run(cache, "pointwise", compiler=True, **named)
    assert all("-o" not in " ".join(one) for one in again["started"]) and digests(again) == digests(first), again
    check_warm(run(cache, "pointwise", **named), first)
    check_warm(run(cache, "pointwise", **PLAIN), first, but=("inductor-graph", "aotautograd"))


def test_a_compile_that_fails_is_raised_and_not_remembered():
    play("""
        import os, threading
        from aoticache._core import caches
        from aoticache._core.records import Answer, Question, Records
        records = Records(caches.open_cache(None))
        question = Question("inductor-cpp", {"name": "x" * 70000}, {"compiler": "none"})
        class Failed(Exception): pass
        def fail():
            raise Failed("line 3: expected ';'")
        for _ in range(2):
            try:
                records.get_or_make(question, fail)
            except Failed as error:
                assert "line 3" in str(error)
            else:
                raise AssertionError("no exception")
        path = os.path.join(os.environ["AOTICACHE_DIR"], "content")
        open(path, "w").write("code")
        made = []
        def make():
            made.append(1)
            return Answer(path, "test", "sse4_2")
        results = [None] * 4
        def work(i):
            results[i] = records.get_or_make(question, make)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for one in threads: one.start()
        for one in threads: one.join()
        assert len(made) == 1 and sum(one == (None, True) for one in results) == 1, results
        assert [one[0].content for one in results if one[0] is not None] == [b"code"] * 3
        assert records.requirements_of(records.lookup(question)) == ("sse4_2", "test")
        print("done")
    """, AOTICACHE_DIR=os.path.join(fresh("failed"), "cache"))


RANK = """
    import os, sys, torch, torch.distributed as dist
    import aoticache
    assert aoticache.install_compile_cache(cache_dir=sys.argv[2])
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=2)
    import torch.distributed._functional_collectives as collectives
    @torch.compile
    def step(x):
        return collectives.all_reduce(torch.cos(x) * 17 - torch.abs(x) / 3, "sum", dist.group.WORLD) + 1
    x = torch.linspace(0, 1, 77) * (rank + 1)
    expected = sum(torch.cos(one) * 17 - torch.abs(one) / 3
                   for one in (torch.linspace(0, 1, 77), torch.linspace(0, 1, 77) * 2)) + 1
    for _ in range(2):
        assert torch.allclose(step(x), expected)
    counts = aoticache.stats().compile["inductor-cpp"]
    print("hits" if counts.hits and not counts.misses else "misses" if counts.misses and not counts.hits else counts)
    dist.destroy_process_group()
    print("done", flush=True)
    os._exit(0)  # gloo's threads may outlive the group, and PyTorch then ends the process in their way ("terminate called")
"""


def ranks(caches):
    meeting = os.path.join(fresh("meeting"), "file")
    words = [python("-c", textwrap.dedent(RANK), str(rank), cache, meeting) for rank, cache in enumerate(caches)]
    processes = [subprocess.Popen(one, env=environment(TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), AOTICACHE_CONFIG="",
                                                        **QUICK), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for one in words]
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), said
    return said


def test_ranks_that_hit_and_ranks_that_miss():
    cache, other = copy_of(FULL) if filled() else None, copy_of(FULL)
    ranks([cache, cache])  # so that the cache has what they need
    said = ranks([cache, other])
    assert "hits" in said[0] and "misses" in said[1], said


# ---- faults, versions, uninstalling ----

def test_a_fault_of_the_cache_is_none_of_the_program():
    play("""
        import sys, warnings
        import torch, aoticache
        from torch._inductor import codecache
        assert aoticache.install_compile_cache()
        from aoticache import AoticacheError
        from aoticache._compile_cache import installation
        from aoticache._core import capi
        def call(name, *arguments):
            raise AoticacheError("the disk is gone", "IO")
        installation._state.records.library = type("Broken", (), {"call": staticmethod(call), "get": call})()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = torch.linspace(0, 1, 33)
            assert torch.allclose(torch.compile(lambda x: x * 3 + 1)(x), x * 3 + 1)
        kinds = {str(one.message).split("does not serve ")[1].split()[0] for one in said if "aoticache" in str(one.message)}
        assert {"inductor-cpp", "inductor-graph", "aotautograd"} <= kinds, kinds
        assert len(kinds) == sum("aoticache" in str(one.message) for one in said), list(map(str, said))
        print("done")
    """, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), **QUICK,
         AOTICACHE_DIR=os.path.join(fresh("fault"), "cache"))


def test_a_library_that_cannot_be_loaded_is_compiled_here():
    """A valid entry that does not contain a library, as if it were another machine's."""
    cache = copy_of(FULL) if filled() else None
    play("""
        import warnings
        import torch, aoticache
        from torch._inductor import codecache
        assert aoticache.install_compile_cache()
        from aoticache._core import records
        class Other(records.Records):
            def _take(self, artifact, question):
                found = super()._take(artifact, question)
                if question.kind == "inductor-cpp":
                    found = records.Found(b"no library" * 100, found.guard, found.compile_ns, found.artifact)
                return found
        from aoticache._compile_cache import installation
        installation._state.records.__class__ = Other
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = torch.linspace(-3, 3, 1000)
            assert torch.allclose(torch.compile(lambda x: torch.sin(x) * 2 + torch.relu(x))(x), x.sin() * 2 + x.relu())
        assert sum("cannot be loaded here" in str(one.message) for one in said) == 1, list(map(str, said))
        assert aoticache.stats().compile["inductor-cpp"].refused == 1
        print("done")
    """, AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"))


def test_functions_of_pytorch_are_where_they_were():
    play("""
        import torch
        from aoticache._compile_cache import installation
        assert installation.is_known(torch.__version__), torch.__version__
        missing = installation.missing_function()
        assert missing is None, missing
        print("done")
    """)


def test_another_pytorch_is_left_alone():
    """With an unknown version, or one whose functions moved: one warning is given, and nothing is replaced."""
    play("""
        import warnings
        import torch
        from torch._inductor import cpp_builder, codecache
        import aoticache
        from aoticache._compile_cache import installation
        from aoticache._core.errors import forget_warnings
        own, versions = cpp_builder.CppBuilder.build, installation.VERSIONS
        def attempt(text):
            forget_warnings()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                assert not aoticache.install_compile_cache() and not aoticache.install_compile_cache()
            assert len(said) == 1 and text in str(said[0].message), list(map(str, said))
            assert cpp_builder.CppBuilder.build is own and not installation.is_installed()
        installation.VERSIONS = ((9, 9),)
        attempt("supports PyTorch 9.9")
        installation.VERSIONS = versions
        del codecache._precompile_header
        attempt("has no torch._inductor.codecache._precompile_header")
        print("done")
    """)


def test_uninstall_gives_pytorch_back():
    play("""
        import sys
        import torch, aoticache
        assert "torch._inductor.codecache" not in sys.modules
        before = list(sys.meta_path)
        assert aoticache.install_compile_cache() and aoticache.install_compile_cache()
        assert "torch._inductor.codecache" not in sys.modules
        assert aoticache.uninstall_compile_cache() and not aoticache.uninstall_compile_cache()
        assert sys.meta_path == before
        from torch._inductor import codecache, config, cpp_builder, cpu_vec_isa, remote_cache
        from torch.compiler._cache import CacheArtifactManager
        import torch._functorch.config, torch._dynamo.config
        from torch._dynamo import callback
        def look():
            owners = (cpp_builder.CppBuilder, cpu_vec_isa.VecISA, codecache.CppCodeCache, codecache.GuardedCache,
                      codecache.FxGraphCache, callback.CompilationCallbackHandler,
                      remote_cache.RemoteFxGraphCache, remote_cache.RemoteAOTAutogradCache,
                      remote_cache.RemoteAutotuneCache, remote_cache.RemoteDynamoPGOCache, CacheArtifactManager)
            classes = [dict(vars(one)) for one in owners]
            for one in classes:
                for name in ("_cache_info", "_serializer"):
                    one.pop(name, None)
            return (classes, cpp_builder.cpp_compiler_search, cpp_builder._is_intel_compiler, codecache._precompile_header,
                    config.fx_graph_remote_cache, config.autotune_remote_cache,
                    torch._functorch.config.enable_remote_autograd_cache,
                    torch._dynamo.config.automatic_dynamic_remote_pgo)
        before = look()
        assert aoticache.install_compile_cache() and look() != before and config.fx_graph_remote_cache
        assert aoticache.uninstall_compile_cache()
        after = look()
        for one, other in zip(before, after):
            assert one == other, (one, other)
        assert aoticache.stats().compile == {}
        print("done")
    """, fresh=True)


def test_doctor_knows():
    said = play("import torch, aoticache; aoticache.install_compile_cache(); import torch._inductor.codecache;"
                "print(aoticache.doctor()); print('done')")
    assert "torch.compile  the compile cache is installed" in said, said
