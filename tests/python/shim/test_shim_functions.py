"""Compares operators of the shim with PyTorch's: the same arguments; value, dtype, sizes and strides of the results.

The shim is called in this process through ctypes, on memory of PyTorch's tensors; PyTorch does not notice it. Shapes are random
with a fixed seed and include empty and non-contiguous ones. Environment: BUILD, the build directory.
"""
import ctypes
import warnings

import torch

import shim_checks

warnings.simplefilter("ignore")
NUMBERS = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15}
DTYPES = {number: dtype for dtype, number in NUMBERS.items()}
aten = torch.ops.aten
shim = None


def load(path):
    global shim
    shim = ctypes.CDLL(path)
    shim.torch_exception_get_what_without_backtrace.restype = ctypes.c_char_p


class Failed(Exception):
    pass


def int64(value):
    return ctypes.c_int64(value)


def numbers(values):
    return (ctypes.c_int64 * max(len(values), 1))(*values), int64(len(values))


def optional(value):
    """Returns a pointer to a number, or NULL."""
    return None if value is None else ctypes.byref(value)


def check(status):
    if status != 0:
        raise Failed(shim.torch_exception_get_what_without_backtrace().decode())


class Handle:
    """A tensor of the shim in a tensor's memory; `pointer` is what optional arguments take."""

    def __init__(self, tensor):
        self.tensor, self.value = tensor, ctypes.c_void_p()
        shape, stride = numbers(tensor.shape)[0], numbers(tensor.stride())[0]
        begin = tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()
        check(shim.aoti_torch_create_tensor_from_blob(
            ctypes.c_void_p(begin if tensor.numel() else 0), int64(tensor.dim()), shape, stride,
            int64(tensor.storage_offset() if tensor.numel() else 0), NUMBERS[tensor.dtype], 0, -1,
            ctypes.byref(self.value)))

    @property
    def pointer(self):
        return ctypes.byref(self.value)

    def __del__(self):
        shim.aoti_torch_delete_tensor_object(self.value)


def read(handle):
    """Returns a PyTorch tensor with the same values, sizes and strides."""
    number, count, data = ctypes.c_int32(), ctypes.c_int64(), ctypes.c_void_p()
    sizes, strides = ctypes.POINTER(ctypes.c_int64)(), ctypes.POINTER(ctypes.c_int64)()
    shim.aoti_torch_get_dim(handle, ctypes.byref(count))
    shim.aoti_torch_get_sizes(handle, ctypes.byref(sizes))
    shim.aoti_torch_get_strides(handle, ctypes.byref(strides))
    shim.aoti_torch_get_dtype(handle, ctypes.byref(number))
    shim.aoti_torch_get_data_ptr(handle, ctypes.byref(data))
    sizes, strides = sizes[:count.value], strides[:count.value]
    result = torch.empty_strided(sizes, strides, dtype=DTYPES[number.value])
    if result.numel() > 0:
        ctypes.memmove(result.data_ptr(), data.value, result.untyped_storage().nbytes())
    return result


def call(name, *arguments, results=1):
    """Returns the results of a function of the shim; tensors among the arguments become handles."""
    keep = [Handle(argument) if isinstance(argument, torch.Tensor) else argument for argument in arguments]
    given = [argument.value if isinstance(argument, Handle) else argument for argument in keep]
    made = [ctypes.c_void_p() for _ in range(results)]
    check(getattr(shim, name)(*given, *[ctypes.byref(handle) for handle in made]))
    seen = [read(handle) for handle in made]
    for handle in made:
        shim.aoti_torch_delete_tensor_object(handle)
    return seen[0] if results == 1 else seen


def same(seen, wanted, what="", **tolerances):
    torch.testing.assert_close(seen, wanted, equal_nan=True, check_stride=True,
                               msg=lambda text: "%s: %s" % (what, text), **tolerances)


def wrap(name):
    return "aoti_torch_cpu_" + name


# ---- inputs ----

shim_loaded, begin = shim_checks.each_way(load, [shim_checks.WHOLE], autouse=True), shim_checks.seeded(0)


def make(shape, dtype=torch.float32):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randint(0 if dtype == torch.uint8 else -20, 20, shape).to(dtype)


