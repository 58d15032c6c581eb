"""Tests aoticache.runtime: packages, stored models and operators in a Python that has not imported PyTorch. They take arrays of
NumPy, of the standard library and of any library that implements DLPack, and give PyTorch's results. Arguments that are not
arrays, or not ones that the model takes, are refused with a message.

usage: runtime_plays.py PLAY DIRECTORY       runs a case of test_runtime.py, in a process that has not imported PyTorch
"""
import contextlib
import json
import os
import struct
import subprocess
import sys
import threading
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
sys.path[:0] = [os.path.join(TOP, "eager", "torch"), os.path.join(TOP, "tests", "python", "helpers")]
TOOL = os.path.join(BUILD, "bin", "aoticache")
CACHE = os.path.join(BUILD, "torch-package-cache")  # shared by all tests of the Python package


def check(name, holds, detail=""):
    assert holds, f"{name}: {detail}"


@contextlib.contextmanager
def refused(name, kind, *words):
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{name}: {missing} not in: {error}"
    else:
        raise AssertionError(f"{name}: nothing was raised")


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


# ---- the models, which the test's process makes with PyTorch ----


def linear_module(torch):
    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x):
            return torch.relu(self.layer(x))

    return Linear()


def make_models(torch, directory, names):
    """Makes packages with these names. PyTorch builds "linear" and "nested"; our build makes the others, in a fifth of the
    time."""
    import own_build

    class Nested(torch.nn.Module):
        def forward(self, x, pair, *, named):
            total = x + pair[0] * named["b"]
            return {"total": total, "rest": [total.sum(), (named["a"] - pair[1],)], "none": None}

    class Kinds(torch.nn.Module):
        def forward(self, double, half, brain, long, byte, truth, number, empty):
            return (double * 2, half + 1, brain + 1, long * 3, byte + 1, ~truth, number * number, empty + 1, brain.float())

    class Aliases(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("constant", torch.arange(5.0))

        def forward(self, x):
            return x, x[1:], x * 2, self.constant

    class Writes(torch.nn.Module):
        def forward(self, x):
            x.add_(1)
            return ()

    class Several(torch.nn.Module):
        def forward(self, x, y):
            return x.t() + y, x.sum(dim=0)

    class Slow(torch.nn.Module):
        def forward(self, x):
            for _ in range(60):
                x = torch.sin(x * 1.5)
            return x

    brain = torch.arange(6, dtype=torch.bfloat16)
    kinds = (torch.ones(2, 3, dtype=torch.float64), torch.arange(4, dtype=torch.float16), brain, torch.arange(5),
             torch.arange(7, dtype=torch.uint8), torch.tensor([True, False]), torch.tensor(3.0), torch.ones(0, 2))
    long = torch.export.Dim("n", min=2, max=512)
    cases = {"linear": (linear_module(torch), (torch.ones(2, 4),), None, ({0: long},)),
             "nested": (Nested(), (torch.ones(3), [torch.ones(3), torch.ones(2)]),
                        {"named": {"a": torch.ones(2), "b": torch.ones(3)}}, None),
             "kinds": (Kinds(), kinds, None, None), "aliases": (Aliases(), (torch.arange(4.0),), None, None),
             "writes": (Writes(), (torch.ones(3),), None, None),
             "several": (Several(), (torch.ones(2, 3), torch.ones(3, 2)), None, None),
             "slow": (Slow(), (torch.ones(1 << 16),), None, None)}
    own = own_build.make_builder(torch).active
    for name in names:
        module, args, kwargs, dynamic = cases[name]
        program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic)
        with contextlib.nullcontext() if name in ("linear", "nested") else own():  # ours makes no None output
            torch._inductor.aoti_compile_and_package(program, package_path=os.path.join(directory, name + ".pt2"))


