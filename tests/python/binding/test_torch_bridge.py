"""Tests eager/torch/bridge.cpp alone: registrations, values, results, fallbacks, exceptions, with a host in
Python.

Environment: BUILD, the build directory (the compiled bridge is kept there).
"""
import ctypes
import itertools
import os
import threading
import time
import warnings

import pytest
import torch

import bridge_host
from bridge_host import FAILED, FALLBACK, FALLBACK_FIRST, SERVED, status_number
from memory_in_use import bytes_per_call

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
A = torch.ops.aten
#: Appears in PyTorch's dumps. Their lines also name files, and a directory named aoticache must not count.
OURS = ": aoticache :: "
host = None
tokens = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def opened():
    global host
    path = bridge_host.compile_bridge(BUILD)
    if path is None:
        pytest.skip("no C++ compiler")
    host = bridge_host.Host(path)


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Enabled:
    """with Enabled(op): the operator runs through the bridge; records the calls and refusals since then."""

    def __init__(self, op, answer=lambda stack: FALLBACK, key="CPU"):
        self.op, self.answer, self.key = op, answer, key

    def __enter__(self):
        status, message, self.registration = host.enable(self.op, self.key, token=next(tokens))
        check(status == 0, self.op, message)
        host.answer = self.answer
        host.calls.clear()
        host.refused.clear()
        host.registration = self.registration
        return host

    def __exit__(self, *exception):
        host.bridge.disable(self.registration)
        check(not host.failures, host.failures)


def raises(kind, function, *words):
    try:
        function()
    except Exception as failure:
        check(type(failure) is kind, f"{type(failure).__name__} instead of {kind.__name__}:", failure)
        check(all(word in str(failure) for word in words), failure)
        return
    raise AssertionError(f"no {kind.__name__}")


# ---- expected forms of values ----

DTYPES = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
          torch.float32: 6, torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11,
          torch.bfloat16: 15}


def view(tensor):
    return ("tensor", tensor.data_ptr() or None, DTYPES[tensor.dtype], 0, -1, tensor.numel(), tuple(tensor.shape),
            tuple(tensor.stride()), 0, False, 0)


def number(value):
    kind = {bool: "bool", int: "int", float: "double", complex: "complex"}[type(value)]
    return (kind, value)


# ---- registration ----

def test_open_refuses_another_interface():
    status, message = host.open(abi=bridge_host.ABI + 1)
    check(status == status_number("UNSUPPORTED"), status)
    check(str(bridge_host.ABI) in message and str(bridge_host.ABI + 1) in message, message)
    status, message = host.open()
    check(status == 0, message)
    check(host.bridge.torch_version.decode() == torch.__version__.partition("+")[0], host.bridge.torch_version)


def test_enable_says_why_it_refuses():
    def refused(status, words, *arguments, **options):
        got, message, registration = host.enable(*arguments, **options)
        check(got == status_number(status) and not registration.value, status, got, message)
        check("\n" not in message and all(word in message for word in words), message)

    refused("NOT_FOUND", ["aten::no_such", "tensor"], "aten::no_such.tensor")
    refused("INVALID", ["aten::abs(Tensor self) -> Tensor", "aten::abs(Tensor x)"], A.abs.default,
            schema="aten::abs(Tensor x) -> Tensor")
    refused("INVALID", ["Toaster"], A.abs.default, key="Toaster")
    library = torch.library.Library("aoticache_bridge_test", "DEF")
    library.define("cpu_only(Tensor t) -> Tensor")
    library.impl("cpu_only", lambda t: t + 1, "CPU")
    refused("UNSUPPORTED", ["cpu_only", "HPU"], torch.ops.aoticache_bridge_test.cpu_only.default, key="HPU")
    library._destroy()
    refused("UNSUPPORTED", ["source", "Storage"], A.set_.source_Storage)
    refused("UNSUPPORTED", ["result"], A._local_scalar_dense.default)


def test_disabled_operator_is_pytorchs_and_is_enabled_again_in_its_place():
    x = torch.tensor([-1.0, 2.0])
    for _ in range(3):
        with Enabled(A.neg.default):
            check(torch.neg(x).tolist() == [1.0, -2.0] and len(host.calls) == 1, host.calls)
        check(torch.neg(x).tolist() == [1.0, -2.0] and len(host.calls) == 1, "called after it was disabled")
    check(torch._C._dispatch_dump("aten::neg").count(OURS) == 1, torch._C._dispatch_dump("aten::neg"))
    with Enabled(A.neg.default):
        status, message, _ = host.enable(A.neg.default)
        check(status == status_number("INVALID") and "aten::neg" in message, status, message)


