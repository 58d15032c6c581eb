"""Tests the binding on PyTorch's stable C ABI with the real PyTorch, through ctypes.

Operators are enabled and called from Python. Kernels come from the hook for C sources, which is fast. Operators for
which that hook has no source (softmax, sums over dimensions) get kernels from the compile worker, which uses PyTorch's
AOTInductor.

usage: binding_cases.py CASE DIRECTORY   runs a case of test_torch_binding_stable.py. Environment: BUILD, the build
directory.
"""
import contextlib
import ctypes
import os
import sys
import threading

from memory_in_use import bytes_per_call

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("AOTICACHE_PYTHON", sys.executable)
WAIT, BACKGROUND, NEVER = 0, 1, 2
OK, INVALID, UNSUPPORTED = 0, 2, 8

#: Appears in PyTorch's tables of kernels. Their lines also name files, and a directory named libaoticache must not
#: count.
OURS = "registered at libaoticache:"
ABS = "aten::abs(Tensor self) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
SUM = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
SOFTMAX = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


class HookOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("program", ctypes.c_char_p), ("arguments", ctypes.c_void_p),
                ("kernels", ctypes.c_char_p), ("cpu_features", ctypes.c_char_p), ("timeout_seconds", ctypes.c_uint32),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p), ("memory_limit_bytes", ctypes.c_uint64),
                ("environment", ctypes.c_void_p), ("workers", ctypes.c_uint32)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("cache", ctypes.c_void_p), ("hook", ctypes.c_void_p), ("miss", ctypes.c_int),
                ("dynamic", ctypes.c_int), ("dynamic_after", ctypes.c_uint32), ("threads", ctypes.c_uint32),
                ("queue_length", ctypes.c_uint32), ("max_loaded", ctypes.c_size_t), ("max_loaded_bytes", ctypes.c_uint64),
                ("serve_requires_grad", ctypes.c_bool), ("fail_calls", ctypes.c_bool), ("record_file", ctypes.c_char_p),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p), ("environment", ctypes.c_void_p)]


class BindingOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("eager", ctypes.c_void_p), ("bridge", ctypes.c_char_p),
                ("torch_library", ctypes.c_char_p), ("torch_version", ctypes.c_uint64)]


class OperatorOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("schema", ctypes.c_char_p), ("dispatch_key", ctypes.c_char_p),
                ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32), ("dynamic", ctypes.c_void_p),
                ("fallback", ctypes.c_void_p), ("fallback_user", ctypes.c_void_p)]


HOLDER_COUNTS = ("hits hits_dynamic loads misses compiles compile_failures fallbacks queued dropped entries libraries "
                 "loaded calls_lost judged judged_slower on_trial gained_ns dynamic_refused").split()


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in [*HOLDER_COUNTS, "calls", "refused"]]


FALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint64,
                            ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)


class Failure(RuntimeError):
    def __init__(self, name, error):
        super().__init__(f"{name}: {error.message.decode()}")
        self.status = error.status


class Operator:
    """An enabled operator. Its fallback takes only tensors and numbers."""

    def __init__(self, binding, schema, key="CPU"):
        self.binding, self.schema = binding, schema
        name = schema.split("(")[0]
        self.takes = [part.strip().split(" ")[0] for part in schema[schema.index("(") + 1:schema.rindex(")")].split(",")]
        self.kernel = torch.library.get_kernel(name, key)
        self.keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        self.fallbacks = 0
        self.callback = FALLBACK(self.fall_back)
        self.handle = ctypes.c_void_p()
        options = OperatorOptions(ctypes.sizeof(OperatorOptions), schema.encode(), key.encode(), 0, -1, None,
                                  ctypes.cast(self.callback, ctypes.c_void_p), None)
        binding.call("aoticache_binding_enable", binding.handle, ctypes.byref(options), ctypes.byref(self.handle))

    def read(self, kind, bits):
        if kind == "Tensor":
            capsule = capsule_new(bits, None, None)  # despite its name, it steals nothing
            return torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs([capsule])[0]
        return bool(bits & 255) if kind == "bool" else ctypes.c_int64(bits).value

    def fall_back(self, _user, stack, inputs, _outputs, message, size):
        self.fallbacks += 1
        try:
            arguments = [self.read(self.takes[i], stack[i]) for i in range(inputs)]
            result = self.kernel.call_boxed(self.keys, *arguments)
            stack[0] = capsule_pointer(torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(result), None)
            return 0
        except BaseException as exception:
            text = str(exception).encode()[:size - 1] + b"\0"
            ctypes.memmove(message, text, len(text))
            return 1

    def counts(self):
        counts = Counts()
        self.binding.c.aoticache_binding_get_counts(self.handle, ctypes.byref(counts))
        return counts

    def disable(self):
        self.binding.c.aoticache_binding_disable(self.handle)

    def retire(self):
        self.binding.c.aoticache_binding_retire(self.handle)