def layouts(shape, dtype=torch.float32):
    """Yields the same sizes in several layouts: contiguous, transposed, every other element, expanded."""
    yield make(shape, dtype)
    if len(shape) > 1:
        yield make(shape[::-1], dtype).permute(*reversed(range(len(shape))))
    if len(shape) > 0:
        yield make((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        yield make((*shape[:-1], 1), dtype).expand(shape)


SHAPES = [(), (1,), (17,), (5, 9), (4, 1, 6), (3, 0, 2), (2, 3, 4, 5)]
REALS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]


def every(dtypes=REALS, shapes=SHAPES):
    for dtype in dtypes:
        for shape in shapes:
            yield from layouts(shape, dtype)


def dims_of(tensor):
    return range(-tensor.dim(), tensor.dim()) if tensor.dim() else [-1, 0]


# ---- views ----

def test_permute():
    for tensor in every([torch.float32, torch.uint8]):
        order = torch.randperm(tensor.dim()).tolist()
        same(call(wrap("permute"), tensor, *numbers(order)), tensor.permute(order))


def test_squeeze():
    for tensor in every([torch.int32]):
        for dim in dims_of(tensor):
            same(call(wrap("squeeze_dim"), tensor, int64(dim)), tensor.squeeze(dim))


def test_slice_narrow():
    for tensor in every([torch.float32], SHAPES[1:]):
        for dim in dims_of(tensor):
            for start, end, step in [(None, None, 1), (1, None, 2), (-3, -1, 1), (2, 100, 3), (5, 2, 1)]:
                wanted = aten.slice(tensor, dim, start, end, step)
                seen = call(wrap("slice_Tensor"), tensor, int64(dim), optional(None if start is None else int64(start)),
                            optional(None if end is None else int64(end)), int64(step))
                same(seen, wanted)
            length = tensor.shape[dim] // 2
            same(call(wrap("narrow"), tensor, int64(dim), int64(0), int64(length)), tensor.narrow(dim, 0, length))


def test_reshape():
    for tensor in every([torch.float32]):
        for shape in [(-1,), (1, *tensor.shape), (tensor.numel(),), (*tensor.shape, 1)]:
            if tensor.numel() == 0 and -1 in shape and shape != (-1,):
                continue
            same(call(wrap("reshape"), tensor, *numbers(shape)), tensor.reshape(shape))
    for tensor in layouts((4, 6, 5)):
        for shape in [(24, 5), (2, 2, 6, 5), (4, 30), (4, 3, -1), (120,)]:
            same(call(wrap("reshape"), tensor, *numbers(shape)), tensor.reshape(shape))


def test_complex_views():
    for tensor in every([torch.complex64, torch.complex128]):
        real = call(wrap("view_as_real"), tensor)
        same(real, torch.view_as_real(tensor))
    for tensor in every([torch.float32, torch.float64], [(2,), (5, 2), (3, 0, 2), (3, 4, 2)]):
        if tensor.stride(-1) == 1 and all(stride % 2 == 0 for stride in tensor.stride()[:-1]):
            same(call(wrap("view_as_complex"), tensor), torch.view_as_complex(tensor))


# ---- along a dimension ----

def test_cumsum_cumprod():
    for tensor in every(REALS + [torch.complex64]):
        for dim in dims_of(tensor):
            for name in ("cumsum", "cumprod"):
                same(call(wrap(name), tensor, int64(dim), None), getattr(torch, name)(tensor, dim), name)
    tensor = make((4, 5))
    seen = call(wrap("cumsum"), tensor, int64(0), optional(ctypes.c_int32(7)))
    same(seen, torch.cumsum(tensor, 0, dtype=torch.float64))


def test_cummax_cummin():
    for tensor in every():
        if tensor.is_floating_point() and tensor.numel() > 8 and 0 not in tensor.stride():
            tensor.select(0, 0).fill_(float("nan"))
        for dim in dims_of(tensor):
            for name in ("cummax", "cummin"):
                values, places = call(wrap(name), tensor, int64(dim), results=2)
                wanted = getattr(torch, name)(tensor, dim)
                same(values, wanted.values, name)
                same(places, wanted.indices, name)


def test_logcumsumexp():
    for tensor in every([torch.float32, torch.float64]):
        for dim in dims_of(tensor):
            same(call(wrap("logcumsumexp"), tensor, int64(dim)), torch.logcumsumexp(tensor, dim))


def test_sort():
    for tensor in every():
        for dim in dims_of(tensor):
            for descending in (0, 1):
                stable = optional(ctypes.c_int32(1))
                values, places = call(wrap("sort_stable"), tensor, stable, int64(dim), descending, results=2)
                wanted = torch.sort(tensor, dim=dim, descending=bool(descending), stable=True)
                same(values, wanted.values)
                same(places, wanted.indices)
    tensor = torch.tensor([float("nan"), 1.0, -float("inf"), -0.0, 0.0, float("inf"), float("nan")])
    for descending in (0, 1):
        values, places = call(wrap("sort_stable"), tensor, None, int64(0), descending, results=2)
        wanted = torch.sort(tensor, descending=bool(descending), stable=True)
        same(values, wanted.values)
        same(places, wanted.indices)


def test_topk_kthvalue():
    for tensor in every([torch.float32, torch.int64], SHAPES[1:]):
        for dim in dims_of(tensor):
            count = (tensor.shape[dim] + 1) // 2
            if tensor.shape[dim] == 0:
                continue
            for largest in (0, 1):
                values, places = call(wrap("topk"), tensor, int64(count), int64(dim), largest, 1, results=2)
                same(values, torch.topk(tensor, count, dim, bool(largest)).values)
                same(torch.gather(tensor, dim, places), values.contiguous(), "places")
            if tensor.numel() > 0:
                values, places = call(wrap("kthvalue"), tensor, int64(count), int64(dim), 0, results=2)
                same(values, torch.kthvalue(tensor, count, dim).values)


def test_median_mode():
    for tensor in every([torch.float32, torch.int64]):
        if tensor.numel() > 0:
            same(call(wrap("median"), tensor), torch.median(tensor))
            same(call(wrap("nanmedian"), tensor), torch.nanmedian(tensor))
    for values in ([1.0, float("nan"), 3.0, 2.0], [float("nan")] * 3):
        same(call(wrap("median"), torch.tensor(values)), torch.median(torch.tensor(values)))
        same(call(wrap("nanmedian"), torch.tensor(values)), torch.nanmedian(torch.tensor(values)))
    for tensor in layouts((6, 20), torch.int64):
        tensor = tensor // 5
        values, _ = call(wrap("mode"), tensor, int64(1), 1, results=2)
        same(values, torch.mode(tensor, 1, True).values)


# ---- selecting ----

def test_masked_select_scatter():
    for tensor in every([torch.float32, torch.int64, torch.complex128]):
        mask = torch.rand(tensor.shape) > 0.4
        same(call(wrap("masked_select"), tensor, mask), torch.masked_select(tensor, mask))
        if tensor.is_contiguous():
            source = make((tensor.numel() + 3,), tensor.dtype)
            same(call(wrap("masked_scatter"), tensor, mask, source), torch.masked_scatter(tensor, mask, source))
    tensor, mask = make((4, 1, 3)), torch.rand(5, 1) > 0.5
    same(call(wrap("masked_select"), tensor, mask), torch.masked_select(tensor, mask))


def test_nonzero():
    for tensor in every():
        same(call(wrap("nonzero"), tensor), torch.nonzero(tensor))
        same(call(wrap("nonzero_static"), tensor, int64(7), int64(-1)),
             aten.nonzero_static(tensor, size=7, fill_value=-1))


def test_repeat_interleave():
    for dtype in (torch.int64, torch.int32):
        for count in (0, 1, 9):
            repeats = torch.randint(0, 4, (count,), dtype=dtype)
            same(call(wrap("repeat_interleave_Tensor"), repeats, None), aten.repeat_interleave(repeats))


EVERY = REALS + [torch.int8, torch.int16, torch.complex64, torch.complex128]


def test_masks_of_many():
    """Elements of every size, masks that are full, empty and anything between."""
    for dtype in EVERY:
        for shape in [(70, 301), (5000,), (40, 1, 7, 3), (600, 1)]:
            tensor = make(shape, dtype)
            for mask in (torch.rand(shape) > 0.5, torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool),
                         torch.rand(shape) > 0.99):
                count = int(mask.sum())
                same(call(wrap("masked_select"), tensor, mask), torch.masked_select(tensor, mask))
                for source in (make((count,), dtype), make((count + 3,), dtype)):
                    same(call(wrap("masked_scatter"), tensor, mask, source), torch.masked_scatter(tensor, mask, source))
                same(call(wrap("nonzero"), mask), torch.nonzero(mask))
                for size in (0, 1, count, count + 2):
                    same(call(wrap("nonzero_static"), mask, int64(size), int64(-1)),
                         aten.nonzero_static(mask, size=size, fill_value=-1))