def make_others(torch, directory):
    """Makes a stored model, operators, and the results of PyTorch's modules; arrays are written as .npy."""
    import aoticache
    import numpy

    x = (torch.arange(12.0).reshape(3, 4) - 5) / 4
    linear = linear_module(torch)
    numpy.save(os.path.join(directory, "x.npy"), x.numpy())
    numpy.save(os.path.join(directory, "linear.npy"), linear(x).detach().numpy())
    cache = os.path.join(directory, "cache")
    aoticache.compile(linear, (x,), id="line", cache_dir=cache)
    tuned = {"layer.weight": linear.layer.weight.detach() * 2, "layer.bias": linear.layer.bias.detach() - 1}
    write_safetensors(os.path.join(directory, "tuned.safetensors"), tuned)
    expected = torch.relu(x @ tuned["layer.weight"].t() + tuned["layer.bias"])
    numpy.save(os.path.join(directory, "tuned.npy"), expected.numpy())
    half = torch.relu(x @ tuned["layer.weight"].t() + linear.layer.bias.detach())  # the package has its short bias in the code
    numpy.save(os.path.join(directory, "half-tuned.npy"), half.numpy())
    torch.save(half, os.path.join(directory, "half-tuned.pt"))
    aoticache.enable("aten::sinh", mode="wait", dynamic="always", cache_dir=CACHE, judge=False)  # the bridge is cached
    torch.sinh(torch.ones(3, 5))
    aoticache.disable()
    torch.save(x, os.path.join(directory, "x.pt"))


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        bits = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


# ---- the cases in processes without PyTorch ----


def load(name, directory, **more):
    import aoticache.runtime

    return aoticache.runtime.load(os.path.join(directory, name + ".pt2"), cache_dir=os.path.join(directory, "cache"), **more)


def play_import(directory):
    """Measures in a fresh process what importing costs, and checks what it imports."""
    before, begin = resident(), time.process_time()  # process time, which other work on the machine does not change
    import aoticache.runtime  # noqa: F401
    took, grown = time.process_time() - begin, resident() - before
    loaded = {"torch", "numpy", "ctypes", "aoticache._api"} & set(sys.modules)
    check(f"the import takes {took * 1e3:.1f} ms and {grown / 1e6:.1f} MB", took < 0.05 and grown < 15e6)
    check("the import brings neither PyTorch nor NumPy nor the rest of the package", not loaded, str(loaded))


def play_plain(directory):
    """Neither NumPy nor PyTorch can be imported."""
    sys.modules["numpy"] = sys.modules["torch"] = None
    import array

    import aoticache.runtime as runtime

    model = load("linear", directory)
    x = memoryview(array.array("f", [1.0] * 8)).cast("B").cast("f", (2, 4))
    y = model(x)
    check("a memoryview goes in, a Tensor comes out", type(y) is runtime.Tensor and y.shape == (2, 3)
          and y.strides == (12, 4) and y.dtype == "float32" and y.nbytes == 24 and len(y) == 2, repr(y))
    check("it is the shim's", runtime.provider()[0] == "shim", str(runtime.provider()))
    view = memoryview(y)
    check("a Tensor has the buffer protocol", view.shape == (2, 3) and view.tolist() == y.tolist() and not view.readonly)
    check("and gives its bytes", struct.unpack("6f", bytes(y)) == tuple(sum(y.tolist(), [])))
    check("a Tensor goes in", load("several", directory)(runtime.tensor(memoryview(bytes(24)).cast("f", (2, 3))),
                                                   memoryview(bytes(24)).cast("f", (3, 2)))[0].tolist() == [[0.0] * 2] * 3)
    with refused("of no element, or several, there is no item", ValueError, "6"):
        y.item()
    with refused("NumPy is not there", ImportError, "numpy"):
        y.numpy()
    with refused("the rest of the package says that PyTorch is missing", ImportError, "PyTorch cannot be imported"):
        import aoticache
        aoticache.load("line")
    with refused("what is no array", TypeError, "input 0", "float", "__dlpack__"):
        model(1.0)
    with refused("a format that no dtype has", TypeError, "input 0", "'c'"):
        model(memoryview(b"12345678").cast("c"))


def play_numpy(directory):
    import numpy

    import aoticache.runtime as runtime

    x, expected = (numpy.load(os.path.join(directory, name + ".npy")) for name in ("x", "linear"))
    model = load("linear", directory)
    check("arrays of NumPy's go in and come out, with PyTorch's results",
          type(model(x)) is numpy.ndarray and numpy.allclose(model(x), expected, rtol=1e-6, atol=1e-7))
    check("Tensors come out where Tensors go in", type(model(runtime.tensor(x))) is runtime.Tensor)
    check("from one call to the next the shape is free", model(numpy.zeros((77, 4), "f")).shape == (77, 3))
    kept = [model(x) for _ in range(20)]
    del model
    check("results live longer than their model", all(numpy.allclose(one, expected, atol=1e-6) for one in kept))
    check_refusals(numpy, runtime, load("linear", directory), load("several", directory), x)
    check_layouts(numpy, load("linear", directory), x, expected)
    check_nested(numpy, load("nested", directory))
    check_kinds(numpy, runtime, load("kinds", directory))
    check_stored(numpy, runtime, directory, x, expected)
    check_operators(numpy, runtime, os.path.join(directory, "cache"), x)