def test_a_kernel_of_somebody_else_is_the_fallback_of_the_next_registration():
    x = torch.tensor([-1.0, 2.0])
    with Enabled(A.erf.default):
        torch.erf(x)
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library.impl("erf", lambda self: torch.full_like(self, 7.0), "CPU")
    warns = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)  # later versions do not warn
    check(any("Overriding" in str(warning.message) for warning in caught) == warns, "PyTorch's one warning is spent")
    check(torch.erf(x).tolist() == [7.0, 7.0], "not overridden")
    with Enabled(A.erf.default):
        check(torch.erf(x).tolist() == [7.0, 7.0] and len(host.calls) == 1, host.calls)


def test_registration_is_silent():
    def standard_error(action):
        read, write = os.pipe()
        saved = os.dup(2)
        os.dup2(write, 2)
        try:
            action()
        finally:
            os.dup2(saved, 2)
            os.close(write)
        os.close(saved)
        with os.fdopen(read) as stream:
            return stream.read()

    def enable():
        with Enabled(A.mv.default):
            pass

    check(standard_error(enable) == "", "registration warns")


# ---- values ----

ALL = ("all(Tensor t, Tensor? o, Tensor[] l, Tensor?[] ol, int i, SymInt si, float f, bool b, Scalar s, Scalar c, "
       "str text, Device d, ScalarType dt, Layout la, MemoryFormat m, int[2] il, SymInt[] sil, float[] fl, bool[] bl, "
       "Scalar[] sl, str[] tl, Generator? g, int? n, ScalarType? dn, int[]? iln, Generator? gn) -> Tensor")


def test_boxed_kernel_sees_every_kind_of_value():
    library = torch.library.Library("aoticache_bridge_test", "DEF")
    library.define(ALL)
    library.impl("all", lambda t, *rest: t + 1, "CPU")
    op = torch.ops.aoticache_bridge_test.all.default
    t, u = torch.randn(3, 4).t(), torch.ones(2, dtype=torch.int64)
    arguments = [t, None, [t, u], [None, u], -5, 6, 2.5, True, 3, 1 + 2j, "words", torch.device("cpu"), torch.float16,
                 torch.strided, torch.channels_last, [1, 2], [3, 4, 5], [0.5, -0.5], [True, False], [1, 2.0, True],
                 ["a", "", "ccc"], torch.default_generator, None, torch.int32, None, None]
    expected = [view(t), ("none",), ("tensor list", [view(t), view(u)]), ("tensor list", [None, view(u)]), ("int", -5),
                ("int", 6), ("double", 2.5), ("bool", True), ("int", 3), ("complex", 1 + 2j), ("string", "words"),
                ("device", 0, -1), ("dtype", 5), ("layout", 0), ("memory format", 2), ("int list", [1, 2]),
                ("int list", [3, 4, 5]), ("double list", [0.5, -0.5]), ("bool list", [True, False]),
                ("scalar list", [("int", 1), ("double", 2.0), ("bool", True)]), ("string list", ["a", "", "ccc"]),
                ("generator",), ("none",), ("dtype", 3), ("none",), ("none",)]
    with Enabled(op):
        check(torch.equal(op(*arguments), t + 1), "fallback")
        for name, got, want in zip(op._schema.arguments, host.calls[0][2], expected, strict=True):
            check(got == want, name.name, got, want)
        arguments[2] = [u] * 200  # more than the bridge has slots for
        op(*arguments)
        check(len(host.calls) == 1 and len(host.refused) == 1, host.refused)
        raises(RuntimeError, lambda: op(*arguments[:-1], "no generator"))
    library._destroy()