# ---- index and scatter ----

def pointers(handles):
    array = (ctypes.c_void_p * max(len(handles), 1))()
    for position, handle in enumerate(handles):
        array[position] = None if handle is None else ctypes.addressof(handle.value)
    return array, int64(len(handles))


INDEXINGS = [
    ((5, 6, 7), [(3,)]), ((5, 6, 7), [None, (2, 3)]), ((5, 6, 7), [(4,), None, (4,)]), ((5, 6, 7), [(2, 1), (3,)]),
    ((5, 6, 7), [None, (4,), (4,)]), ((5, 6, 7), ["mask"]), ((5, 6, 7), [None, None, "mask"]), ((5,), [(0,)]),
    ((4, 3), [()]),
]


def index_cases(dtype):
    for shape, kinds in INDEXINGS:
        for tensor in layouts(shape, dtype):
            indices = []
            for dim, kind in enumerate(kinds):
                if kind is None:
                    indices.append(None)
                elif kind == "mask":
                    indices.append(torch.rand(shape[dim]) > 0.5)
                else:
                    indices.append(torch.randint(-shape[dim], shape[dim], kind))
            yield tensor, indices


def test_index():
    for dtype in (torch.float32, torch.complex64, torch.int16):
        for tensor, indices in index_cases(dtype):
            handles = [None if index is None else Handle(index) for index in indices]
            same(call(wrap("index_Tensor"), tensor, *pointers(handles)),
                 aten.index(tensor, indices).contiguous())


def test_index_put():
    for dtype in (torch.float32, torch.int64, torch.bool):
        for tensor, indices in index_cases(dtype):
            if 0 in tensor.stride():
                continue
            for accumulate in (0, 1):
                values = make(aten.index(tensor, indices).shape, dtype)
                handles = [None if index is None else Handle(index) for index in indices]
                wanted = aten.index_put(tensor, indices, values, bool(accumulate))
                if accumulate and dtype == torch.bool:
                    continue
                # If two values go to one position, nothing promises which one stays.
                if accumulate or torch.equal(aten.index(wanted, indices), values):
                    same(call(wrap("index_put"), tensor, *pointers(handles), values, accumulate), wanted)


# Returns an index with or without repeated positions: nothing promises which of two values stays.
def numbers_below(size, count, repeated):
    index = torch.randint(0, size, (count,)) if repeated else torch.randperm(size)[:count]
    return torch.where(torch.rand(count) < 0.5, index, index - size)


def put_indices(repeated):
    """Yields sizes, and indices for them: blocks of rows, of columns, of single elements."""
    def index(size, count):
        return numbers_below(size, count, repeated)
    yield (60, 39), [index(60, 50)]
    yield (60, 7), [index(60, 50)]
    yield (20, 60), [None, index(60, 50)]
    yield (7, 11, 17), [None, index(11, 9)]
    yield (7, 11, 17), [index(7, 5), None, index(17, 1)]
    yield (7, 11, 17), [index(7, 5).reshape(5, 1), index(11, 8)]
    yield (7, 11, 17), [None, index(11, 6).reshape(6, 1), index(17, 9)]
    yield (900,), [index(900, 800).reshape(8, 100)]
    yield (6, 9, 5), [torch.rand(6, 9) > 0.5]
    yield (6, 9, 5), [None, torch.rand(9) > 0.5, index(5, 1)]
    yield (6, 19), [torch.tensor(-3)]
    yield (6, 19), [None, torch.zeros(0, dtype=torch.int64)]