class Binding:
    """Holds a cache, a hook, a context and a binding; `with` frees them."""

    def __init__(self, directory, hook="c", **options):
        self.c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
        for name in ("binding_disable", "binding_retire", "binding_free", "context_free", "hook_free", "cache_close"):
            getattr(self.c, "aoticache_" + name).argtypes = [ctypes.c_void_p]
        os.environ["AOTICACHE_DIR"] = directory
        self.cache, self.hook, self.eager, self.handle = (ctypes.c_void_p() for _ in range(4))
        self.call("aoticache_cache_open", None, ctypes.byref(self.cache))
        hook_options = HookOptions(size=ctypes.sizeof(HookOptions))
        self.call("aoticache_hook_create_" + hook, ctypes.byref(hook_options), ctypes.byref(self.hook))
        context_options = ContextOptions(size=ctypes.sizeof(ContextOptions), cache=self.cache, hook=self.hook, **options)
        self.call("aoticache_context_create", ctypes.byref(context_options), ctypes.byref(self.eager))
        binding_options = BindingOptions(size=ctypes.sizeof(BindingOptions), eager=self.eager)
        self.call("aoticache_binding_create", ctypes.byref(binding_options), ctypes.byref(self.handle))

    def call(self, name, *arguments):
        error = Error()
        if getattr(self.c, name)(*arguments, ctypes.byref(error)) != OK:
            raise Failure(name, error)

    def refuses(self, schema):
        options = OperatorOptions(ctypes.sizeof(OperatorOptions), schema.encode(), b"CPU", 0, -1, None,
                                  ctypes.cast(FALLBACK(lambda *_: 1), ctypes.c_void_p), None)
        try:
            self.call("aoticache_binding_enable", self.handle, ctypes.byref(options), ctypes.byref(ctypes.c_void_p()))
        except Failure as failure:
            return failure.status, str(failure)
        return OK, ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.aoticache_binding_free(self.handle)
        self.c.aoticache_context_free(self.eager)
        self.c.aoticache_hook_free(self.hook)
        self.c.aoticache_cache_close(self.cache)


@contextlib.contextmanager
def raises(kind, text):
    try:
        yield
    except kind as exception:
        assert text in str(exception), exception
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


# ---- cases: each runs in its own process ----


def case_results(directory):
    """Misses and hits give eager's result and strides, including for views and empty tensors."""
    samples = [torch.randn(4), torch.randn(3, 5), torch.randn(3, 5).t(), torch.randn(8, 6)[::2, 1:4], torch.randn(0, 3),
               torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(5, dtype=torch.float64)]
    expected = [torch.abs(x) for x in samples]
    with Binding(directory) as binding:
        op = Operator(binding, ABS)
        for _ in range(3):
            for x, right in zip(samples, expected):
                y = torch.abs(x)
                assert torch.equal(y, right) and y.stride() == right.stride() and y.dtype == right.dtype, (x, y, right)
        counts = op.counts()
        assert counts.hits == 2 * len(samples) and counts.compiles == len(samples), (counts.hits, counts.compiles)
        assert counts.calls == 3 * len(samples) and counts.refused == 0 and op.fallbacks == 0


def case_fallback(directory):
    """Nothing is compiled: PyTorch's kernel answers. It also answers for complex tensors and for numbers that may be
    None."""
    x, z, number = torch.randn(3), torch.tensor([3 + 4j]), torch.tensor(-2.0, dtype=torch.float64)
    expected = torch.abs(x)
    with Binding(directory, miss=NEVER) as binding:
        op = Operator(binding, ABS)
        assert torch.equal(torch.abs(x), expected) and op.fallbacks == 1
        assert torch.abs(z).item() == 5 and torch.abs(z.conj()).item() == 5 and torch.abs(number).item() == 2
        counts = op.counts()
        assert (counts.fallbacks, counts.refused, counts.calls, op.fallbacks) == (1, 3, 4, 4), op.fallbacks