def test_unboxed_kernels_see_what_boxed_ones_do():
    x, y, w = torch.randn(2, 3), torch.randn(2, 3), torch.ones(3)
    p, q = torch.randn(3, 2), torch.randn(2, 2)
    cases = [
        (A.abs.default, lambda: torch.abs(x), [view(x)]),
        (A.mul.Tensor, lambda: torch.mul(x, y), [view(x), view(y)]),
        (A.where.self, lambda: torch.where(x > 0, x, y), [None, view(x), view(y)]),
        (A.pow.Tensor_Scalar, lambda: torch.pow(x, 2), [view(x), number(2)]),
        (A.leaky_relu.default, lambda: torch.nn.functional.leaky_relu(x, 0.5), [view(x), number(0.5)]),
        (A.eq.Scalar, lambda: torch.eq(x, True), [view(x), number(True)]),
        (A.add.Tensor, lambda: torch.add(x, y, alpha=2.5), [view(x), view(y), number(2.5)]),
        (A.addcmul.default, lambda: torch.addcmul(x, y, y, value=3), [view(x), view(y), view(y), number(3)]),
        (A.addmm.default, lambda: torch.addmm(q, x, p), [view(q), view(x), view(p), number(1), number(1)]),
        (A.clamp.default, lambda: torch.clamp(x, max=0.5), [view(x), ("none",), number(0.5)]),
        (A._softmax.default, lambda: torch.softmax(x, 1), [view(x), number(1), number(False)]),
        (A.gelu.default, lambda: torch.nn.functional.gelu(x, approximate="tanh"), [view(x), ("string", "tanh")]),
        (A.sum.dim_IntList, lambda: torch.sum(x, [0], True), [view(x), ("int list", [0]), number(True), ("none",)]),
        (A.mean.dim, lambda: torch.mean(x, None, dtype=torch.float64),
         [view(x), ("none",), number(False), ("dtype", 7)]),
        (A.amax.default, lambda: torch.amax(x, 1), [view(x), ("int list", [1]), number(False)]),
        (A.native_layer_norm.default, lambda: torch.native_layer_norm(x, [3], w, None, 1e-5),
         [view(x), ("int list", [3]), view(w), ("none",), number(1e-5)]),
    ]
    for op, function, expected in cases:
        before = function()
        with Enabled(op):
            after = function()
            kernels = [line for line in torch._C._dispatch_dump(op.name()).splitlines() if OURS in line]
            # The dump does not show unboxed kernels with SymInts.
            check(len(kernels) == 1 and ("unboxed" in kernels[0] or "SymInt" in str(op._schema)), op, kernels)
            check(len(host.calls) == 1 and not host.refused, op, host.calls, host.refused)
            got = host.calls[0][2]
            check(len(got) == len(expected) and all(w in (None, g) for g, w in zip(got, expected)), op, got, expected)
        for a, b in zip([before] if torch.is_tensor(before) else before, [after] if torch.is_tensor(after) else after):
            check(torch.equal(a, b), op, a, b)


def test_views_of_tensors():
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors = [base, base[1], base[:, 1:, ::2], base.permute(2, 0, 1), base[0, 0, 0], base[:0],
               torch.tensor(3.0).expand(5), torch.empty(0, 3),
               torch.zeros(2, 2, 2, 2).to(memory_format=torch.channels_last)]
    tensors += [torch.ones(2, dtype=dtype) for dtype in DTYPES]
    tensors += [torch.nn.Parameter(torch.ones(2))]
    with Enabled(A.clone.default):
        for tensor in tensors:
            host.calls.clear()
            torch.clone(tensor)
            check(host.calls and host.calls[0][2][0] == view(tensor), tensor, host.calls, view(tensor))
    lazy = torch._lazy_clone(base)
    with Enabled(A.abs.default):
        torch.abs(lazy)
        check(len(host.calls) == 1 and torch._C._is_cow_tensor(lazy), "a lazy clone was copied")


def test_wrapped_numbers_are_marked():
    x = torch.ones(2)
    with Enabled(A.add.Tensor):
        for function, wrapped in ((lambda: x + 1, 2), (lambda: x + x, 0), (lambda: 2.5 + x, 2),
                                  (lambda: x + torch.tensor(1.0), 0)):
            host.calls.clear()
            function()
            check(host.calls[0][1] == wrapped, host.calls)
    with Enabled(A.sub.Tensor):
        torch.rsub(x, 1)
        check(host.calls[0][1] == 1, host.calls)


def test_what_no_value_says_is_pytorchs():
    z, x = torch.tensor([1 + 2j]), torch.tensor([1.0, -2.0])
    refused = [
        (A.relu.default, lambda: torch.relu(torch._efficientzerotensor(2)), 0),
        (A.mul.Tensor, lambda: torch.mul(z.conj(), z), 1),
        (A.view_as_real.default, lambda: torch.view_as_real(z.conj().resolve_conj()), None),
        (A.eq.Scalar, lambda: torch.eq(torch.tensor([1]), 2**63 + 1), None),
    ]
    for op, function, _ in refused:
        before = function()
        with Enabled(op):
            check(torch.equal(function(), before), op)
            check(len(host.calls) + len(host.refused) >= 1 or op is A.relu.default, op)
    with Enabled(A.abs.default):
        check(torch.abs(x.to_sparse()).is_sparse and len(host.calls) == 1, "its values are a tensor of the CPU")
        host.calls.clear()
        meta = torch.abs(torch.ones(3, device="meta"))
        check(meta.is_meta and not host.calls, "a meta tensor reached the bridge of the CPU")


