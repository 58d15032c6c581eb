"""Tests enable() and everything around it: modes, gradients, threads, fork, the end of the process, other users of
PyTorch in the process, bad input, and machines that lack something. Most tests share one process; those that need their
own have one."""
import os
import subprocess
import tempfile
import textwrap

import pytest

from torch_scenarios import BUILD, Together, bring_bridge, environment, play, play_file

BEGIN = """
import dataclasses, os, sys, tempfile, threading, time, warnings
import torch, aoticache
aoticache.configure(judge=False)  # test_torch_judge.py is about that
x = torch.linspace(-3, 3, 12).reshape(3, 4)
SUMS = ("calls", "hits", "hits_dynamic", "fallbacks", "refused", "misses", "loads", "compiles", "compile_failures")
before = aoticache.stats().operators
def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert a.stride() == b.stride()
def counts(name):
    now, then = aoticache.stats().operators[name], before.get(name, aoticache.OperatorStats(name))
    return dataclasses.replace(now, **{one: getattr(now, one) - getattr(then, one) for one in SUMS})
def once(call, words):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    said = [one for one in said if one.category is aoticache.AoticacheWarning]
    assert len(said) == 1 and words in str(said[0].message), said
    assert said[0].filename == call.__code__.co_filename, said[0].filename
def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no exception with {words!r}")
"""

