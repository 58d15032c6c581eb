"""enable() and everything around it, each scenario in a process of its own: modes, gradients, threads, fork, the end of
the process, other users of PyTorch in it, bad input, and machines that lack something."""
import os
import shutil
import tempfile

from torch_scenarios import CACHE, main, play

BEGIN = """
import os, sys, threading, time, warnings
import torch, aoticache
x = torch.linspace(-3, 3, 12).reshape(3, 4)
def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert a.stride() == b.stride()
def counts(name):
    return aoticache.stats().operators[name]
"""


def scenario(text, *arguments, **more):
    import textwrap
    return play(BEGIN + textwrap.dedent(text), arguments, **more)


def test_wait_mode_answers_with_the_compiled_kernel():
    scenario("""
        expected = torch.abs(x), x + x, x + 1, torch.softmax(x, 1)
        done = aoticache.enable("aten::abs", torch.ops.aten.add.Tensor, "_softmax", mode="wait")
        assert set(done.operators) == {"aten::abs", "aten::add.Tensor", "aten::_softmax"} and done and not done.pending
        for _ in range(2):
            same(torch.abs(x), expected[0]); same(x + x, expected[1]); same(x + 1, expected[2])
            torch.testing.assert_close(torch.softmax(x, 1), expected[3])
        assert counts("aten::abs").hits >= 1 and counts("aten::abs").fallbacks == 0, aoticache.stats()
        assert aoticache.is_enabled("abs") and aoticache.stats().interface == "bridge"
        assert set(aoticache.disable()) == set(done.operators) and not aoticache.is_enabled("abs")
        before = counts("aten::abs").calls
        torch.abs(x)
        assert counts("aten::abs").calls == before and counts("aten::abs").state == "disabled"
        aoticache.enable("abs", mode="wait")
        torch.abs(x)
        assert counts("aten::abs").calls == before + 1
        print("done")
    """)


def test_background_mode_never_waits_and_then_hits():
    scenario("""
        aoticache.enable("aten::neg", "aten::sigmoid")
        expected = [torch.sigmoid(x), torch.neg(x)]
        assert aoticache.wait(250)
        torch.sigmoid(x); torch.neg(x)
        assert aoticache.wait(250)
        same(torch.sigmoid(x), expected[0]); same(torch.neg(x), expected[1])
        assert counts("aten::sigmoid").hits >= 1, aoticache.stats()
        print("done")
    """)


def test_never_mode_compiles_nothing():
    scenario("""
        aoticache.enable("aten::abs", mode="never")
        same(torch.abs(x), x.clone().abs_())
        assert counts("aten::abs").hits == 1, aoticache.stats()
        torch.abs(torch.randn(3, 5, 7, 2))
        now = counts("aten::abs")
        assert now.fallbacks == 1 and now.compiles == 0, aoticache.stats()
        print("done")
    """)


def test_gradients_are_right():
    scenario("""
        names = ("aten::sigmoid", "aten::sigmoid_backward", "aten::mul.Tensor")
        y = x.clone().requires_grad_(); (torch.sigmoid(y) * y).sum().backward()
        with aoticache.enabled(*names, mode="wait"):
            z = x.clone().requires_grad_(); (torch.sigmoid(z) * z).sum().backward()
            assert counts("aten::sigmoid").calls >= 1 and counts("aten::sigmoid_backward").calls >= 1
            with torch.no_grad():
                assert not torch.sigmoid(z).requires_grad
            with torch.inference_mode():
                assert torch.sigmoid(x).is_inference()
            assert torch.sigmoid(z).requires_grad
        torch.testing.assert_close(z.grad, y.grad)
        assert not aoticache.is_enabled(names[0])
        print("done")
    """)


def test_enabled_gives_back_what_was():
    scenario("""
        aoticache.enable("aten::abs", mode="never")
        with aoticache.enabled("aten::abs", "aten::neg", mode="wait", dynamic=("after", 2)):
            assert "wait, dynamic after 2" in counts("aten::abs").policy and aoticache.is_enabled("aten::neg")
        assert counts("aten::abs").policy.startswith("never") and not aoticache.is_enabled("aten::neg")
        print("done")
    """)


def test_dynamic_after_two_shapes_compiles_for_all():
    scenario("""
        aoticache.enable("aten::neg", mode="wait", dynamic=("after", 2))
        for n in (3, 4, 5, 6, 7, 8):
            same(torch.neg(torch.ones(n, 6)), -torch.ones(n, 6).mul_(1))
        now = counts("aten::neg")
        assert now.libraries <= 4 and now.hits_symbolic >= 1, now
        print("done")
    """)


def test_threads_share_kernels():
    scenario("""
        aoticache.enable("aten::abs", "aten::_softmax", mode="wait")
        expected = x.clone().abs_(), torch.softmax(x.double(), 1).float()
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
        print("done")
    """)