def many_layouts(shape, dtype):
    yield make(shape, dtype)
    yield make(shape[::-1], dtype).permute(*reversed(range(len(shape))))
    yield make((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]


def put_values(shape, dtype):
    """Yields values of a shape, in several layouts, and values that are broadcast to it."""
    yield from many_layouts(shape, dtype) if shape else [make(shape, dtype)]
    yield make((), dtype)
    yield make(shape[-1:], dtype)
    yield make((*shape[:1], *(1 for _ in shape[1:])), dtype)


def check_put(tensor, indices, values, accumulate):
    """Writes once to a new tensor, and once to the tensor itself."""
    tolerances = {"rtol": 0.1, "atol": 0.1} if values.dtype in (torch.bfloat16, torch.float16) and accumulate else {}
    handles = [None if index is None else Handle(index) for index in indices]
    wanted = aten.index_put(tensor, indices, values, bool(accumulate))
    same(call(wrap("index_put"), tensor, *pointers(handles), values, accumulate), wanted, **tolerances)
    itself = tensor.clone()
    array = (ctypes.c_void_p * len(handles))(*[None if handle is None else handle.value for handle in handles])
    call("aoti_torch_index_put_out", itself, itself, array, ctypes.c_uint32(len(handles)), values,
         ctypes.c_bool(bool(accumulate)), results=0)
    same(itself, wanted, **tolerances)


def test_index_put_of_many():
    """Blocks of every size and of every dtype."""
    for dtype in EVERY:
        for accumulate in (0, 1):
            for shape, indices in put_indices(bool(accumulate)):
                for tensor in many_layouts(shape, dtype):
                    taken = aten.index(tensor, indices)
                    handles = [None if index is None else Handle(index) for index in indices]
                    same(call(wrap("index_Tensor"), tensor, *pointers(handles)), taken.contiguous())
                    check_put(tensor, indices, make(taken.shape, dtype), accumulate)
                for values in put_values(taken.shape, dtype):
                    check_put(make(shape, dtype), indices, values, accumulate)


def test_index_put_keeps_what_overlaps():
    """Values, and indices, that share the memory of the written tensor."""
    tensor = make((6, 5), torch.int64).abs() % 6
    wanted = aten.index_put(tensor, [tensor[:, 0].clone()], tensor.clone(), True)
    array = (ctypes.c_void_p * 1)()
    itself = tensor.clone()
    index = Handle(itself[:, 0])
    array[0] = index.value
    call("aoti_torch_index_put_out", itself, itself, array, ctypes.c_uint32(1), itself, ctypes.c_bool(True), results=0)
    same(itself, wanted)


def test_index_put_refuses_before_it_writes():
    tensor, values = make((30, 4)), make((3, 4))
    for name, index in (("index 30 is outside dimension 0", [0, 30, 1]), ("index -31 is outside", [0, 1, -31])):
        before, handle = tensor.clone(), Handle(torch.tensor(index))
        array = (ctypes.c_void_p * 1)(handle.value)
        refused(name, "aoti_torch_index_put_out", tensor, tensor, array, ctypes.c_uint32(1), values,
                ctypes.c_bool(False), results=0)
        same(tensor, before)
    far = torch.zeros(100, dtype=torch.int64)
    for at in (0, 7, 8, 95, 96, 99):
        index = far.clone()
        index[at] = torch.iinfo(torch.int64).min if at % 2 else torch.iinfo(torch.int64).max
        handle = Handle(index)
        refused("is outside dimension 0 of size 30", wrap("index_Tensor"), tensor, *pointers([handle]))
    handle = Handle(torch.tensor([1, 2, 3]))
    refused("values of size 2 at dimension 0", wrap("index_put"), tensor, *pointers([handle]), make((2, 4)), 0)
    refused("values of 3 dimensions", wrap("index_put"), tensor, *pointers([handle]), make((1, 3, 4)), 0)


def scatter_cases():
    """Yields sizes of self, a dimension, sizes of the index, and whether the index is expanded along its last dimension."""
    for expanded in (False, True):
        yield (20, 70), 1, (20, 50), expanded
        yield (70, 20), 0, (50, 20), expanded
        yield (9, 12, 17), 1, (9, 30, 15), expanded
        yield (9, 12, 17), 0, (1, 12, 17), expanded
        yield (9, 12, 17), 2, (9, 4, 40), expanded
    yield (900,), 0, (700,), False
    yield (900,), 0, (0,), False


def scatter_index(shape, dim, sizes, expanded, repeated):
    width = sizes[-1] if not expanded else 1
    if repeated or sizes[dim] > shape[dim]:
        return torch.randint(0, shape[dim], (*sizes[:-1], width)).expand(sizes)
    return torch.argsort(torch.rand((*shape[:dim], shape[dim], *sizes[dim + 1:-1], width)
                                    if dim < len(sizes) - 1 else shape), dim)[tuple(map(slice, sizes))].expand(sizes)


def test_scatter_of_many():
    for dtype in EVERY:
        for shape, dim, sizes, expanded in scatter_cases():
            if sizes[dim] > shape[dim] or (expanded and dim == len(shape) - 1):
                continue
            index = scatter_index(shape, dim, sizes, expanded, False)
            for tensor in many_layouts(shape, dtype):
                out = torch.zeros(shape, dtype=dtype)
                for source in many_layouts(tuple(size + 1 for size in sizes), dtype):
                    call(wrap("scatter_src_out"), out, tensor, int64(dim), index, source, results=0)
                    wanted = torch.scatter(tensor, dim, index, source)
                    same(out, wanted.contiguous(), (shape, dim, sizes))
                    itself = tensor.clone()
                    call(wrap("scatter_src_out"), itself, itself, int64(dim), index, source, results=0)
                    same(itself.contiguous(), wanted.contiguous(), (shape, dim, sizes))


def test_scatter_reduce_of_many():
    for dtype in EVERY:
        if dtype == torch.bool:
            continue
        tolerances = {"rtol": 0.1, "atol": 0.1} if dtype in (torch.bfloat16, torch.float16) else {}
        for shape, dim, sizes, expanded in scatter_cases():
            index = scatter_index(shape, dim, sizes, expanded, True)
            tensor, source = make(shape, dtype), make(tuple(size + 1 for size in sizes), dtype)
            for reduce in ("sum",) if dtype.is_complex else ("sum", "prod", "mean", "amax", "amin"):
                if reduce == "prod":
                    tensor, source = tensor.clamp(-1, 1), source.clamp(-1, 1)
                for include in (0, 1):
                    out = torch.zeros(shape, dtype=dtype)
                    call(wrap("scatter_reduce_two_out"), out, tensor, int64(dim), index, source, reduce.encode(),
                         include, results=0)
                    wanted = torch.scatter_reduce(tensor, dim, index, source, reduce, include_self=bool(include))
                    same(out, wanted, (dtype, shape, dim, reduce, include), **tolerances)


def test_places_shared_among_threads():
    """Rows, columns and slices that are divided among the threads; never more threads than parts."""
    for dtype in (torch.float32, torch.bfloat16):
        for shape, indices in [((1000, 128), [numbers_below(1000, 8000, True)]),
                               ((1000, 701), [numbers_below(1000, 900, True)]),
                               ((201, 4000), [None, numbers_below(4000, 3000, True)]),
                               ((3, 50, 9000), [None, numbers_below(50, 40, True)]),
                               ((50, 6, 3001), [numbers_below(50, 40, True), None, numbers_below(3001, 40, True)]),
                               ((50, 60, 301), [torch.rand(50, 60) > 0.3])]:
            check_put(make(shape, dtype), indices, make(aten.index(make(shape, dtype), indices).shape, dtype), 1)
            handles = [None if index is None else Handle(index) for index in indices]
            tensor = make(shape[::-1], dtype).permute(*reversed(range(len(shape))))
            same(call(wrap("index_Tensor"), tensor, *pointers(handles)), aten.index(tensor, indices).contiguous())
        for shape, dim, sizes, expanded in [((65, 1000), 1, (65, 900), False), ((1000, 65), 0, (1000, 65), False),
                                            ((2000, 301), 0, (2000, 301), True), ((3, 4000, 40), 1, (2, 4000, 39), False)]:
            tensor, source = make(shape, dtype), make(sizes, dtype)
            index = scatter_index(shape, dim, sizes, expanded, False)
            out = torch.zeros(shape, dtype=dtype)
            call(wrap("scatter_src_out"), out, tensor, int64(dim), index, source, results=0)
            same(out, torch.scatter(tensor, dim, index, source), (shape, dim, sizes))


def test_scatter_of_nan():
    """With a NaN among the numbers, the largest and the smallest are NaN."""
    nan = float("nan")
    tensor, source = torch.tensor([nan, 1.0, 2.0, -0.0]), torch.tensor([1.0, nan, 3.0, float("-inf"), 5.0])
    index = torch.tensor([0, 1, 2, 3, 1])
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (0, 1):
            out = torch.zeros(4)
            call(wrap("scatter_reduce_two_out"), out, tensor, int64(0), index, source, reduce.encode(), include,
                 results=0)
            same(out, torch.scatter_reduce(tensor, 0, index, source, reduce, include_self=bool(include)), reduce)
    refused("not supported for complex64", wrap("scatter_reduce_two_out"), make((4,), torch.complex64),
            make((4,), torch.complex64), int64(0), index, make((5,), torch.complex64), b"amax", 1, results=0)


def test_scatter():
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        for shape in [(9,), (5, 6), (3, 4, 5), (0, 3)]:
            for tensor in layouts(shape, dtype):
                for dim in dims_of(tensor):
                    index = torch.argsort(torch.rand(shape), dim)
                    source = make(shape, dtype)
                    for name, last in (("scatter_src_out", source), ("scatter_value_out", 3)):
                        out = torch.zeros(shape, dtype=dtype)
                        given = last if isinstance(last, torch.Tensor) else ctypes.c_double(last)
                        call(wrap(name), out, tensor, int64(dim), index, given, results=0)
                        same(out, torch.scatter(tensor, dim, index, last).contiguous(), name)


def test_scatter_reduce():
    for dtype in (torch.float32, torch.float64, torch.int64):
        for shape in [(), (9,), (5, 6), (3, 4, 5)]:
            for tensor in layouts(shape, dtype):
                for reduce in ("sum", "prod", "mean", "amax", "amin"):
                    for include in (0, 1):
                        dim = tensor.dim() - 1 if tensor.dim() else 0
                        index = torch.randint(0, shape[-1] if shape else 1, shape)
                        source, out = make(shape, dtype), torch.zeros(shape, dtype=dtype)
                        call(wrap("scatter_reduce_two_out"), out, tensor, int64(dim), index, source, reduce.encode(),
                             include, results=0)
                        wanted = torch.scatter_reduce(tensor, dim, index, source, reduce, include_self=bool(include))
                        same(out, wanted.contiguous(), reduce)


def test_index_reduce():
    for dtype in (torch.float32, torch.int64):
        for tensor in layouts((5, 4, 6), dtype):
            for dim in range(3):
                for reduce in ("prod", "mean", "amax", "amin"):
                    for include in (0, 1):
                        shape = list(tensor.shape)
                        shape[dim] = 7
                        index, source = torch.randint(0, tensor.shape[dim], (7,)), make(shape, dtype)
                        if 0 in tensor.stride():
                            continue
                        seen = call(wrap("index_reduce"), tensor, int64(dim), index, source, reduce.encode(), include)
                        wanted = torch.index_reduce(tensor, dim, index, source, reduce, include_self=bool(include))
                        same(seen, wanted.contiguous(), reduce)


def test_segment_reduce():
    for dtype in (torch.float32, torch.float64):
        for data in (make((10, 3), dtype), make((10,), dtype), make((3, 10), dtype).t()):
            lengths = torch.tensor([2, 0, 5, 3])
            for reduce in ("sum", "mean", "max", "min", "prod"):
                for initial in (None, 1.5):
                    handle = Handle(lengths)
                    seen = call(wrap("segment_reduce"), data, reduce.encode(), handle.pointer, None, None, int64(0), 0,
                                optional(None if initial is None else ctypes.c_double(initial)))
                    wanted = torch.segment_reduce(data.contiguous(), reduce, lengths=lengths, initial=initial)
                    same(seen, wanted, reduce)


# ---- searching ----

def test_searchsorted():
    for dtype in (torch.float32, torch.int64, torch.float64):
        for boundaries, values in [((8,), (5,)), ((8,), (3, 4)), ((3, 8), (3, 5)), ((0,), (4,)), ((8,), ())]:
            ordered = make(boundaries, dtype).sort(-1).values
            for value in layouts(values, dtype):
                for right in (0, 1):
                    for narrow in (0, 1):
                        seen = call(wrap("searchsorted_Tensor"), ordered, value, narrow, right, None, None)
                        same(seen, torch.searchsorted(ordered, value, right=bool(right), out_int32=bool(narrow)))
                        if ordered.dim() == 1:
                            seen = call(wrap("bucketize_Tensor"), value, ordered, narrow, right)
                            same(seen, torch.bucketize(value, ordered, right=bool(right), out_int32=bool(narrow)))
    large = torch.tensor([2 ** 62, 2 ** 62 + 1, 2 ** 62 + 2])
    same(call(wrap("searchsorted_Tensor"), large, large, 0, 0, None, None), torch.searchsorted(large, large))
    unordered = make((8,))
    sorter = unordered.argsort()
    handle, value = Handle(sorter), make((5,))
    same(call(wrap("searchsorted_Tensor"), unordered, value, 0, 0, None, handle.pointer),
         torch.searchsorted(unordered, value, sorter=sorter))


# ---- lanes with lengths around those of blocks, of one sorting step, and of digits; enough of them for several threads ----

LENGTHS = [1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 66, 255, 256, 257, 700, 2100]
EXACT = {"rtol": 0, "atol": 0}


def contents(count, length):
    """Yields lanes whose elements are ordinary, equal, few, in order, extreme, or NaN."""
    infinity, nan = float("inf"), float("nan")
    special = torch.tensor([nan, infinity, -infinity, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        yield make((count, length), dtype)
        yield special[torch.randint(0, len(special), (count, length))].to(dtype)
        yield special[torch.randint(1, len(special), (count, length))].to(dtype)
    extremes = torch.tensor([-2 ** 63, 2 ** 63 - 1, -1, 0, 1, 2 ** 32, -2 ** 32])
    yield extremes[torch.randint(0, len(extremes), (count, length))]
    yield torch.randint(-2 ** 62, 2 ** 62, (count, length))
    yield torch.arange(count * length, dtype=torch.int32).reshape(count, length)
    yield -torch.arange(count * length, dtype=torch.float32).reshape(count, length)
    yield torch.randint(0, 4, (count, length), dtype=torch.uint8)
    yield torch.zeros(count, length)
    yield torch.full((count, length), nan)


def on_three_threads(test):
    """Returns the test with three threads, which divide the work if there is enough."""
    def run():
        threads = torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            test()
        finally:
            torch.set_num_threads(threads)
    return run


def lanes_of_all_kinds():
    """Yields each tensor with the dimension along which its lanes are."""
    for length in LENGTHS:
        for tensor in contents(5 if length < 700 else 13, length):
            yield tensor, 1
            yield tensor.t(), 0
            yield tensor.t().contiguous(), 0


@on_three_threads
def test_sort_of_lanes():
    for tensor, dim in lanes_of_all_kinds():
        for descending in (0, 1):
            values, places = call(wrap("sort_stable"), tensor, None, int64(dim), descending, results=2)
            wanted = torch.sort(tensor, dim=dim, descending=bool(descending), stable=True)
            same(values, wanted.values, **EXACT)
            same(places, wanted.indices)
    

@on_three_threads
def test_topk_of_lanes():
    for tensor, dim in lanes_of_all_kinds():
        length = tensor.shape[dim]
        for largest in (0, 1):
            wanted = torch.sort(tensor, dim=dim, descending=bool(largest), stable=True)
            for count in sorted({0, 1, min(5, length), length // 4 - (length >= 4), (length + 3) // 4, length - 1, length}):
                values, places = call(wrap("topk"), tensor, int64(count), int64(dim), largest, 1, results=2)
                most = torch.topk(tensor, count, dim, bool(largest)).values
                same(values, most.clone(memory_format=torch.contiguous_format), count, **EXACT)
                # The first ones of equal elements, which PyTorch does not promise.
                first = wanted.indices.narrow(dim, 0, count)
                same(places, first.clone(memory_format=torch.contiguous_format), count)


@on_three_threads
def test_kthvalue_of_lanes():
    for tensor, dim in lanes_of_all_kinds():
        length = tensor.shape[dim]
        order = torch.sort(tensor, dim=dim, stable=True).indices
        for k in sorted({1, min(2, length), (length + 1) // 2, length}):
            values, places = call(wrap("kthvalue"), tensor, int64(k), int64(dim), 0, results=2)
            same(values, torch.kthvalue(tensor, k, dim).values, k, **EXACT)
            same(places, order.select(dim, k - 1).contiguous(), k)


@on_three_threads
def test_median_mode_of_lanes():
    for tensor, dim in lanes_of_all_kinds():
        same(call(wrap("median"), tensor), torch.median(tensor), **EXACT)
        same(call(wrap("nanmedian"), tensor), torch.nanmedian(tensor), **EXACT)
        values, places = call(wrap("mode"), tensor, int64(dim), 0, results=2)
        is_nan = tensor.isnan()
        if not is_nan.any():
            same(values, torch.mode(tensor, dim).values, **EXACT)
            backwards = (tensor == values.unsqueeze(dim)).flip(dim).to(torch.uint8)
            same(places, tensor.shape[dim] - 1 - backwards.argmax(dim), "the last place")


@on_three_threads
def test_scans_of_lanes():
    for tensor, dim in lanes_of_all_kinds():
        exact = {} if tensor.dtype == torch.bfloat16 else EXACT
        for name in ("cumsum", "cumprod"):
            # PyTorch multiplies bfloat16 as float32: tiny numbers become zero, and infinity times zero NaN.
            if name == "cumsum" or exact or tensor.isfinite().all():
                wanted = getattr(torch, name)(tensor, dim).contiguous()
                same(call(wrap(name), tensor, int64(dim), None), wanted, name, **exact)
        for name in ("cummax", "cummin"):
            values, places = call(wrap(name), tensor, int64(dim), results=2)
            wanted = getattr(torch, name)(tensor, dim)
            same(values, wanted.values.contiguous(), name, **EXACT)
            same(places, wanted.indices.contiguous(), name)
        if tensor.is_floating_point():
            same(call(wrap("logcumsumexp"), tensor, int64(dim)), torch.logcumsumexp(tensor, dim).contiguous())
    for lanes in (1, 7, 8, 9, 16, 17):
        for shape, dim in (((lanes, 5), 1), ((5, lanes), 0), ((3, 5, lanes), 1)):
            tensor = make(shape)
            same(call(wrap("cumsum"), tensor, int64(dim), None), torch.cumsum(tensor, dim), lanes, **EXACT)


@on_three_threads
def test_searchsorted_of_rows():
    infinity, nan = float("inf"), float("nan")
    special = torch.tensor([nan, infinity, -infinity, 0.0, -0.0, 1.0, -1.0])
    extremes = torch.tensor([-2 ** 63, 2 ** 63 - 1, -1, 0, 1])
    for count in (0, 1, 2, 3, 6, 7, 8, 9, 16, 1000):
        for pool in (special, special.double(), special.half(), extremes, extremes.clamp(-9, 9).to(torch.int32),
                     make((300,)), torch.randint(-9, 9, (50,))):
            for rows, values in (((), (400,)), ((), ()), ((3,), (3, 90)), ((2, 2), (2, 2, 700))):
                given = pool[torch.randint(0, len(pool), (*rows, count))]
                sought = pool[torch.randint(0, len(pool), values)]
                ordered, sorter = given.sort(-1)
                handle = Handle(sorter)
                for right in (0, 1):
                    wanted = torch.searchsorted(ordered, sought, right=bool(right))
                    same(call(wrap("searchsorted_Tensor"), ordered, sought, 0, right, None, None), wanted, count)
                    if rows or values:
                        seen = call(wrap("searchsorted_Tensor"), given, sought, 0, right, None, handle.pointer)
                        same(seen, torch.searchsorted(given, sought, right=bool(right), sorter=sorter), "sorter")


def test_histc():
    for dtype in (torch.float32, torch.float64):
        for tensor in every([dtype]):
            for bins, low, high in [(10, 0.0, 0.0), (3, -1.0, 1.0), (100, -3.0, 3.0)]:
                if tensor.numel() == 0 and low == high:
                    continue
                same(call(wrap("histc"), tensor, int64(bins), ctypes.c_double(low), ctypes.c_double(high)),
                     torch.histc(tensor, bins, low, high))


def test_gcd():
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        for shapes in [((7, 5), (7, 5)), ((4, 1), (3,)), ((), (4,)), ((0,), (0,))]:
            first, second = make(shapes[0], dtype) * 6, make(shapes[1], dtype) * 4
            same(call(wrap("gcd"), first, second), torch.gcd(first, second))


# ---- transforms ----

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 31, 37, 64, 74, 97, 100, 121, 128, 210, 509, 1000, 1024, 1021]


def test_fft_lengths():
    for length in LENGTHS:
        for dtype in (torch.complex64, torch.complex128):
            signal = make((2, length), dtype)
            close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.complex64 else {"rtol": 1e-7, "atol": 1e-9}
            for normalization in (0, 1, 2):
                for forward in (0, 1):
                    same(call(wrap("_fft_c2c"), signal, *numbers([1]), int64(normalization), forward),
                         aten._fft_c2c(signal, [1], normalization, bool(forward)), length, **close)
            real = signal.real.contiguous()
            for onesided in (0, 1):
                same(call(wrap("_fft_r2c"), real, *numbers([1]), int64(0), onesided),
                     aten._fft_r2c(real, [1], 0, bool(onesided)), length, **close)
            half = aten._fft_r2c(real, [1], 0, True)
            same(call(wrap("_fft_c2r"), half, *numbers([1]), int64(2), int64(length)),
                 aten._fft_c2r(half, [1], 2, length), length, **close)


def test_fft_dimensions():
    for dims in ([0], [1], [2], [2, 0], [0, 1, 2], [2, 1], [1, 2]):
        for signal in layouts((4, 6, 5), torch.complex64):
            same(call(wrap("_fft_c2c"), signal, *numbers(dims), int64(1), 1),
                 aten._fft_c2c(signal, dims, 1, True), dims)
        for signal in layouts((4, 6, 5), torch.float32):
            for onesided in (0, 1):
                same(call(wrap("_fft_r2c"), signal, *numbers(dims), int64(0), onesided),
                     aten._fft_r2c(signal, dims, 0, bool(onesided)), dims)


# ---- distances and grids ----

def test_distances():
    for dtype in (torch.float32, torch.float64):
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, float("inf")):
            for tensor in layouts((7, 4), dtype):
                tensor = tensor.contiguous()
                same(call(wrap("_pdist_forward"), tensor, ctypes.c_double(p)), aten._pdist_forward(tensor, p), p)
            for first, second in [((5, 3), (4, 3)), ((2, 5, 3), (2, 4, 3)), ((2, 1, 5, 3), (4, 6, 3)),
                                  ((0, 3), (4, 3))]:
                first, second = make(first, dtype), make(second, dtype)
                same(call(wrap("_cdist_forward"), first, second, ctypes.c_double(p), None),
                     aten._cdist_forward(first, second, p, None), p, rtol=1e-4, atol=1e-4)


def test_distances_of_many():
    """Enough rows that a matrix multiplication computes them, or all threads do, and some equal rows."""
    for dtype in (torch.float32, torch.float64):
        for rows, others, width in [(100, 150, 64), (26, 3, 5), (3, 26, 5), (25, 25, 33), (70, 129, 1), (90, 65, 17)]:
            first, second = make((rows, width), dtype), make((2, others, width), dtype)
            second[0, others // 2] = first[rows // 2]
            for p in (0.0, 0.5, 1.0, 2.0, 3.0, float("inf")):
                for mode in (None, 0, 1, 2):
                    pointer = optional(None if mode is None else int64(mode))
                    seen = call(wrap("_cdist_forward"), first, second, ctypes.c_double(p), pointer)
                    # For equal rows, the square from the multiplication is only a rounding error.
                    accuracy = 3e-2 if dtype == torch.float32 and p == 2 and mode != 2 else 1e-3 if p == 2 else 1e-4
                    same(seen, aten._cdist_forward(first, second, p, mode), (p, mode), rtol=1e-4, atol=accuracy)
                    assert p != 2 or mode != 2 or seen[0, rows // 2, others // 2] == 0
                same(call(wrap("_pdist_forward"), first, ctypes.c_double(p)), aten._pdist_forward(first, p), p,
                     rtol=1e-4, atol=1e-4)
            turned = make((width, rows), dtype).t()
            same(call(wrap("_cdist_forward"), turned, second, ctypes.c_double(1), None),
                 aten._cdist_forward(turned, second, 1.0, None), rtol=1e-4, atol=1e-4)


def test_distances_of_no_number():
    nan, infinite = float("nan"), float("inf")
    first = torch.tensor([[nan, 1, 2], [infinite, 1, 2], [-infinite, 1, 0], [1e30, 1, 2], [3, 1, 2], [0, 0, 0]])
    for dtype in (torch.float32, torch.float64):
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, infinite):
            # The shim computes cubes as doubles, so sums are finite that overflow with floats.
            rows = first.to(dtype).clamp(-1e12, 1e12) if p == 3 else first.to(dtype)
            same(call(wrap("_pdist_forward"), rows, ctypes.c_double(p)), aten._pdist_forward(rows, p), p)
            for mode in (1, 2):
                same(call(wrap("_cdist_forward"), rows, rows, ctypes.c_double(p), optional(int64(mode))),
                     aten._cdist_forward(rows, rows, p, mode), (p, mode))
    refused("compute_mode 3", wrap("_cdist_forward"), rows, rows, ctypes.c_double(2), optional(int64(3)))
    for shapes in [((3, 0), (40, 0)), ((0, 5), (40, 5)), ((40, 5), (0, 5)), ((0, 40, 5), (40, 5))]:
        rows, others = make(shapes[0]), make(shapes[1])
        same(call(wrap("_cdist_forward"), rows, others, ctypes.c_double(2), None),
             aten._cdist_forward(rows, others, 2.0, None))
    for shape in [(0, 3), (1, 3), (4, 0)]:
        same(call(wrap("_pdist_forward"), make(shape), ctypes.c_double(2)), aten._pdist_forward(make(shape), 2.0))


def test_grid_sampler_3d_of_many():
    """More points than are computed at a time, volumes that are shared among threads, positions that are NaN."""
    for dtype in (torch.float32, torch.float64):
        volume, grid = make((3, 5, 9, 8, 7), dtype).permute(0, 1, 4, 3, 2), torch.rand((3, 7, 11, 13, 3)).to(dtype) * 3 - 1.5
        grid[1, 2, 3, 4] = float("nan")
        grid[1, 2, 3, 5] = float("inf")
        volume[0, 0, 0, 0, 0] = float("inf")
        for mode in (0, 1):
            for padding in (0, 1, 2):
                for corners in (0, 1):
                    seen = call(wrap("grid_sampler_3d"), volume, grid, int64(mode), int64(padding), corners)
                    same(seen, aten.grid_sampler_3d(volume, grid, mode, padding, bool(corners)).contiguous(),
                         (mode, padding, corners))


def test_grid_sampler_3d():
    for dtype in (torch.float32, torch.float64):
        volume = make((2, 3, 4, 5, 6), dtype)
        grid = torch.rand((2, 3, 2, 4, 3)).to(dtype) * 4 - 2
        for mode in (0, 1):
            for padding in (0, 1, 2):
                for corners in (0, 1):
                    seen = call(wrap("grid_sampler_3d"), volume, grid, int64(mode), int64(padding), corners)
                    same(seen, aten.grid_sampler_3d(volume, grid, mode, padding, bool(corners)),
                         (mode, padding, corners))


def test_embedding_bag():
    """Compares sums, averages and maxima, and the outputs that describe the bags."""
    for dtype in (torch.float32, torch.float64, torch.float16):
        for table in [*layouts((7, 4), dtype), make((7, 11), dtype)]:
            table, indices = table.contiguous(), torch.tensor([1, 6, 0, 0, 3, 2, 5])
            for mode in (0, 1, 2):
                for last, offsets in ((0, [0, 2, 2, 5]), (1, [0, 2, 2, 5, 7])):
                    for padding in (-1, 0):
                        offsets = torch.tensor(offsets) if isinstance(offsets, list) else offsets
                        for name in ("_embedding_bag", "_embedding_bag_forward_only"):
                            seen = call(wrap(name), table, indices, offsets, 0, int64(mode), 0, None, last, int64(padding),
                                        results=4)
                            wanted = getattr(aten, name)(table, indices, offsets, False, mode, False, None, bool(last),
                                                         padding)
                            for i in range(4):
                                same(seen[i], wanted[i], (name, mode, last, padding, i))
    refused("index 9 is outside a table of 7 rows", wrap("_embedding_bag_forward_only"), make((7, 4)),
            torch.tensor([9]), torch.tensor([0]), 0, int64(0), 0, None, 0, int64(-1), results=4)


def test_large_embedding_bag():
    """Rows of several vectors, enough that threads share the bags; with weights and a padding row."""
    indices = torch.randint(0, 300, (6000,))
    offsets = torch.cat([torch.tensor([0, 0]), torch.sort(torch.randint(0, 6000, (200,)))[0]])
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for width in (1, 20, 64, 70, 130):
            table, weights = torch.randn(300, width).to(dtype), torch.rand(6000).to(dtype)
            for mode, factors, padding in ((0, None, -1), (0, weights, 5), (1, None, 5), (2, None, -1)):
                handle = Handle(factors) if factors is not None else None
                seen = call(wrap("_embedding_bag"), table, indices, offsets, 0, int64(mode), 0,
                            handle.pointer if handle is not None else None, 0, int64(padding), results=4)
                wanted = aten._embedding_bag(table, indices, offsets, False, mode, False, factors, False, padding)
                for i in range(4):
                    same(seen[i], wanted[i], (dtype, width, mode, i))


# ---- random numbers ----

def seed(number):
    torch.manual_seed(number)
    shim.torch_aoticache_manual_seed(ctypes.c_uint64(number))


def new(name, shape, dtype, *before):
    return call(wrap(name), *before, *numbers(shape), optional(ctypes.c_int32(NUMBERS[dtype])), None, None, 0, None)


def test_random():
    for number in (0, 1, 2 ** 40 + 5):
        seed(number)
        for shape in [(), (3,), (15,), (16,), (17,), (5, 7), (1000,), (0,)]:
            for dtype in (torch.float32, torch.float64):
                same(new("rand", shape, dtype), torch.rand(shape, dtype=dtype), "rand %s" % (shape,))
                same(new("randn", shape, dtype), torch.randn(shape, dtype=dtype), "randn %s" % (shape,))
            for high in (2, 1000, 2 ** 27 + 3, 2 ** 40 + 1):
                same(new("randint", shape, torch.int64, int64(high)), torch.randint(high, shape), high)
        for count in (0, 1, 2, 30, 1000):
            seen = call(wrap("randperm"), int64(count), None, None, None, 0, None)
            same(seen, torch.randperm(count), count)
        out, wanted = torch.zeros(7, dtype=torch.int64), torch.zeros(7, dtype=torch.int64)
        low, high = -2 ** 63, 2 ** 63 - 1
        call(wrap("randint_low_out"), out, int64(low), int64(high), *numbers([7]), results=0)
        aten.randint.low_out(low, high, [7], out=wanted)
        same(out, wanted, "randint_low_out")


def test_random_like():
    for tensor in every([torch.float32, torch.float64], SHAPES[:-1]):
        if 0 in tensor.stride() and tensor.numel() > 1:
            continue
        seed(7)
        same(call(wrap("uniform"), tensor, ctypes.c_double(-2), ctypes.c_double(3), None),
             aten.uniform(tensor, -2, 3), "uniform")
        same(call(wrap("normal_functional"), tensor, ctypes.c_double(1), ctypes.c_double(2), None),
             aten.normal_functional(tensor, 1, 2), "normal")


def test_bernoulli_mean():
    """PyTorch draws these with Intel's MKL: only the fraction of ones can be compared."""
    out = torch.zeros(20000)
    call(wrap("bernoulli__float"), out, ctypes.c_double(0.3), None, results=0)
    assert set(out.unique().tolist()) == {0.0, 1.0} and abs(out.mean() - 0.3) < 0.02, out.mean()


# ---- refusals ----

def refused(text, name, *arguments, results=1):
    try:
        call(name, *arguments, results=results)
    except Failed as failure:
        assert text in str(failure), "%s says: %s" % (name, failure)
        return
    raise AssertionError("%s succeeded" % name)


def test_refusals():
    tensor, index = make((3, 4)), torch.tensor([[5, 0, 0, 0]])
    refused("dimension 2", wrap("cumsum"), tensor, int64(2), None)
    refused("dimensions for a tensor with 2", wrap("permute"), tensor, *numbers([0]))
    refused("given twice", wrap("permute"), tensor, *numbers([0, 0]))
    refused("index 5 is outside", wrap("scatter_src_out"), tensor.clone(), tensor, int64(0), index, tensor, results=0)
    refused("not one of sum", wrap("scatter_reduce_two_out"), tensor.clone(), tensor, int64(0), index, tensor,
            b"median", 1, results=0)
    refused("not supported for float32", wrap("gcd"), tensor, tensor)
    refused("not supported for complex64", wrap("sort"), make((3,), torch.complex64), int64(0), 0, results=2)
    refused("the first 9 of 4", wrap("topk"), tensor, int64(9), int64(1), 1, 1, results=2)
    refused("must be bool", wrap("masked_select"), tensor, tensor)
    refused("unknown dtype", wrap("rand"), *numbers([3]), optional(ctypes.c_int32(99)), None, None, 0, None)
    refused("from 5 to below 5", wrap("randint_low_out"), tensor.long(), int64(5), int64(5), *numbers([3, 4]),
            results=0)
    refused("-1 dimensions", wrap("rand"), None, int64(-1), None, None, None, 0, None)