# ---- results ----

def serve(*results):
    """Returns an answer of outputs; each is a handle, None, or a list of them."""
    def answer(stack):
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        for value, result in zip(stack.values[:len(results)], results):
            if isinstance(result, list):
                value.kind, value.count = 19, len(result)
                array = libc.malloc(ctypes.c_size_t(8 * max(len(result), 1)))
                value.outputs = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))
                for i, handle in enumerate(result):
                    value.outputs[i] = handle
            else:
                value.kind, value.output = 18, result
        stack.count = len(results)
        return SERVED
    return answer


def filled(sizes, value):
    handle, data = host.new_tensor(sizes)
    count = torch.Size(sizes).numel()
    ctypes.cast(data, ctypes.POINTER(ctypes.c_float * count)).contents[:] = [value] * count
    return handle


def test_results_are_handed_over():
    x = torch.ones(2, 2)
    with Enabled(A.abs.default, lambda stack: serve(filled([3], 9.0))(stack)):
        check(torch.abs(x).tolist() == [9.0] * 3, "unboxed")
        check(A.abs.default(x).tolist() == [9.0] * 3, "unboxed, called boxed")
    three = lambda stack: serve(*(filled([2], float(i)) for i in range(3)))(stack)
    with Enabled(A.native_layer_norm.default, three):
        check([t.tolist() for t in torch.native_layer_norm(x, [2], None, None, 1e-5)] == [[0, 0], [1, 1], [2, 2]])
    two = lambda stack: serve(filled([1], 4.0), filled([], 5.0))(stack)
    with Enabled(A.topk.default, two):
        check([t.tolist() for t in torch.topk(x, 1)] == [[4.0], 5.0], "boxed")
    with Enabled(A.cumsum.default, lambda stack: serve(None)(stack)):
        check(A.cumsum.default(x, 0) is None, "an undefined tensor")


def test_lists_of_results():
    library = torch.library.Library("aoticache_bridge_test", "DEF")
    library.define("several(Tensor t, int n) -> (Tensor[], Tensor)")
    library.impl("several", lambda t, n: ([t] * n, t), "CPU")
    op = torch.ops.aoticache_bridge_test.several.default
    t = torch.ones(1)
    with Enabled(op, lambda stack: serve([filled([1], 2.0), filled([2], 3.0)], filled([1], 4.0))(stack)):
        check([[r.tolist() for r in op(t, 5)[0]], op(t, 5)[1].tolist()] == [[[2.0], [3.0, 3.0]], [4.0]])
    with Enabled(op, lambda stack: serve([], filled([1], 4.0))(stack)):
        check(op(t, 5)[0] == [], "an empty list")
    with Enabled(op):
        check(len(op(t, 5)[0]) == 5, "fallback")
    library._destroy()


def test_results_are_freed():
    def call(answer, function):
        with Enabled(A.topk.default, answer):
            found = bytes_per_call(function, 2000)
            check(found < 16, "bytes per call that stay:", found)  # a tensor's handle takes 32

    x = torch.ones(4)
    big = lambda: filled([1 << 10], 1.0)
    call(lambda stack: serve(big(), big())(stack), lambda: torch.topk(x, 1))
    wrong = lambda stack: serve(big(), big(), big())(stack)
    call(wrong, lambda: raises(RuntimeError, lambda: torch.topk(x, 1), "3 results", "not 2"))


# ---- calls that bypass the core ----

def call_times(call, count):
    """Returns how often the core was asked."""
    before = len(host.calls)
    for _ in range(count):
        check(torch.equal(call(), expected_of[call]))
    return len(host.calls) - before


expected_of = {}