# In this order, since some find the kernels that others have compiled.
TOGETHER = {
    "wait_mode_answers_with_the_compiled_kernel": """
        expected = torch.abs(x), x + x, x + 1, torch.softmax(x, 1)
        done = aoticache.enable("aten::abs", torch.ops.aten.add.Tensor, "_softmax", mode="wait")
        assert set(done.operators) == {"aten::abs", "aten::add.Tensor", "aten::_softmax"} and done and not done.pending
        for _ in range(2):
            same(torch.abs(x), expected[0]); same(x + x, expected[1]); same(x + 1, expected[2])
            torch.testing.assert_close(torch.softmax(x, 1), expected[3])
        assert counts("aten::abs").hits >= 1 and counts("aten::abs").fallbacks == 0, aoticache.stats()
        assert aoticache.is_enabled("abs") and aoticache.stats().interface == "bridge"
        assert set(aoticache.disable()) == set(done.operators) and not aoticache.is_enabled("abs")
        calls = counts("aten::abs").calls
        torch.abs(x)
        assert counts("aten::abs").calls == calls and counts("aten::abs").state == "disabled"
        aoticache.enable("abs", mode="wait")
        torch.abs(x)
        assert counts("aten::abs").calls == calls + 1
    """,
    "background_mode_never_waits_and_then_hits": """
        aoticache.enable("aten::neg", "aten::sigmoid")
        expected = [torch.sigmoid(x), torch.neg(x)]
        assert aoticache.wait(900)
        torch.sigmoid(x); torch.neg(x)
        assert aoticache.wait(900)
        same(torch.sigmoid(x), expected[0]); same(torch.neg(x), expected[1])
        assert counts("aten::sigmoid").hits >= 1, aoticache.stats()
    """,
    "never_mode_compiles_nothing": """
        aoticache.enable("aten::abs", mode="never")
        same(torch.abs(x), x.clone().abs_())
        assert counts("aten::abs").hits == 1, aoticache.stats()
        torch.abs(torch.randn(3, 5, 7, 2))
        now = counts("aten::abs")
        assert now.fallbacks == 1 and now.compiles == 0, aoticache.stats()
    """,
    "gradients_are_right": """
        names = ("aten::sigmoid", "aten::sigmoid_backward")
        y = x.clone().requires_grad_(); (torch.sigmoid(y) * y).sum().backward()
        with aoticache.enabled(*names, mode="wait"):
            z = x.clone().requires_grad_(); (torch.sigmoid(z) * z).sum().backward()
            assert all(counts(name).calls == 1 and counts(name).fallbacks == 0 for name in names), aoticache.stats()
            with torch.no_grad():
                assert not torch.sigmoid(z).requires_grad
            with torch.inference_mode():
                assert torch.sigmoid(x).is_inference()
            assert torch.sigmoid(z).requires_grad
        torch.testing.assert_close(z.grad, y.grad)
        assert not aoticache.is_enabled(names[0])
    """,
    "enabled_gives_back_what_was": """
        aoticache.enable("aten::abs", mode="never")
        with aoticache.enabled("aten::abs", "aten::neg", mode="wait", dynamic=("after", 2)):
            assert "wait, dynamic after 2" in counts("aten::abs").policy and aoticache.is_enabled("aten::neg")
        assert counts("aten::abs").policy.startswith("never") and not aoticache.is_enabled("aten::neg")
    """,
    "dynamic_after_two_shapes_compiles_for_all": """
        aoticache.enable("aten::neg", mode="wait", dynamic=("after", 2))
        for n in (3, 4, 5, 6, 7, 8):
            same(torch.neg(torch.ones(n, 4)), torch.full((n, 4), -1.0))
        now = counts("aten::neg")
        assert now.libraries <= 4 and now.hits_dynamic >= 1, now
    """,
    "what_comes_after_four_shapes_shares_a_kernel": """
        aoticache.enable("aten::neg", mode="wait")
        assert "dynamic after 4" in counts("aten::neg").policy
        for n in range(11, 23):
            same(torch.neg(torch.ones(n, 3)), torch.full((n, 3), -1.0))
        now = counts("aten::neg")
        assert now.libraries <= 6 and now.hits_dynamic >= 5 and now.compile_failures == 0, now
    """,
    "threads_share_kernels": """
        expected = x.clone().abs_(), torch.softmax(x.double(), 1).float()
        aoticache.enable("aten::abs", "aten::_softmax", mode="wait")
        failed = []
        def work():
            try:
                for turn in range(300):
                    same(torch.abs(x), expected[0])
                    torch.testing.assert_close(torch.softmax(x, 1), expected[1])
                    if turn % 100 == 0:
                        aoticache.disable("aten::abs"); aoticache.enable("aten::abs", mode="wait")
            except Exception as error:
                failed.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [one.start() for one in threads]; [one.join() for one in threads]
        assert not failed, failed
    """,
    "compiled_functions_are_not_disturbed": """
        aoticache.enable("pointwise", "aten::_softmax", mode="never")
        f = torch.compile(lambda a: torch.softmax(torch.sigmoid(a) * a, 1))
        torch.testing.assert_close(f(x), torch.softmax(torch.sigmoid(x) * x, 1))
    """,
    "errors_are_exceptions_of_the_call": """
        aoticache.enable("aten::_softmax", "aten::mul.Tensor", mode="wait")
        warnings.simplefilter("ignore")
        raises(IndexError, "imension", lambda: torch.softmax(x, 7))
        raises(RuntimeError, "imension", lambda: x * torch.ones(5))
    """,
    "names_and_settings_that_do_not_exist": """
        on = aoticache.enable
        raises(ValueError, "did you mean aten::abs", lambda: on("aten::abss"))
        raises(aoticache.OperatorNotFoundError, "aten::add.Tensor", lambda: on("aten::add"))
        raises(aoticache.OperatorNotFoundError, "no operator matches", lambda: on("aten::zzz*"))
        raises(aoticache.OperatorRefusedError, "sizes, strides or memory", lambda: on("aten::squeeze_"))
        raises(aoticache.OperatorRefusedError, "returns a view", lambda: on("aten::view"))
        raises(aoticache.OperatorRefusedError, "random numbers", lambda: on("aten::bernoulli"))
        raises(aoticache.OperatorRefusedError, "aten::native_layer_norm", lambda: on("aten::layer_norm"))
        raises(aoticache.OperatorRefusedError, "running statistics", lambda: on("aten::miopen_batch_norm"))
        raises(ValueError, "device 'xpu' is not supported", lambda: on("abs", device="xpu"))
        raises(ValueError, "mode is 'later'", lambda: on("abs", mode="later"))
        raises(ValueError, "dynamic is", lambda: on("abs", dynamic=("after", 0)))
        raises(ValueError, "did you mean workers", lambda: on("abs", worker=2))
        raises(ValueError, "unknown setting 'bridge'", lambda: on("abs", bridge="off"))
        raises(ValueError, "needs operators", lambda: on())
        raises(TypeError, "an operator is a name", lambda: on(3))
        on("abs", mode="never")
        raises(ValueError, "cannot be used at the same time", lambda: on("neg", cache_dir="/nonexistent/other"))
        raises(ValueError, "cannot change while", lambda: on("neg", workers=2))
        assert not aoticache.is_enabled("neg")
        found = on("aten::*norm*", mode="never")
        assert "aten::native_layer_norm" in found.operators and "aten::layer_norm" in found.skipped
        aoticache.disable()
        aoticache.configure(workers=2)
        assert "aten::abs" in on("abs", mode="never").operators
    """,
    "explanations_of_compositions_are_true": """
        from torch.utils._python_dispatch import TorchDispatchMode
        from aoticache._operators.compositions import PARTS
        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.add(func.name())
                return func(*args, **(kwargs or {}))
        image, n = torch.randn(2, 4, 6, 6), torch.nn.functional
        calls = {"aten::linear": lambda: n.linear(x, x, torch.ones(3)), "aten::matmul": lambda: x @ x.T,
                 "aten::layer_norm": lambda: n.layer_norm(x, [4]), "aten::group_norm": lambda: n.group_norm(image, 2),
                 "aten::softmax.int": lambda: torch.softmax(x, 1), "aten::log_softmax.int": lambda: x.log_softmax(1),
                 "aten::conv2d": lambda: n.conv2d(image, image), "aten::max_pool2d": lambda: n.max_pool2d(image, 2),
                 "aten::square": lambda: x.square(), "aten::var": lambda: x.var(), "aten::l1_loss": lambda: n.l1_loss(x, x)}
        for name, call in calls.items():
            seen = set()
            with Watch():
                call()
            assert seen & set(PARTS[name]), (name, seen)
        for name, parts in PARTS.items():
            assert not aoticache.explain(name), name
            assert all(aoticache.explain(part) for part in parts), name
    """,
    "where_mkl_is_faster_only_a_name_enables": """
        operators = aoticache._operators.catalogue
        operators.mkl_is_fast()  # of this machine, whatever it is
        for fast in (True, False):
            operators.mkl_is_fast = lambda: fast
            assert aoticache.explain("aten::tanh") and aoticache.explain("aten::tanh").left_out == fast
            assert ("aten::tanh" in operators.expand_preset("pointwise", "cpu")) == (not fast)
            assert "aten::sigmoid" in operators.expand_preset("pointwise", "cpu")
            assert not operators.explain_name("aten::tanh", "cuda").left_out
            skipped = aoticache.enable("aten::tan*", mode="never").skipped
            assert ("MKL" in skipped.get("aten::tanh", "")) == fast, skipped
            aoticache.disable()
            assert "aten::tanh" in aoticache.enable("aten::tanh", mode="never").operators
            aoticache.disable()
    """,
    "presets_of_another_device_are_disabled_as_they_were_enabled": """
        aoticache._operators.catalogue.mkl_is_fast = lambda: True  # then "pointwise" holds tanh on a GPU, and not on the CPU
        aoticache._operators.session.problem_with_torch = lambda device: ""  # no GPU is needed to register
        enabled = aoticache.enable("pointwise", device="cuda", mode="never").operators
        assert "aten::tanh" in enabled
        assert set(aoticache.disable("pointwise")) == set(enabled)
        assert not aoticache.is_enabled("aten::tanh")
    """,
    "cache_that_cannot_be_had_is_one_warning": """
        def enable():
            result = aoticache.enable("aten::abs", cache_dir="/proc/nowhere/cache")
            assert not result and result.problem
            aoticache.enable("aten::neg", cache_dir="/proc/nowhere/cache")
        once(enable, "PyTorch's own kernels answer")
        same(torch.abs(x), x.clone().abs_())
    """,
    "bridge_that_cannot_be_opened_is_one_warning": """
        from aoticache import AoticacheError
        from aoticache._operators import bridges
        prepare, done = bridges.prepare, []
        def find(cache, settings, *, compile):
            if not compile:
                raise AoticacheError("it is not there", "NOT_FOUND")
            return bridges.Bridge(cache.library, "/dev/null", None)
        try:
            bridges.prepare = find
            with tempfile.TemporaryDirectory() as directory:
                def enable():
                    done.append(aoticache.enable("aten::abs", "aten::neg", mode="wait", cache_dir=directory))
                    assert not done[0] and "dynamic linker" in done[0].problem, done
                    aoticache.enable("aten::abs", cache_dir=directory)  # a thread finds it
                    assert aoticache.wait() and not aoticache.is_enabled("abs")
                once(enable, "nothing is enabled")
                assert aoticache.stats().interface == "none" and "dynamic linker" in aoticache.stats().problem
        finally:
            bridges.prepare = prepare
        same(torch.abs(x), x.clone().abs_())
    """,
    "lists_and_optional_arguments_are_served_and_fall_back": """
        names = ("aten::abs", "aten::maximum", "aten::native_layer_norm", "aten::amax", "aten::cat", "aten::stack",
                 "aten::_unsafe_index.Tensor")
        aoticache.enable(*names, mode="wait")
        joined = torch.cat([x.clone(), x.clone()])
        for _ in range(2):
            same(torch.abs(x), x.clone().abs_()); same(torch.cat([x, x]), joined)
        assert counts("aten::abs").hits >= 1 and counts("aten::cat").hits >= 1, aoticache.stats()
        aoticache.enable(*names, mode="never")
        y = torch.randn(5, 3, 2)
        same(torch.abs(y), y.clone().abs_()); same(torch.maximum(y, -y), y.clone().abs_())
        torch.nn.functional.layer_norm(y, [2], torch.ones(2))
        same(y.amax([0, 2], keepdim=True).reshape(3), y.permute(1, 0, 2).reshape(3, 10).max(1)[0])
        for _ in range(100):  # lists of tensors, also with gaps, and what they hold
            both = torch.cat([y, y], 1)
            assert torch.equal(both[:, :3], y) and torch.equal(torch.stack([y, y])[1], y)
            assert torch.equal(torch.ops.aten._unsafe_index(y, [None, torch.tensor([1, 1])])[:, 0], y[:, 1])
        assert y._use_count() == 1 and sys.getrefcount(y) == 2
        assert counts("aten::_unsafe_index.Tensor").fallbacks == 100 <= counts("aten::cat").fallbacks, aoticache.stats()
        assert all(counts(name).fallbacks >= 1 for name in names), aoticache.stats()
        raises(RuntimeError, "size of tensor", lambda: torch.maximum(y, torch.ones(7)))
        raises(RuntimeError, "Sizes of tensors must match", lambda: torch.cat([y, torch.ones(1, 2, 3)]))
    """,
}