def check_refusals(numpy, runtime, model, several, x):
    error = runtime.AoticacheError
    with refused("another dtype", error, "argument 0", "dtype is float64, and must be float32"):
        model(x.astype(float))
    with refused("another size", error, "argument 0", "size of dimension 1 is 5, and must be 4"):
        model(numpy.zeros((3, 5), "f"))
    with refused("a size beyond its range", error, "512", "513"):
        model(numpy.zeros((513, 4), "f"))
    with refused("other strides", error, "argument 0", "stride of dimension"):
        several(numpy.zeros((3, 2), "f").T, numpy.zeros((3, 2), "f"))
    with refused("too few arrays", error, "takes 2 inputs", "not 1"):
        several(x)
    with refused("too many arrays", error, "takes 1 inputs", "not 2"):
        model(x, x)
    with refused("an argument that it does not have", TypeError, "takes 1 arguments", "scale="):
        model(x, scale=1)
    with refused("big-endian", ValueError, "big-endian", ">f"):
        model(x.astype(">f4"))
    with refused("negative strides", ValueError, "negative stride", "dimension 1"):
        model(x[:, ::-1])
    with refused("a stride within an element", ValueError, "6 bytes"):
        model(numpy.zeros(3, numpy.dtype([("a", "f4"), ("b", "i2")]))["a"])
    with refused("objects", TypeError, "'O'"):
        model(numpy.array([None]))
    with refused("a text instead of an array", TypeError, "str has neither"):
        model("abc")
    with refused("a package that does not exist", error, "no.pt2"):
        runtime.load("no.pt2")
    with refused("no runner", ValueError, "num_runners"):
        runtime.load("no.pt2", num_runners=0)
    check("a model goes on after refusals", model(x).shape == (3, 3))


def check_layouts(numpy, model, x, expected):
    close = lambda y: numpy.allclose(y, expected, atol=1e-6)
    wide = numpy.zeros((3, 9), "f")
    wide[:, 2:6] = x
    with refused("a part of a larger array has other strides", RuntimeError, "stride"):
        model(wide[:, 2:6])
    check("a copy of it runs", close(model(numpy.ascontiguousarray(wide[:, 2:6]))))
    check("strides of dimensions of one element may be any",
          model(numpy.lib.stride_tricks.as_strided(x[:2].copy(), (2, 4), (16, 4))).shape == (2, 3))
    locked = x.copy()
    locked.flags.writeable = False
    check("a read-only array", close(model(locked)))
    check("bytes", close(model(memoryview(x.tobytes()).cast("f", (3, 4)))))
    raw = numpy.frombuffer(b"\0" + x.tobytes() + b"\0\0\0", numpy.uint8)[1:49]
    odd = raw.view("f").reshape(3, 4)
    check("memory that is not aligned", odd.ctypes.data % 4 != 0 and close(model(odd)))
    check("an array that speaks DLPack alone", close(numpy.asarray(model(Lender(x)))))
    check("and one that speaks the older DLPack", close(numpy.asarray(model(Lender(x, old=True)))))


class Lender:
    """Has __dlpack__ but no buffer protocol."""

    def __init__(self, array, old=False):
        self.array = array
        if old:
            self.__class__ = OldLender

    def __dlpack__(self, **wishes):
        return self.array.__dlpack__(**wishes)


class OldLender(Lender):
    def __dlpack__(self):
        return self.array.__dlpack__()


def check_nested(numpy, model):
    x, y, a, b = (numpy.arange(n, dtype="f") + k for n, k in ((3, 0), (3, 1), (2, 2), (3, 3)))
    got = model(x, [y, a], named={"b": b, "a": a * 4})
    total = x + y * b
    check("arguments and results are made up as the module's were",
          list(got) == ["total", "rest", "none"] and got["none"] is None and numpy.array_equal(got["total"], total)
          and numpy.array_equal(got["rest"][0], total.sum()) and numpy.array_equal(got["rest"][1][0], a * 4 - a), str(got))
    flat = model.run([x, y, a, a * 4, b])
    check("a flat list gives one", [one for one in flat if one is not None][0].tolist() == total.tolist(), str(flat))
    with refused("a list of another length", TypeError, "argument 1", "2 in a list, not 1"):
        model(x, [y], named={"a": a, "b": b})
    with refused("a dict without a key", TypeError, "argument named", "['a', 'b']"):
        model(x, [y, a], named={"a": a})
    with refused("a missing argument", TypeError, "named="):
        model(x, [y, a])