def test_calls_that_are_passed_on_do_not_ask():
    x = torch.linspace(-3, 3, 12).reshape(3, 4)
    for op, call in ((A.neg.default, lambda: torch.neg(x)), (A.clamp.default, lambda: torch.clamp(x, -1, 1)),
                     (A.cat.default, lambda: torch.cat([x, x]))):
        expected_of[call] = call()
        with Enabled(op) as enabled:
            registration = enabled.registration
            host.passed.clear()
            check(call_times(call, 3) == 3)
            host.bridge.set_call_mode(registration, bridge_host.PASS, 5)
            check(call_times(call, 2) == 0 and host.bridge.bypassed_now(registration) == 2 and not host.passed)
            check(call_times(call, 3) == 0 and host.passed == [5], host.passed)
            check(host.bridge.bypassed_now(registration) == 0)
            check(call_times(call, 2) == 2)
            host.bridge.set_call_mode(registration, bridge_host.PASS, 100)
            check(call_times(call, 7) == 0)
        check(host.passed == [5, 7], host.passed)  # the end reports calls that were not reported yet
        check(call_times(call, 2) == 0)


def test_turns_are_timed_from_their_beginning_to_their_end():
    x = torch.linspace(-3, 3, 12).reshape(3, 4)
    for op, call in ((A.neg.default, lambda: torch.neg(x)), (A.cat.default, lambda: torch.cat([x, x]))):
        expected = expected_of[call] = call()
        with Enabled(op) as enabled:
            registration = enabled.registration
            host.turns.clear(), host.ends.clear()
            host.bridge.set_call_mode(registration, bridge_host.TIME, 4)
            host.next_turn = bridge_host.NO_TURN
            check(call_times(call, 1) == 1 and len(host.turns) == 1 and not host.ends)
            host.next_turn = bridge_host.FALLBACKS_TURN
            check(call_times(call, 1) == 0 and host.ends == [(1001, 10)], host.ends)
            host.next_turn = bridge_host.KERNELS_TURN
            check(call_times(call, 1) == 1 and host.ends[-1] == (1002, 0), host.ends)  # it was not served
            expected_of[call] = torch.full((2,), 9.0)
            host.answer = lambda stack: serve(filled([2], 9.0))(stack)
            check(call_times(call, 1) == 1 and host.ends[-1] == (1003, 10), host.ends)
            expected_of[call] = expected
            host.answer = lambda stack: FALLBACK
            check(call_times(call, 1) == 1 and len(host.turns) == 4)  # as many as were requested
            host.bridge.set_call_mode(registration, bridge_host.TIME, 100)
            host.bridge.set_call_mode(registration, bridge_host.SERVE, 0)
            check(call_times(call, 1) == 1 and len(host.turns) == 4)
        host.next_turn = bridge_host.NO_TURN


def test_turn_that_throws_ends_without_a_time():
    x = torch.linspace(-3, 3, 12).reshape(3, 4)
    with Enabled(A.neg.default, lambda stack: FAILED) as enabled:
        registration = enabled.registration
        host.ends.clear()
        host.bridge.set_call_mode(registration, bridge_host.TIME, 10)
        host.next_turn = bridge_host.KERNELS_TURN
        raises(RuntimeError, lambda: torch.neg(x), "the kernel said no")
        host.next_turn = bridge_host.FALLBACKS_TURN
        raises(RuntimeError, lambda: torch.neg(torch.ones(2, dtype=torch.bool)))
        check([ns for _, ns in host.ends] == [0, 0], host.ends)
        host.next_turn = bridge_host.NO_TURN


def test_number_of_threads_is_pytorchs():
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        check(host.bridge.num_threads() == threads)
    torch.set_num_threads(before)


# ---- exceptions, and dispatch keys above the kernel ----

def test_exceptions_keep_their_types_and_words():
    x = torch.ones(2, 2)
    with Enabled(A._softmax.default):
        raises(IndexError, lambda: torch.softmax(x, 5), "Dimension out of range")
        check(len(host.calls) == 1, host.calls)
    with Enabled(A.mm.default):
        raises(RuntimeError, lambda: torch.mm(x, torch.ones(3, 3)), "2x2 and 3x3")
    with Enabled(A.cat.default):
        raises(RuntimeError, lambda: torch.cat([x, torch.ones(3, 3)]), "Sizes of tensors")
    for op, function in ((A.abs.default, lambda: torch.abs(x)), (A.cat.default, lambda: torch.cat([x, x]))):
        with Enabled(op, lambda stack: FAILED):
            raises(RuntimeError, function, host.message)
        check(torch.is_tensor(function()), "after a failure")