def case_background(directory):
    """A miss never waits; once the kernel is compiled, it answers."""
    x = torch.randn(7)
    expected = torch.abs(x)
    with Binding(directory, miss=BACKGROUND) as binding:
        op = Operator(binding, ABS)
        assert torch.equal(torch.abs(x), expected) and op.fallbacks == 1
        binding.call("aoticache_context_wait", binding.eager, 120000)
        assert torch.equal(torch.abs(x), expected)
        assert op.counts().hits == 1 and op.fallbacks == 1


def case_exceptions(directory):
    """A failing fallback raises a Python exception with its message; all references that it held are released."""
    with Binding(directory, miss=NEVER) as binding:
        op = Operator(binding, SOFTMAX)
        for _ in range(3):
            with raises(RuntimeError, "Dimension out of range"):
                torch._softmax(torch.randn(2, 3), 7, False)
        assert torch.equal(torch._softmax(torch.zeros(2, 2), 1, False), torch.full((2, 2), 0.5)) and op.fallbacks == 4


def case_disable(directory):
    """After disabling, PyTorch's kernel answers again, also for calls that were served; enabling again uses the same
    function and the cache."""
    x = torch.randn(3)
    expected = torch.abs(x)
    before = torch._C._dispatch_dump_table("aten::abs").splitlines()[0]
    with Binding(directory) as binding:
        for turn in range(3):
            op = Operator(binding, ABS)
            assert OURS in [line for line in torch._C._dispatch_dump_table("aten::abs").splitlines()
                            if line.startswith("CPU:")][0]
            assert torch.equal(torch.abs(x), expected)
            assert op.counts().compiles == (turn == 0)
            op.disable()
            assert torch.equal(torch.abs(x), expected)
            assert OURS not in torch._C._dispatch_dump_table("aten::abs")
    assert torch._C._dispatch_dump_table("aten::abs").splitlines()[0] == before


def case_refused(directory):
    """Operators that this binding cannot serve are refused with the reason, and PyTorch continues to answer them."""
    with Binding(directory) as binding:
        for schema, status, word in [
                ("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", UNSUPPORTED, "alpha"),
                ("aten::abs_(Tensor(a!) self) -> Tensor(a!)", UNSUPPORTED, "writes to its arguments"),
                ("aten::t(Tensor(a) self) -> Tensor(a)", UNSUPPORTED, "view"),
                ("aten::equal(Tensor self, Tensor other) -> bool", UNSUPPORTED, "result 0 is bool"),
                ("aten::abs(Tensor self", INVALID, "column")]:
            got, message = binding.refuses(schema)
            assert got == status and word in message, (got, message)
        op = Operator(binding, ABS)
        assert binding.refuses(ABS)[0] == INVALID
        assert torch.equal(torch.add(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))
        op.disable()


