"""Compares libraries that worker.py compiles for symbolic shapes with eager PyTorch, over many shapes.

Each operator is compiled once, with one example. Then tensors of other sizes and strides are made, valid for the operator or not.
Those that pass the guard (checked by loader/check/check.h itself) are run, and the result must be PyTorch's. So the test finds a
guard that accepts shapes which the library cannot serve. A certain number must pass, so it also finds a guard that accepts
nothing. Environment: BUILD, the build directory; CASES=all, the long form.
"""
import ctypes
import importlib.util
import json
import os
import random
import tempfile

import pytest

from c_types import Error, View

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DTYPES = {"float32": 6, "int64": 4}
SIZES = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17, 23, 32, 33, 40, 64, 65)


class Check:
    def __init__(self, c, text):
        self.c, self.handle, error = c, ctypes.c_void_p(), Error()
        if c.aoticache_check_parse(text.encode(), ctypes.byref(self.handle), ctypes.byref(error)) != 0:
            raise RuntimeError(f"{text}: {error.message.decode()}")

    def passes(self, tensors):
        views, kept = (View * len(tensors))(), []
        for view, tensor in zip(views, tensors):
            numbers = ctypes.c_int64 * max(tensor.dim(), 1)
            kept += [numbers(*tensor.shape), numbers(*tensor.stride())]
            view.dtype, view.device.index, view.ndim = DTYPES[str(tensor.dtype)[6:]], -1, tensor.dim()
            view.sizes, view.strides = kept[-2], kept[-1]
        return self.c.aoticache_check_passes(self.handle, views, ctypes.c_size_t(len(tensors)))


def load_library():
    c = ctypes.CDLL(os.path.join(BUILD, "lib", "libaoticache.so"))
    c.aoticache_check_passes.restype = ctypes.c_bool
    return c


def load_worker():
    path = os.path.join(BUILD, "share", "aoticache", "worker.py")
    spec = importlib.util.spec_from_file_location("worker", path)
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    return worker


# ---- requests ----


def tensor(*sizes, strides=None, dtype="float32"):
    if strides is None:
        strides, step = [], 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= size
    return {"kind": "tensor", "name": "", "dtype": dtype, "sizes": list(sizes), "strides": list(strides), "device": "cpu",
            "layout": "strided", "requires_grad": False}


def value(plain):
    kinds = {bool: "bool", int: "int", float: "double", type(None): "none"}
    if isinstance(plain, list):
        return {"kind": "list", "name": "", "items": [value(item) for item in plain]}
    if isinstance(plain, dict):
        return plain
    return {"kind": kinds[type(plain)], "name": "", "value": plain}