def check_kinds(numpy, runtime, model):
    brain = runtime.tensor(numpy.array([0x3F80, 0x4000, 0, 0xBF80, 0x7F80, 0x4040], numpy.uint16), "bfloat16")
    inputs = (numpy.arange(6.0).reshape(2, 3), numpy.arange(4, dtype=numpy.float16), brain, numpy.arange(5),
              numpy.array([0, 1, 2, 253, 254, 255, 7], numpy.uint8), numpy.array([True, False]), numpy.float32(5),
              numpy.zeros((0, 2), "f"))
    double, half, brains, long, byte, truth, number, empty, wide = model(*inputs)
    check("float64, float16", double.dtype == float and numpy.array_equal(double, inputs[0] * 2)
          and half.dtype == numpy.float16 and numpy.array_equal(half, inputs[1] + 1))
    check("int64, uint8, bool", long.dtype == numpy.int64 and numpy.array_equal(long, inputs[3] * 3)
          and byte.dtype == numpy.uint8 and numpy.array_equal(byte, inputs[4] + 1) and truth.tolist() == [False, True])
    check("a scalar of NumPy's, and a result without dimensions", number.shape == () and number == 25.0)
    check("no elements", empty.shape == (0, 2))
    check("bfloat16 stays a Tensor, whose bits NumPy can read",
          type(brains) is runtime.Tensor and brains.dtype == "bfloat16"
          and brains.tolist() == [2.0, 3.0, 1.0, 0.0, float("inf"), 4.0]
          and brains.view("uint16").numpy().tolist() == [0x4000, 0x4040, 0x3F80, 0, 0x7F80, 0x4080], str(brains.tolist()))
    check("and means what it should", wide.tolist() == [1.0, 2.0, 0.0, -1.0, float("inf"), 3.0])
    with refused("the buffer protocol has no bfloat16", BufferError, "bfloat16"):
        memoryview(brains)
    with refused("nor has NumPy", TypeError, "bfloat16", "view"):
        brains.numpy()
    with refused("elements of another size", ValueError, "2", "4"):
        runtime.tensor(inputs[0].astype("f"), "bfloat16")
    with refused("no such dtype", ValueError, "float12"):
        runtime.tensor(inputs[0], "float12")
    halves = numpy.array([0, 1.5, -2, 6e-8, 65504, numpy.inf, 1e-4], numpy.float16)
    check("float16 as numbers", runtime.tensor(halves).tolist() == halves.astype(float).tolist())
    number = numpy.array([[1 + 2j], [3 - 1j]], numpy.complex64)
    check("complex numbers", runtime.tensor(number).tolist() == number.tolist()
          and numpy.array_equal(runtime.tensor(number).numpy(), number))
    check("from_dlpack", numpy.array_equal(numpy.from_dlpack(runtime.tensor(number)), number))


def check_stored(numpy, runtime, directory, x, expected):
    cache = os.path.join(directory, "cache")
    model = runtime.load("line", cache_dir=cache)
    check("a stored model by its name", numpy.allclose(model(x), expected, atol=1e-6) and model.name == "line")
    check("and by its key", numpy.allclose(runtime.load(model.key, cache_dir=cache)(x), expected, atol=1e-6))
    package = load("linear", directory)
    check("a package by its key", numpy.allclose(runtime.load(package.key, cache_dir=cache)(x), expected, atol=1e-6))
    tuned = runtime.load("line", weights=os.path.join(directory, "tuned.safetensors"), cache_dir=cache)
    check("other weights", numpy.allclose(tuned(x), numpy.load(os.path.join(directory, "tuned.npy")), atol=1e-6))
    with refused("a bias that PyTorch wrote into the code", runtime.AoticacheError, "layer.bias", "into the code"):
        load("linear", directory, weights=os.path.join(directory, "tuned.safetensors"))
    for mapped in (False, True):
        file = {"ignore_unknown_weights": True, "weights": os.path.join(directory, "tuned.safetensors"), "map_weights": mapped}
        for what in (load("linear", directory, **file), runtime.load(package.key, cache_dir=cache, **file)):
            check(f"other weights for a package, mapped: {mapped}",
                  numpy.allclose(what(x), numpy.load(os.path.join(directory, "half-tuned.npy")), atol=1e-6))
    with refused("no weights for a package", runtime.AoticacheError, "no.safetensors"):
        load("linear", directory, weights="no.safetensors")
    with refused("a name that no model has", runtime.AoticacheError, "no model named lime", "line"):
        runtime.load("lime", cache_dir=cache)
    with refused("weights that are not there", runtime.AoticacheError, "no.safetensors"):
        runtime.load("line", weights="no.safetensors", cache_dir=cache)
    try:
        runtime.load("lime", cache_dir=cache)
    except runtime.AoticacheError as error:
        check("an error has its status", error.status == "NOT_FOUND")


