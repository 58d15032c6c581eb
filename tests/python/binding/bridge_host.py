"""A host of the bridge (eager/torch/bridge.h) in Python. It replaces the core, so that the bridge can be tested
alone.

Compiles eager/torch/bridge.cpp against the PyTorch that runs the test, once for each content, below the build
directory. Host records the arguments of each call as Python values and answers as the test configures it.
"""
import ctypes
import hashlib
import os
import shutil
import subprocess
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32
from ctypes import c_uint64, c_void_p

import torch

from c_types import Device, Error, View

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SOURCES = ["eager/torch/bridge.cpp", "eager/torch/bridge.h", "eager/value.h", "base/base.h", "base/tensor_view.h"]
ABI = 5
SERVED, FALLBACK, FAILED, FALLBACK_FIRST = range(4)
STATUS = {}


class Value(ctypes.Structure):
    pass


class Content(ctypes.Union):
    _fields_ = [("tensor", POINTER(View)), ("tensors", POINTER(POINTER(View))), ("int_value", c_int64),
                ("double_value", c_double), ("bool_value", c_bool), ("complex_value", c_double * 2),
                ("string", c_char_p), ("device", Device), ("ints", POINTER(c_int64)), ("doubles", POINTER(c_double)),
                ("bools", POINTER(c_bool)), ("scalars", POINTER(Value)), ("strings", POINTER(c_char_p)),
                ("output", c_void_p), ("outputs", POINTER(c_void_p)), ("object", c_void_p)]


Value._anonymous_ = ("content",)
Value._fields_ = [("kind", c_int32), ("count", c_uint32), ("content", Content)]


class Stack(ctypes.Structure):
    _fields_ = [("values", POINTER(Value)), ("count", c_size_t), ("capacity", c_size_t)]


CALL = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64, POINTER(Stack), POINTER(Error))
REFUSE = CFUNCTYPE(None, c_void_p)
ENABLE = CFUNCTYPE(c_int, c_char_p, c_char_p, c_char_p, c_char_p, c_void_p, POINTER(c_void_p), c_char_p, c_size_t)
DISABLE = CFUNCTYPE(None, c_void_p)
PREPARE = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(Stack))


CLOCK = CFUNCTYPE(c_uint64)
TURN = CFUNCTYPE(c_int, c_void_p, c_uint64, POINTER(Stack), POINTER(c_uint64))
END = CFUNCTYPE(None, c_void_p, POINTER(c_uint64), c_uint64)
PASSED = CFUNCTYPE(None, c_void_p, c_uint64)
SET_ASIDE = CFUNCTYPE(None, c_void_p, c_int, c_uint64)
BYPASSED_NOW = CFUNCTYPE(c_uint64, c_void_p)
NUM_THREADS = CFUNCTYPE(c_uint32)
SERVE, TIME, PASS = range(3)
NO_TURN, KERNELS_TURN, FALLBACKS_TURN = range(3)


class HostStruct(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("abi", c_uint32), ("call", CALL), ("refuse", REFUSE), ("attempt", CALL),
                ("clock_ns", CLOCK), ("turn", TURN), ("end", END), ("passed", PASSED), ("prepare", PREPARE)]


class BridgeStruct(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("abi", c_uint32), ("torch_version", c_char_p), ("enable", ENABLE),
                ("disable", DISABLE), ("set_call_mode", SET_ASIDE), ("bypassed_now", BYPASSED_NOW),
                ("num_threads", NUM_THREADS), ("context", c_void_p), ("is_deterministic", c_void_p),
                ("default_dtype", c_void_p), ("get_data_ptr", c_void_p), ("empty_strided", c_void_p)]


def status_number(name):
    """Returns the number that base.h gives to a status such as "INVALID"."""
    if not STATUS:
        text = open(os.path.join(ROOT, "base/base.h"), encoding="utf-8").read()
        listed = text[text.index("#define AOTICACHE_STATUS_LIST(X)"):]
        for line in listed[:listed.index("\n\n")].splitlines()[1:]:
            words = line.strip().removeprefix("X(").split(",")
            STATUS[words[0].strip()] = int(words[1])
    return STATUS[name]