def scenario(text, *arguments, **more):
    return play(BEGIN + textwrap.dedent(text), arguments, **more)


def test_fork_and_data_loader():
    scenario("""
        import torch.utils.data
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, place): return torch.abs(torch.full((3, 4), -float(place)))
        aoticache.enable("aten::abs", mode="wait")
        torch.abs(x)
        big = torch.randn(64, 64); torch.abs(big)
        batches = list(torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork"))
        assert [int(batch[0, 0, 0]) for batch in batches] == list(range(8))
        child = os.fork()
        if child == 0:
            torch.abs(big)
            hits = counts("aten::abs").hits
            os._exit(0 if hits >= 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print("done")
    """)


def test_without_a_compiler_pytorch_answers_unless_the_cache_has_the_bridge():
    with tempfile.TemporaryDirectory() as directory:
        without = {"PATH": directory + "/none", "CXX": None}
        said = scenario("""
            names = ("aten::abs", "aten::add.Tensor")
            tables = [torch._C._dispatch_dump_table(name) for name in names]
            expected = torch.abs(x), x + 1
            def enable():
                for mode in ("background", "wait", "never"):
                    done = aoticache.enable(*names, mode=mode)
                    assert not done and "install a C++ compiler" in done.problem, done
            once(enable, "nothing is enabled, PyTorch's own kernels answer: the C++ bridge to PyTorch is not available")
            for _ in range(3):
                same(torch.abs(x), expected[0]); same(x + 1, expected[1])
            assert tables == [torch._C._dispatch_dump_table(name) for name in names] and not aoticache.is_enabled("abs")
            assert aoticache.stats().interface == "none" and not aoticache.stats().operators, aoticache.stats()
            assert aoticache.wait() and not aoticache.disable()
            print(aoticache.stats(), aoticache.doctor(), "done")
        """, AOTICACHE_DIR=directory + "/empty", **without)
        assert "interface: none" in said and "problem: the C++ bridge to PyTorch is not available" in said, said
        assert "FAIL  bridge         not in the cache, and no C++ compiler" in said, said
        uses = """
            aoticache.enable("aten::abs", mode=sys.argv[1])
            for _ in range(2):
                same(torch.abs(x), x.clone().abs_())
            now = counts("aten::abs")
            assert now.hits >= 1 and now.fallbacks == 0 and aoticache.stats().interface == "bridge", aoticache.stats()
            print("done")
        """
        filled = bring_bridge(directory + "/filled")
        scenario(uses, "wait", AOTICACHE_DIR=filled)
        scenario(textwrap.dedent(uses).replace("aoticache.enable", 'warnings.simplefilter("error"); aoticache.enable', 1), "never", AOTICACHE_DIR=filled, **without)