def check_operators(numpy, runtime, cache, x):
    multiply = runtime.operator("aten::mul.Tensor", cache_dir=cache)
    check("an operator of the cache", numpy.array_equal(multiply(x, x), x * x))
    whole = runtime.operator("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", cache_dir=cache)
    check("by its schema", whole(runtime.tensor(x), runtime.tensor(x)).tolist() == (x * x).tolist())
    sinh = runtime.operator("aten::sinh", cache_dir=CACHE)
    odd = numpy.linspace(-2, 2, 77, dtype="f").reshape(7, 11)
    check("a kernel for all shapes", numpy.allclose(sinh(odd), numpy.sinh(odd), rtol=1e-5))
    with refused("other dtypes than there are kernels for", runtime.AoticacheError, "aten::mul.Tensor", "not in the cache"):
        multiply(x, x.astype(float))
    with refused("an operator without kernels", runtime.AoticacheError, "no kernel of aten::cosh"):
        runtime.operator("aten::cosh", cache_dir=cache)(x)
    with refused("another producer's", runtime.AoticacheError, "pytorch 9"):
        runtime.operator("aten::mul.Tensor", framework="pytorch 9", cache_dir=cache)(x, x)
    with refused("a text where the schema has a tensor", runtime.AoticacheError, "argument 1", "string"):
        multiply(x, "x")


def play_memory(directory):
    """Checks who owns the memory of results, and that no memory leaks."""
    import gc
    import weakref

    import numpy

    import aoticache.runtime as runtime

    class Array(numpy.ndarray):
        pass

    model = load("aliases", directory)
    x = numpy.arange(4, dtype="f").view(Array)
    owner = weakref.ref(x)
    same, part, double, constant = model(x)
    shares = numpy.shares_memory(same, x)
    check("a result that is an argument has its memory, or a copy of it", numpy.array_equal(same, x)
          and numpy.array_equal(part, x[1:]))
    check("others have memory of their own", not numpy.shares_memory(double, x))
    del x
    gc.collect()
    check("a result that is an argument keeps it", (owner() is not None) == shares and same.tolist() == [0, 1, 2, 3])
    del same, part
    gc.collect()
    check("and no longer than needed", owner() is None)
    del model
    gc.collect()
    check("a constant that is a result keeps the model", constant.tolist() == [0, 1, 2, 3, 4])
    writes = load("writes", directory)
    x = numpy.ones(3, "f")
    check("no results", writes(x) == () and writes.num_outputs == 0)
    check("a model writes to its arguments", x.tolist() == [2.0] * 3)
    text = struct.pack("3f", 1, 2, 3)
    writes(text and memoryview(text).cast("f"))
    check("but not to what is read-only", struct.unpack("3f", text) == (1, 2, 3))
    sharing = load("linear", directory, share_read_only=True)
    locked = numpy.ones((2, 4), "f")
    locked.flags.writeable = False
    check("share_read_only", sharing(locked).shape == (2, 3) and memoryview(runtime.tensor(locked, share_read_only=True)).readonly)
    check_leaks(numpy, runtime, directory)


def check_leaks(numpy, runtime, directory):
    linear, aliases, x, flat = load("linear", directory), load("aliases", directory), numpy.ones((64, 4), "f"), numpy.ones(4, "f")
    locked = numpy.ones((64, 4), "f")
    locked.flags.writeable = False
    wrong = numpy.ones((64, 4))

    def turn():
        numpy.from_dlpack(linear(runtime.tensor(x)))
        linear(x), linear(locked), linear(Lender(x)), aliases(flat), runtime.tensor(x).__dlpack__(), memoryview(runtime.tensor(x))
        for bad in (wrong[:, ::-1], "text"):
            with contextlib.suppress(Exception):
                linear(bad)

    def count():
        return sum(sys.getrefcount(one) for one in (x, flat, locked, wrong, linear, aliases, runtime.Tensor))

    for _ in range(1000):
        turn()
    before, references = resident(), count()
    for _ in range(10000):
        turn()
    check("10,000 turns of every kind: no reference is left", count() == references, f"{count()} {references}")
    check("and resident memory does not grow", resident() - before < 256 * 1024, f"{resident() - before} bytes")
    runner = lambda: runtime.load(os.path.join(directory, "linear.pt2"), cache_dir=os.path.join(directory, "cache"))(x)
    for _ in range(20):
        runner()
    before = resident()
    for _ in range(100):
        runner()
    check("nor with loads", resident() - before < 2 << 20, f"{resident() - before} bytes")