def compile_bridge(build, flags=()):
    """Returns the path of the compiled bridge, or None without a C++ compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return None
    digest = hashlib.sha256(torch.__version__.encode() + " ".join(flags).encode())
    for source in SOURCES:
        digest.update(open(os.path.join(ROOT, source), "rb").read())
    directory = os.path.join(build, "tests/bridge")
    path = os.path.join(directory, f"bridge-{digest.hexdigest()[:16]}.so")
    if os.path.exists(path):
        return path
    os.makedirs(directory, exist_ok=True)
    home = os.path.dirname(torch.__file__)
    subprocess.run([compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
                    "-Werror", *flags, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
                    f"-I{ROOT}", "-isystem", f"{home}/include", "-o", f"{path}.{os.getpid()}",
                    os.path.join(ROOT, SOURCES[0]), f"-L{home}/lib", "-ltorch_cpu", "-lc10", "-Wl,-z,nodelete"],
                   check=True)
    os.rename(f"{path}.{os.getpid()}", path)
    return path


def read_view(view):
    """Returns a tensor as its view describes it."""
    return ("tensor", view.data, view.dtype, view.device.type, view.device.index, view.numel,
            tuple(view.sizes[:view.ndim]), tuple(view.strides[:view.ndim]), view.layout, view.requires_grad,
            view.dispatch_key_set)


def read_value(value):
    """Returns a value as (kind, content), with the kinds named as in value.h."""
    one = {3: "int", 9: "dtype", 10: "layout", 11: "memory format"}
    lists = {12: ("ints", "int list"), 13: ("doubles", "double list"), 14: ("bools", "bool list")}
    kind, count = value.kind, value.count
    if kind == 0:
        return ("none",)
    if kind == 1:
        return read_view(value.tensor.contents)
    if kind == 2:
        return ("tensor list", [read_view(p.contents) if p else None for p in value.tensors[:count]])
    if kind in one:
        return (one[kind], value.int_value)
    if kind in lists:
        return (lists[kind][1], getattr(value, lists[kind][0])[:count])
    if kind == 4:
        return ("double", value.double_value)
    if kind == 5:
        return ("bool", value.bool_value)
    if kind == 6:
        return ("complex", complex(*value.complex_value))
    if kind == 7:
        return ("string", value.string.decode())
    if kind == 8:
        return ("device", value.device.type, value.device.index)
    if kind == 15:
        return ("scalar list", [read_value(scalar) for scalar in value.scalars[:count]])
    if kind == 16:
        return ("string list", [text.decode() for text in value.strings[:count]])
    return ("generator" if kind == 17 else kind,)


class Host:
    """The host, and the bridge that it opened. answer: what a call does with its arguments; by default nothing.
    attempts: what an attempt answers; None: the same as a call."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.torch = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib/libtorch_cpu.so"))
        self.calls, self.refused, self.failures = [], [], []
        self.answer, self.attempts = lambda stack: FALLBACK, None
        self.message = "the kernel said no"
        self.turns, self.ends, self.passed, self.next_turn = [], [], [], NO_TURN
        self.now = 0  # each reading of the clock is 10 more than the previous one
        self.struct = HostStruct(ctypes.sizeof(HostStruct), ABI, CALL(self.call), REFUSE(self.refused.append),
                                 CALL(self.attempt), CLOCK(self.read_clock), TURN(self.take_turn),
                                 END(lambda op, ticket, ns: self.ends.append((ticket[0], ns))),
                                 PASSED(lambda op, calls: self.passed.append(calls)),
                                 PREPARE(lambda op, wrapped, stack: self.prepared.append(stack.contents.count)))
        self.prepared = []  # the number of arguments of each such call
        self.bridge = BridgeStruct(ctypes.sizeof(BridgeStruct))

    def read_clock(self):
        self.now += 10
        return self.now

    def take_turn(self, op, wrapped, stack, ticket):
        ticket[0] = 1000 + len(self.turns)
        self.turns.append(stack[0].count)
        return self.next_turn

    def open(self, abi=ABI):
        message = ctypes.create_string_buffer(1024)
        self.struct.abi = abi
        status = self.library.aoticache_bridge_open(ctypes.byref(self.struct), ctypes.byref(self.bridge), message,
                                                    c_size_t(len(message)))
        return status, message.value.decode()

    def enable(self, op, key="CPU", schema=None, token=1):
        """Returns (status, message, registration). op: an OpOverload, or a name and its overload joined by a dot."""
        registration, message = c_void_p(), ctypes.create_string_buffer(1024)
        if isinstance(op, str):
            name, _, overload = op.partition(".")
        else:
            name, overload, schema = op._schema.name, op._schema.overload_name, schema or str(op._schema)
        status = self.bridge.enable(name.encode(), overload.encode(), (schema or "").encode(), key.encode(), token,
                                    ctypes.byref(registration), message, len(message))
        return status, message.value.decode(), registration

    def attempt(self, *arguments):
        return self.call(*arguments) if self.attempts is None else self.attempts

    def call(self, op, key_set, wrapped, stack, error):
        try:
            values = stack.contents
            self.calls.append((op, wrapped, [read_value(value) for value in values.values[:values.count]]))
            error.contents.message = self.message.encode()
            return self.answer(values)
        except Exception as failure:  # no exception may leave a callback
            self.failures.append(failure)
            return FALLBACK

    def new_tensor(self, sizes, dtype=6):
        """Returns (handle, data address) of a new contiguous tensor; the caller frees the handle."""
        strides = [1] * len(sizes)
        for i in range(len(sizes) - 2, -1, -1):
            strides[i] = strides[i + 1] * sizes[i + 1]
        handle, data, shape = c_void_p(), c_void_p(), c_int64 * max(len(sizes), 1)
        assert self.torch.aoti_torch_empty_strided(c_int64(len(sizes)), shape(*sizes), shape(*strides), c_int32(dtype),
                                                   c_int32(0), c_int32(0), ctypes.byref(handle)) == 0
        assert self.torch.aoti_torch_get_data_ptr(handle, ctypes.byref(data)) == 0
        return handle.value, data.value