def test_bridge_is_looked_for_again_while_there_is_none():
    with tempfile.TemporaryDirectory() as directory:
        scenario("""
            def enable():
                assert "another mode" in aoticache.enable("aten::abs", mode="never").problem
            once(enable, "no bridge for this PyTorch")
            assert aoticache.stats().interface == "none"
            if aoticache.enable("aten::abs").pending:
                assert aoticache.stats().interface == "compiling the bridge" and aoticache.wait()
            assert aoticache.is_enabled("abs") and aoticache.stats().interface == "bridge" and not aoticache.stats().problem
            print("done")
        """, AOTICACHE_DIR=directory)


def test_workers_that_are_spawned_enable_their_own():
    play_file(BEGIN + textwrap.dedent("""
        import torch.utils.data
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, place): return torch.abs(torch.full((3, 4), -float(place))), counts("aten::abs").hits
        def begin(worker):
            assert not aoticache.is_enabled("abs")
            aoticache.enable("aten::abs", mode="never")  # with the cache that the environment names
        if __name__ == "__main__":
            aoticache.enable("aten::abs", mode="wait")
            torch.abs(x)
            for method in ("spawn", "forkserver"):
                batches = list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=method,
                                                           worker_init_fn=begin))
                assert [(int(y[0, 0, 0]), int(hits)) for y, hits in batches] == [(n, n + 1) for n in range(4)], batches
            print("done")
    """))