# Operator, arguments, and the number of tries that must pass the guard.
CASES = [
    ("aten::add.Tensor", [tensor(3, 4), tensor(1, 4)], 40),
    ("aten::mm", [tensor(3, 4), tensor(4, 5, strides=(1, 4))], 40),
    ("aten::cat", [[tensor(3, 4), tensor(7, 4)], 0], 40),
    ("aten::constant_pad_nd", [tensor(8, 9), [0, 0, -2, -3]], 40),
    ("aten::convolution", [tensor(2, 3, 8, 9), tensor(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1], 2),
    ("aten::_softmax", [tensor(5, 40), 1, False], 40),
    ("aten::abs", [tensor(2, 3, 4, 5, strides=(60, 1, 15, 3))], 10),
    ("aten::abs", [tensor(1, 7, strides=(100, 1))], 10),  # a row of a larger tensor: its stride is not a symbol
]
# In the long form only: each costs seconds to compile, and is similar to one of those above.
if os.environ.get("CASES") == "all":
    CASES += [
        ("aten::add.Tensor", [tensor(3, 4), tensor(3, 4)], 40),
        ("aten::sum.dim_IntList", [tensor(3, 4, 5), [1], False], 40),
        ("aten::constant_pad_nd", [tensor(3, 4), [1, 2]], 40),
        ("aten::avg_pool2d", [tensor(2, 3, 8, 9), [2, 2]], 20),
        ("aten::abs", [tensor(8, 5, strides=(10, 2))], 5),
        ("aten::glu", [tensor(3, 8), 1], 20),
    ]

# Requests for which no library for several shapes can be made, and a word of the reason.
REFUSED = (
    ("aten::nonzero", [tensor(3, 4)], "depends on the values"),
    ("aten::view_copy", [tensor(3, 8), [6, 4]], "sizes only"),
    ("aten::add_.Tensor", [tensor(3), tensor(3)], "writes to its input 'self'"),
    ("aten::view", [tensor(6), [2, 3]], "view of its input"),
    ("aten::abs", [tensor(1)], "sizes only"),
)


def ask(torch, worker, operator, arguments, directory, shapes):
    request = {"protocol": 1, "id": 7, "operator": operator, "arguments": [value(argument) for argument in arguments],
               "environment": {"shapes": "dynamic"} if shapes else {}, "cpu_features": None, "directory": directory}
    return worker.answer(torch, json.dumps(request))


# ---- tries ----


def find_tensors(argument):
    if isinstance(argument, list):
        return [found for item in argument for found in find_tensors(item)]
    return [argument] if isinstance(argument, dict) else []


def fill(torch, spec, sizes, layout):
    """Returns a tensor of other sizes whose dimensions are ordered in memory as the example's, or as `layout` says."""
    order = sorted(range(len(sizes)), key=lambda place: (-spec["strides"][place], place))
    gap = 1 if not spec["strides"] else max(1, min(spec["strides"]))
    if layout == "contiguous":
        order, gap = list(range(len(sizes))), 1
    elif layout == "reversed":
        order, gap = list(reversed(range(len(sizes)))), 1
    strides, step = [0] * len(sizes), gap
    for place in reversed(order):
        strides[place] = step
        step *= sizes[place]
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    return torch.randn(extent).as_strided(sizes, strides)


def try_sizes(torch, specs, choose):
    """Sizes that were equal in the example mostly stay equal, for operators that demand it."""
    chosen, shapes = {}, []
    for spec in specs:
        sizes = []
        for size in spec["sizes"]:
            fresh = choose.choice(SIZES)
            kept = size if choose.random() < 0.3 or size == 1 else chosen.setdefault(size, fresh)
            chosen.setdefault(size, kept)
            sizes.append(fresh if choose.random() < 0.05 else chosen[size])
        shapes.append(sizes)
    layout = choose.choice(("example", "example", "example", "contiguous", "reversed"))
    return [fill(torch, spec, sizes, layout) for spec, sizes in zip(specs, shapes)]


def eager(worker, torch, operator, arguments, tensors):
    left = list(tensors)

    def place(argument):
        if isinstance(argument, list):
            return [place(item) for item in argument]
        return left.pop(0) if isinstance(argument, dict) else argument

    return worker.find_operator(torch, operator)(*[place(argument) for argument in arguments])


@pytest.fixture(scope="module")
def prepared():
    """Yields (PyTorch, libaoticache, worker.py) as in a worker, which works in another directory."""
    directory = os.getcwd()
    try:
        c, worker = load_library(), load_worker()
        torch = worker.import_torch()
        torch.set_num_threads(2)
        yield torch, c, worker
    finally:
        os.chdir(directory)


@pytest.mark.parametrize("number", [pytest.param(number, id=f"{number}-{one[0]}", marks=[pytest.mark.quick] if number < 2 else [])
                                    for number, one in enumerate(CASES)])
def test_dynamic(prepared, number):
    (torch, c, worker), (operator, arguments, wanted) = prepared, CASES[number]
    specs = find_tensors(arguments)
    passed = 0
    with tempfile.TemporaryDirectory() as directory:
        answer = ask(torch, worker, operator, arguments, directory, True)
        assert answer["ok"], answer["error"]
        check = Check(c, answer["guard"])
        runner = torch._C._aoti.AOTIModelContainerRunnerCpu(answer["files"][0]["path"], 1)
        choose = random.Random(number)
        torch.manual_seed(number)
        example = [fill(torch, spec, spec["sizes"], "example") for spec in specs]
        assert check.passes(example), f"{answer['guard']} refuses the example"
        for _ in range(400):
            tensors = try_sizes(torch, specs, choose)
            if not check.passes(tensors):
                continue
            passed += 1
            expected = eager(worker, torch, operator, arguments, tensors)
            [found] = runner.run(tensors)
            shapes = [(tuple(tensor.shape), tensor.stride()) for tensor in tensors]
            assert found.shape == expected.shape, f"{shapes}: {found.shape} instead of {expected.shape}"
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), f"{shapes}: results differ"
        assert passed >= wanted, f"{answer['guard']}: only {passed} of 400 pass, expected were {wanted}"
    print(f"{passed} shapes, {answer['guard']}")


@pytest.mark.quick
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_refused(prepared, case):
    (torch, _, worker), (operator, arguments, word) = prepared, case
    with tempfile.TemporaryDirectory() as directory:
        answer = ask(torch, worker, operator, arguments, directory, True)
        assert not answer["ok"] and answer["unsupported"], answer
        assert word in answer["error"], answer["error"]


def source_of(torch, worker, directory, op, size):
    """Returns the C++ code of the operator for a square of this size."""
    from torch._inductor import config

    with config.patch({"aot_inductor.debug_compile": False}):
        kept = worker.remove_intermediates
        worker.remove_intermediates = lambda *_: []
        try:
            answer = ask(torch, worker, op, [tensor(size, size)], directory, False)
        finally:
            worker.remove_intermediates = kept
    assert answer["ok"], answer["error"]
    sources = []
    for subdirectory, _, names in os.walk(directory):
        sources += [os.path.join(subdirectory, name) for name in names if name.endswith(".cpp")]
    return "\n".join(open(path).read() for path in sources)


def test_threads(prepared):
    """The code does not contain this machine's number of threads, and the work per element decides what is divided."""
    torch, _, worker = prepared
    for op, size, parallel in (("aten::abs", 1000, True), ("aten::abs", 6, False), ("aten::abs", 100, False),
                               ("aten::sigmoid", 100, True), ("aten::sigmoid", 60, False)):
        with tempfile.TemporaryDirectory() as directory:
            text = source_of(torch, worker, directory, op, size)
            assert ("#pragma omp parallel" in text) == parallel, f"{op}, {size} by {size}: in parallel is {not parallel}"
            assert "num_threads(" not in text.replace("omp_get_num_threads(", ""), "the code has a number of threads"