def test_fork_and_data_loader():
    scenario("""
        import torch.utils.data
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, place): return torch.abs(torch.full((3, 4), -float(place)))
        if __name__ == "__main__":
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


def test_compiled_functions_are_not_disturbed():
    scenario("""
        aoticache.enable("pointwise", "aten::_softmax", mode="never")
        f = torch.compile(lambda a: torch.softmax(torch.sigmoid(a) * a, 1))
        torch.testing.assert_close(f(x), torch.softmax(torch.sigmoid(x) * x, 1))
        print("done")
    """)


def test_errors_are_exceptions_of_the_call():
    scenario("""
        aoticache.enable("aten::_softmax", "aten::mul.Tensor", mode="wait")
        warnings.simplefilter("ignore")
        for call, kind in ((lambda: torch.softmax(x, 7), IndexError), (lambda: x * torch.ones(5), RuntimeError)):
            try:
                call()
            except kind as error:
                assert "imension" in str(error), error
            else:
                raise AssertionError("no exception")
        print("done")
    """)


def test_process_ends_with_compiles_under_way():
    said = scenario("""
        aoticache.enable("aten::neg")
        assert aoticache.wait(250)
        torch.neg(torch.randn(int.from_bytes(os.urandom(2), "little") + 2, 3))
        time.sleep(1)
        begin = time.monotonic()
        import atexit
        print("done", flush=True)
    """)
    assert "Traceback" not in said, said


def test_names_and_settings_that_do_not_exist():
    scenario("""
        def raises(kind, words, call):
            try:
                call()
            except kind as error:
                assert words in str(error), error
            else:
                raise AssertionError(words)
        on = aoticache.enable
        raises(ValueError, "did you mean aten::abs", lambda: on("aten::abss"))
        raises(aoticache.OperatorNotFoundError, "aten::add.Tensor", lambda: on("aten::add"))
        raises(aoticache.OperatorNotFoundError, "no operator matches", lambda: on("aten::zzz*"))
        raises(aoticache.OperatorRefusedError, "writes to its argument 'self'", lambda: on("aten::abs_"))
        raises(aoticache.OperatorRefusedError, "returns a view", lambda: on("aten::view"))
        raises(aoticache.OperatorRefusedError, "random numbers", lambda: on("aten::bernoulli"))
        raises(aoticache.OperatorRefusedError, "aten::native_layer_norm", lambda: on("aten::layer_norm"))
        raises(aoticache.OperatorRefusedError, "running statistics", lambda: on("aten::native_batch_norm"))
        raises(ValueError, "device 'xpu' is not supported", lambda: on("abs", device="xpu"))
        raises(ValueError, "mode is 'later'", lambda: on("abs", mode="later"))
        raises(ValueError, "dynamic is", lambda: on("abs", dynamic=("after", 0)))
        raises(ValueError, "did you mean workers", lambda: on("abs", worker=2))
        raises(ValueError, "needs operators", lambda: on())
        raises(TypeError, "an operator is a name", lambda: on(torch.abs))
        on("abs", mode="never")
        raises(ValueError, "cannot be used beside it", lambda: on("neg", cache_dir="/nonexistent/other"))
        raises(ValueError, "cannot change while", lambda: on("neg", workers=2))
        assert not aoticache.is_enabled("neg")
        found = on("aten::*norm*", mode="never")
        assert "aten::native_layer_norm" in found.operators and "aten::layer_norm" in found.skipped
        print("done")
    """)


def test_explanations_of_compositions_are_true():
    scenario("""
        from torch.utils._python_dispatch import TorchDispatchMode
        from aoticache._compositions import PARTS
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
        print("done")
    """)


def once(said):
    assert said.count("AoticacheWarning: aoticache:") == 1, said
    return said


def test_cache_that_cannot_be_had_is_one_warning():
    said = once(scenario("""
        warnings.simplefilter("always")
        result = aoticache.enable("aten::abs", cache_dir="/proc/nowhere/cache")
        assert not result and result.problem
        aoticache.enable("aten::neg", cache_dir="/proc/nowhere/cache")
        same(torch.abs(x), x.clone().abs_())
        print("done")
    """))
    assert "PyTorch's own kernels answer" in said, said


def test_no_compiler_is_one_warning_and_the_stable_interface():
    with tempfile.TemporaryDirectory() as folder:
        said = once(scenario("""
            warnings.simplefilter("always")
            aoticache.enable("aten::abs", "aten::native_layer_norm", mode="wait", cxx="/nonexistent/c++",
                             cache_dir=sys.argv[1])
            assert aoticache.stats().interface == "stable C interface"
            same(torch.abs(x), x.clone().abs_())
            print("done")
        """, folder))
        assert "C++ compiler" in said, said


def test_stable_interface_serves_and_falls_back():
    scenario("""
        aoticache.enable("aten::abs", "aten::maximum", "aten::native_layer_norm", "aten::amax", mode="wait",
                         bridge="off")
        same(torch.abs(x), x.clone().abs_()); same(torch.abs(x), x.clone().abs_())
        assert counts("aten::abs").hits >= 1, aoticache.stats()
        aoticache.enable("aten::abs", "aten::maximum", "aten::native_layer_norm", "aten::amax", mode="never")
        y = torch.randn(5, 3, 2)
        same(torch.abs(y), y.clone().abs_()); same(torch.maximum(y, -y), y.clone().abs_())
        torch.nn.functional.layer_norm(y, [2], torch.ones(2)); same(y.amax([0, 2], keepdim=True).reshape(3), y.permute(1, 0, 2).reshape(3, 10).max(1)[0])
        assert aoticache.stats().total("fallbacks") >= 3, aoticache.stats()
        try:
            torch.maximum(y, torch.ones(7))
        except RuntimeError as error:
            assert "size of tensor" in str(error), error
        else:
            raise AssertionError("no exception")
        print("done")
    """)


def test_old_library_or_none_is_told():
    said = play("import aoticache; aoticache.stats(); print(aoticache.__version__)", status=1,
                AOTICACHE_LIBRARY="/nonexistent/libaoticache.so")
    assert "libaoticache.so cannot be loaded" in said and "/nonexistent" in said, said


if __name__ == "__main__":
    if os.environ.get("FRESH"):
        shutil.rmtree(CACHE, ignore_errors=True)
    main([value for name, value in list(globals().items()) if name.startswith("test_")])