# Stands in for the compiler of the bridge: it waits for a file, and already has the bridge.
COMPILER = """#!/bin/sh
echo started >> {directory}/started
while [ ! -e {directory}/gate ]; do sleep 0.02; done
while [ $# -gt 0 ]; do [ "$1" = -o ] && cp {directory}/bridge.so "$2"; shift; done
"""


def test_children_continue_while_the_bridge_compiles():
    with tempfile.TemporaryDirectory() as directory:
        with open(f"{directory}/c++", "w", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
            file.write(COMPILER.format(directory=directory))
        scenario("""
            import shutil
            from aoticache._core import caches
            from aoticache._operators import bridges
            directory = sys.argv[1]
            torch.set_num_threads(1)
            def started():
                return len(open(directory + "/started").read().split()) if os.path.exists(directory + "/started") else 0
            def enable(name):
                assert aoticache.enable("aten::abs", cache_dir=f"{directory}/{name}", cxx=directory + "/c++").pending
                while not started(): time.sleep(0.01)
            def serves():
                return (aoticache.wait(600) and aoticache.is_enabled("abs")
                        and aoticache.stats().interface == "bridge" and torch.equal(torch.abs(x), x.clone().abs_()))
            def play_child():
                try:
                    os.write(writer, b"1" if counts("aten::abs").state == "pending" else b"0")
                    os.write(writer, b"1" if serves() else b"0")
                finally:
                    os.write(writer, b"00") # where it raised: nobody is to wait for ever
                    os._exit(0)
            def open_gate():
                assert os.read(reader, 1) == b"1", "the child does not wait for the bridge"
                open(directory + "/gate", "w").close()
            shutil.copy(bridges.prepare(caches.open_cache(None), aoticache.Settings(), compile=True).path,
                        directory + "/bridge.so")

            # The parent ends first: its child compiles anew.
            reader, writer = os.pipe()
            parent = os.fork()
            if parent == 0:
                enable("first")
                if os.fork() == 0:
                    play_child()
                os._exit(0)
            assert os.waitpid(parent, 0)[1] == 0
            open_gate()
            assert os.read(reader, 1) == b"1" and started() == 2, started()
            reader, writer = os.pipe()
            os.remove(directory + "/gate"); os.remove(directory + "/started")

            # The parent goes on: one compile is enough for both.
            enable("second")
            if os.fork() == 0:
                play_child()
            open_gate()
            assert serves() and os.read(reader, 1) == b"1" and started() == 1, started()
            print("done")
        """, directory)


def test_process_ends_with_compiles_under_way():
    said = scenario("""
        aoticache.enable("aten::neg")
        assert aoticache.wait(900)
        torch.neg(torch.randn(int.from_bytes(os.urandom(2), "little") + 2, 3))
        time.sleep(1)
        print("done", flush=True)
    """)
    assert "Traceback" not in said, said


REDUCTIONS = """
        torch.set_num_threads(int(sys.argv[1]))
        torch.manual_seed(0)
        t, w, b = torch.randn(4, 32, 96), torch.randn(96), torch.randn(96)
        calls = {
            "aten::native_layer_norm": lambda: torch.nn.functional.layer_norm(t, (96,), w, b),
            "aten::mean.dim": lambda: t.mean(1),
            "aten::sum.dim_IntList": lambda: t.sum((0, 2)),
            "aten::var.correction": lambda: t.var(1),
            "aten::_softmax": lambda: torch.softmax(t, 1),
            "aten::amax": lambda: t.amax((1, 2)),
            "aten::add_.Tensor": lambda: t.clone().add_(t),
        }
        expected = {name: call() for name, call in calls.items()}
        aoticache.enable(*calls, mode="wait", cache_dir=sys.argv[2], dynamic=sys.argv[3])
        for turn in range(20):
            for name, call in calls.items():
                torch.testing.assert_close(call(), expected[name], rtol=1e-5, atol=1e-5, msg=lambda text: f"{name}: {text}")
        now = {name: counts(name) for name in calls}
        assert all(one.hits + one.hits_dynamic >= 19 for one in now.values()), now
        assert sum(one.compiles for one in now.values()) == (len(calls) if sys.argv[1] == "1" else 0), now
        print("done")
"""


def test_kernels_do_not_depend_on_the_threads_of_who_compiled_them():
    """A machine with one processor fills a cache for one with more."""
    for dynamic in ("never", "always"):
        with tempfile.TemporaryDirectory() as directory:
            copied = subprocess.run([os.path.join(BUILD, "bin", "aoticache"), "copy", directory + "/cache", "--op", "aoticache::*",
                                     "--allow-unsigned"], env=environment(), capture_output=True, text=True, check=False)
            assert copied.returncode in (0, 3), copied.stderr
            for threads in ("1", "4"):
                scenario(REDUCTIONS, threads, directory + "/cache", dynamic, OMP_NUM_THREADS=threads)


def test_old_library_or_none_is_told():
    with tempfile.TemporaryDirectory() as directory:
        said = play("import aoticache; aoticache.stats(); print(aoticache.__version__)", status=1,
                    AOTICACHE_LIBRARY=directory + "/libaoticache.so")
    assert "libaoticache.so cannot be loaded" in said and directory in said, said


together = Together(BEGIN)


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name):
    together.play(name, TOGETHER[name])