def play_threads(directory):
    """Two threads run one model concurrently, while a third counts: the interpreter's lock is not held."""
    import numpy

    model, x = load("slow", directory, num_runners=2), numpy.linspace(0, 1, 1 << 16, dtype="f")
    expected, wrong, turns = model(x), [], [0, 0]

    def work(place):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            turns[place] += 1
            if not numpy.array_equal(model(x), expected):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    ticks = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
        ticks += 1
    check("two threads have the same results", not wrong and min(turns) > 5, f"{wrong} {turns}")
    begin = time.perf_counter()
    model(x)
    check(f"others go on during runs of {(time.perf_counter() - begin) * 1e3:.1f} ms", ticks > 100, str(ticks))


def play_after_torch(directory):
    """PyTorch is already in the process: models run on its libtorch, and accept its tensors."""
    import torch

    import aoticache.runtime as runtime

    model, x = load("linear", directory), torch.load(os.path.join(directory, "x.pt"))
    y = model(x)
    check("with PyTorch in the process models run on libtorch", runtime.provider()[0] == "libtorch")
    check("its tensors go in, a Tensor comes out", type(y) is runtime.Tensor and
          torch.allclose(torch.from_dlpack(y), torch.from_dlpack(model(x.numpy())), atol=1e-6))
    brain = torch.arange(4, dtype=torch.bfloat16)
    check("bfloat16 goes both ways", torch.equal(torch.from_dlpack(runtime.tensor(brain)), brain))
    with refused("what requires a gradient", TypeError, "input 0 (Tensor)", "grad"):
        model(x.clone().requires_grad_())
    import aoticache
    beside = aoticache.load_package(os.path.join(directory, "linear.pt2"), cache_dir=os.path.join(directory, "cache"))
    check("the package's other half works beside it", torch.allclose(beside(x), torch.from_dlpack(y), atol=1e-6))
    file = os.path.join(directory, "tuned.safetensors")
    beside = aoticache.load_package(os.path.join(directory, "linear.pt2"), weights=file, ignore_unknown_weights=True,
                                    cache_dir=os.path.join(directory, "cache"))
    expected = torch.load(os.path.join(directory, "half-tuned.pt"))
    check("with other weights", torch.allclose(beside(x), expected, atol=1e-6))


def play_before_torch(directory):
    """PyTorch is imported later: models stay with the shim, and do not get PyTorch's tensors as handles."""
    import aoticache.runtime as runtime

    model = load("linear", directory)
    import torch

    x = torch.load(os.path.join(directory, "x.pt"))
    check("models that were loaded before stay with the shim", runtime.provider()[0] == "shim" and model(x).shape == (3, 3))
    import aoticache
    path, cache = os.path.join(directory, "linear.pt2"), os.path.join(directory, "cache")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        beside = aoticache.load_package(path, cache_dir=cache)
        enabled = aoticache.enable("aten::abs", mode="wait", cache_dir=cache)
    said = [str(one.message) for one in caught if "import torch first" in str(one.message)]
    check("load_package() leaves the package to PyTorch, and says why",
          torch.allclose(beside(x), torch.from_dlpack(model(x)), atol=1e-6) and len(said) == 2, str(said))
    check("nor are operators enabled", not enabled and "import torch first" in enabled.problem
          and torch.equal(torch.abs(x), x.clone().abs_()))
    with refused("load() refuses", aoticache.AoticacheError, "import torch first"):
        aoticache.load("line", cache_dir=cache)


def play_fork(directory):
    """A child process continues to use what its parent has loaded, and loads more."""
    import numpy

    model, x = load("linear", directory), numpy.ones((2, 4), "f")
    expected = model(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if numpy.array_equal(model(x), expected) and load("several", directory).num_inputs == 2 else 1)
    check("a forked child runs the model and loads another", os.waitpid(child, 0)[1] == 0)


if __name__ == "__main__":
    globals()["play_" + sys.argv[1]](sys.argv[2])