def test_pytorchs_kernel_comes_before_a_compile():
    x = torch.tensor([-1.0, 2.0])
    cases = [(A.abs.default, lambda: torch.abs(x), [1, 2]), (A.cumsum.default, lambda: torch.cumsum(x, 0), [-1, 1])]
    for op, function, expected in cases:  # unboxed and boxed
        with Enabled(op):
            host.attempts = FALLBACK_FIRST
            check(function().tolist() == expected, op, "PyTorch's answer")
            check(len(host.calls) == 1 and not host.refused, op, host.calls, host.refused)
            host.answer = lambda stack: serve(filled([3], 9.0))(stack)
            check(function().tolist() == [9.0] * 3, op, "the compiled kernel's answer")
            host.answer = lambda stack: FAILED
            raises(RuntimeError, function, host.message)
    with Enabled(A.mm.default):
        raises(RuntimeError, lambda: torch.mm(torch.ones(2, 2), torch.ones(3, 3)), "2x2 and 3x3")
        check(not host.calls and len(host.refused) == 1, "PyTorch refuses, nothing is asked for", host.calls)
    host.attempts = None


def test_what_was_written_is_not_written_again():
    out, lists = torch.zeros(5), [torch.zeros(2), torch.zeros(3)]
    x = torch.tensor([1.0, 2.0])
    cases = [(A.mul_.Tensor, lambda: x.mul_(3), x, [3, 6]),  # unboxed, boxed, resized, lists
             (A.index_fill_.int_Scalar, lambda: x.index_fill_(0, torch.tensor([1]), 7.0), x, [3, 7]),
             (A.neg.out, lambda: torch.neg(x, out=out), out, [-3, -7]),
             (A._foreach_add_.Scalar, lambda: torch._foreach_add_(lists, 2), lists[1], [2, 2, 2])]
    for op, function, written, expected in cases:
        with Enabled(op), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that out was resized
            host.attempts, host.prepared[:] = FALLBACK_FIRST, []
            version = written._version
            result = function()
            check(result is written or op is A._foreach_add_.Scalar, op, "the argument is the result")
            check(written.tolist() == expected, op, written, "PyTorch's answer, once")
            check(written._version == version + 1, op, written._version, version)
            check(host.prepared == [len(op._schema.arguments)] and not host.calls, op, host.prepared, host.calls)
            host.attempts = None
            host.answer = serve()
            version = written._version
            check(function() is result or op is A._foreach_add_.Scalar, op, "a kernel that gives nothing new")
            check(written.tolist() == expected, op, written, "which writes nothing here")
            check(written._version == version + 1, op, written._version, version)
    host.attempts = None


def test_gradients_transforms_and_modes_continue():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    served = lambda stack: serve(filled([2], 3.0))(stack)
    with Enabled(A.abs.default, served):
        torch.abs(x).sum().backward()
        check(x.grad.tolist() == [-1.0, 1.0] and len(host.calls) == 1, x.grad, host.calls)
        check(host.calls[0][2][0][-2] is False, "requires_grad is seen below autograd")
        with torch.no_grad():
            check(not torch.abs(x).requires_grad)
        with torch.inference_mode():
            check(torch.abs(x).is_inference())
    with Enabled(A.abs.default):
        batch = torch.randn(3, 4)
        check(torch.equal(torch.vmap(torch.abs)(batch), batch.abs()), "vmap")
        check(torch.equal(torch.func.grad(lambda t: torch.abs(t).sum())(batch), torch.sign(batch)), "grad")
        from torch._subclasses.fake_tensor import FakeTensorMode
        host.calls.clear()
        with FakeTensorMode():
            fake = torch.abs(torch.ones(2))
        check(tuple(fake.shape) == (2,) and not host.calls, "a fake tensor reached the bridge")


def test_other_threads_may_call_meanwhile():
    x, stop, wrong = torch.tensor([-1.0, 2.0]), threading.Event(), []

    def work(function, expected):
        while not stop.is_set():
            if function(x).tolist() != expected:
                wrong.append(function)

    operators = [(A.abs.default, torch.abs, [1.0, 2.0]), (A.abs.default, A.abs.default, [1.0, 2.0]),
                 (A.cumsum.default, lambda t: torch.cumsum(t, 0), [-1.0, 1.0])]
    for op, _, _ in operators:
        with Enabled(op):
            pass
    threads = [threading.Thread(target=work, args=entry[1:]) for entry in operators]
    for thread in threads:
        thread.start()
    end = time.monotonic() + float(os.environ.get("BRIDGE_SECONDS", "2"))
    while time.monotonic() < end:
        for op in (A.abs.default, A.cumsum.default):
            with Enabled(op):
                pass
    stop.set()
    for thread in threads:
        thread.join()
    check(not wrong, wrong)