def case_autograd(directory):
    """Backward through an enabled operator runs PyTorch's formula, with and without a kernel; no_grad and
    inference_mode work."""
    x = torch.tensor([-2.0, 3.0, -4.0], requires_grad=True)
    with Binding(directory) as binding:
        op, relu = Operator(binding, ABS), Operator(binding, RELU)
        for _ in range(3):
            x.grad = None
            y = torch.abs(x)
            assert y.requires_grad and y.grad_fn.name().startswith("AbsBackward")
            (torch.relu(y) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
            assert x.grad.tolist() == [-1.0, 2.0, -3.0], x.grad
        with torch.no_grad():
            y = torch.abs(x)
            assert not y.requires_grad and y.tolist() == [2, 3, 4]
        with torch.inference_mode():
            y = torch.abs(x)
            assert y.is_inference() and y.tolist() == [2, 3, 4]
        assert torch.func.vmap(torch.abs)(torch.tensor([[-1.0], [2.0]])).tolist() == [[1], [2]]
        assert torch.func.grad(lambda v: torch.abs(v).sum())(torch.tensor([-1.0, 2.0])).tolist() == [-1, 1]
        assert op.counts().compiles >= 1 and op.counts().hits >= 4 and relu.counts().hits >= 2


def case_worker(directory):
    """Kernels of AOTInductor work: softmax within PyTorch's tolerances, and its backward; lists and optional
    arguments."""
    x = torch.randn(4, 6, requires_grad=True)
    right = torch.softmax(x, 1)
    weights = torch.randn(4, 6)
    (gradient,) = torch.autograd.grad((right * weights).sum(), x)
    total = x.detach().sum([0, 1], keepdim=True)
    with Binding(directory, hook="worker") as binding:
        op, sums = Operator(binding, SOFTMAX), Operator(binding, SUM)
        for _ in range(3):
            y = torch.softmax(x, 1)
            torch.testing.assert_close(y, right)
            (ours,) = torch.autograd.grad((y * weights).sum(), x)
            torch.testing.assert_close(ours, gradient)
            torch.testing.assert_close(x.detach().sum([0, 1], keepdim=True), total)
        assert op.counts().compiles == 1 and op.counts().hits == 2 and op.fallbacks == 0
        assert sums.counts().hits >= 2 and sums.fallbacks == 0
        detached = x.detach()
        leaves_nothing(lambda: detached.sum([0, 1], keepdim=True), 3000)


def case_threads(directory):
    """Four threads call while operators are enabled and disabled."""
    x = torch.randn(16)
    expected, wrong, ending = torch.abs(x), [], threading.Event()

    def work():
        while not ending.is_set():
            if not torch.equal(torch.abs(x), expected):
                wrong.append(1)

    with Binding(directory) as binding:
        first = Operator(binding, ABS)  # PyTorch keeps our function, and that keeps its fallback
        first.retire()
        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        served = 0
        for _ in range(100):
            op = Operator(binding, ABS)
            for _ in range(50):
                torch.abs(x)
            served += op.counts().hits
            op.retire()
            before = first.fallbacks
            assert torch.equal(torch.abs(x), expected) and first.fallbacks > before
        ending.set()
        for thread in threads:
            thread.join()
        assert not wrong and served > 0
        Operator(binding, ABS).disable()
        assert OURS not in torch._C._dispatch_dump_table("aten::abs")
        before = first.fallbacks
        assert torch.equal(torch.abs(x), expected) and first.fallbacks == before


def case_fork(directory):
    """A child process keeps using what its parent enabled, enables more operators, and disables them."""
    torch.set_num_threads(1)
    x, y = torch.randn(3), torch.randn(5)
    expected, other = torch.abs(x), torch.abs(y)
    with Binding(directory) as binding:
        op = Operator(binding, ABS)
        assert torch.equal(torch.abs(x), expected)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert torch.equal(torch.abs(x), expected) and torch.equal(torch.abs(y), other)
                relu = Operator(binding, RELU)
                assert torch.equal(torch.relu(expected), expected)
                relu.disable()
                op.disable()
                assert torch.equal(torch.abs(x), expected)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert torch.equal(torch.abs(x), expected) and op.counts().hits == 1


def leaves_nothing(call, times):
    found = bytes_per_call(call, times)
    assert found < 16, f"{found} bytes per call"  # a handle takes 32


def case_memory(directory):
    """Hits, fallbacks and exceptions leak no memory."""
    x = torch.randn(1000)
    with Binding(directory) as binding, Binding(directory, miss=NEVER) as never:
        Operator(binding, ABS)
        fallback = Operator(never, SOFTMAX)
        leaves_nothing(lambda: torch.abs(x), 5000)
        leaves_nothing(lambda: torch._softmax(x, 0, False), 3000)
        leaves_nothing(lambda: failing(lambda: torch._softmax(x, 7, False)), 3000)
        assert fallback.fallbacks == 7000 and x._use_count() == 1, x._use_count()


def failing(call):
    with contextlib.suppress(RuntimeError):
        call()


def case_binding_without_torch(directory):
    """Without PyTorch in the process, the library's error says what is missing."""
    with raises(Failure, "import torch"):
        Binding(directory)


if __name__ == "__main__":
    if sys.argv[1] != "binding_without_torch":
        import torch
        capsule_new = ctypes.pythonapi.PyCapsule_New
        capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    globals()["case_" + sys.argv[1]](sys.argv[2])
