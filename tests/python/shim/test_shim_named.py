"""Compares the operators that the shim has by name, except linear algebra (images, medians, histograms, complex numbers, the
exponential of matrices), and nn.functional.bilinear, with PyTorch's of the same schemas: float32 and float64, layouts, sizes
of 0, refusals. Random values from a fixed seed. Environment: BUILD, the build directory.
"""
import ctypes
import itertools
import warnings

import pytest
import torch

import shim_checks
import test_shim_linear_algebra as linear
from test_shim_blas import i64, numbers

pytestmark = pytest.mark.quick
warnings.simplefilter("ignore")
aten = torch.ops.aten
REAL = [torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
EXACT = {"rtol": 0, "atol": 0}
begin = shim_checks.seeded(3)


@pytest.fixture(scope="module")
def shim():
    return linear.Shim(shim_checks.SHIM)


def close(seen, wanted, **allowed):
    """Compares within PyTorch's own tolerances for the dtype, which are narrower than those of linear algebra."""
    assert seen.dtype == wanted.dtype and seen.shape == wanted.shape, (seen.dtype, seen.shape, wanted.dtype, wanted.shape)
    torch.testing.assert_close(seen, wanted, equal_nan=True, check_stride=seen.numel() > 1, **allowed)


def by_name(shim, name, *values, allowed={}, **named):
    packet, _, overload = name.partition(".")
    wanted = getattr(getattr(aten, packet), overload or "default")(*values, **named)
    seen = shim.by_name("aten::" + name, *values, **named)
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    assert len(seen) == len(wanted), (name, len(seen), len(wanted))
    for one, other in zip(seen, wanted):
        close(one, other, **allowed)
    return seen


def refused(shim, text, name, *values, **named):
    try:
        shim.by_name("aten::" + name, *values, **named)
    except RuntimeError as error:
        assert text in str(error), "%s says: %s" % (name, error)
        return
    raise AssertionError("%s is not refused: %s" % (name, text))


# ---- images ----

FILTERS = ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"]
RESIZES = [((8, 9), (4, 5)), ((8, 9), (8, 9)), ((5, 7), (13, 10)), ((64, 50), (7, 3)), ((9, 11), (1, 1)), ((1, 1), (4, 3)),
           ((33, 6), (2, 40))]


def test_images(shim):
    for dtype, name, (size, wanted), corners in itertools.product((*REAL, torch.uint8), FILTERS, RESIZES, (False, True)):
        if dtype == torch.uint8 and wanted == (1, 1):
            continue  # an assertion inside PyTorch fails
        image = torch.randint(0, 256, (2, 3, *size)).byte() if dtype == torch.uint8 else torch.randn(2, 3, *size, dtype=dtype)
        by_name(shim, name, image, wanted, corners)
        by_name(shim, name, image.to(memory_format=torch.channels_last), wanted, corners)
        by_name(shim, name, image.transpose(2, 3).contiguous().transpose(2, 3), wanted, corners)
        ratios = wanted[0] / size[0], wanted[1] / size[1]
        # With smaller scales, filters reach past the image's end, and PyTorch reads there.
        for scales in ((ratios[0] * 1.01, ratios[1] * 1.2), (ratios[0] * 1.5, None), (None, ratios[1] * 3)):
            by_name(shim, name, image, wanted, corners, *scales)
            by_name(shim, name, image, (size[0], wanted[1]), corners, *scales)
    spot = torch.zeros(1, 1, 3, 4)
    spot[0, 0, 1, 1] = float("inf")
    for name, wanted in itertools.product(FILTERS, ([3, 4], [3, 8], [6, 4])):
        by_name(shim, name, spot, wanted, False)
    by_name(shim, FILTERS[0], torch.randn(0, 3, 8, 9), [4, 5], False)
    shim.by_name("aten::" + FILTERS[0], torch.randn(1, 1, 8, 9), [4, 5], False, 1e-300, 1e300)


def test_image_failures(shim):
    for name in FILTERS:
        refused(shim, "not supported for bfloat16", name, torch.ones(1, 1, 4, 4).bfloat16(), [2, 2], False)
        refused(shim, "four dimensions", name, torch.ones(1, 4, 4), [2, 2], False)
        refused(shim, "to 0 x 2", name, torch.ones(1, 1, 4, 4), [0, 2], False)
        refused(shim, "from 0 channels", name, torch.ones(1, 0, 4, 4), [2, 2], False)


# ---- along a dimension ----

def test_medians(shim):
    for dtype in (*REAL, torch.int64, torch.int32, torch.bfloat16):
        for shape, dim in (((5, 8), 1), ((5, 8), -2), ((4, 1, 7), 1), ((9,), 0), ((), 0), ((0, 3), 1), ((2, 0, 3), 2)):
            for holes in (False, True):
                x = (torch.randn(shape) * 9).to(dtype)
                if holes and dtype.is_floating_point and x.dim() > 0:
                    x[torch.rand(shape) < 0.4] = float("nan")
                for keep, name in itertools.product((False, True), ("median.dim", "nanmedian.dim")):
                    packet = getattr(aten, name.split(".")[0]).dim
                    values, places = shim.by_name("aten::" + name, x, dim, keep)
                    close(values, packet(x, dim, keep)[0], **EXACT)
                    # PyTorch does not promise which of equal elements it returns.
                    at = places if keep or x.dim() == 0 else places.unsqueeze(dim)
                    there = x.gather(dim, at) if keep or x.dim() == 0 else x.gather(dim, at).squeeze(dim)
                    close(there.contiguous(), values.contiguous(), **EXACT)
    nothing = torch.full((2, 3), float("nan"))
    for x in (nothing, torch.tensor([[1.0, float("nan"), 2.0, float("nan")]])):
        by_name(shim, "nanmedian.dim", x, 1)
        by_name(shim, "median.dim", x, 1)
    refused(shim, "no elements", "nanmedian.dim", torch.ones(3, 0), 1)
    refused(shim, "not supported for bool", "median.dim", torch.ones(3) > 0, 0)
    refused(shim, "dimension 4", "nanmedian.dim", torch.ones(3, 2), 4)


def counts(shim, points, bins, bounds, weights, density):
    held = (ctypes.c_double * len(bounds or [0]))(*(bounds or [0]))
    place = ctypes.byref(ctypes.cast(held, ctypes.c_void_p)) if bounds else None
    handle = shim.wrap(weights) if weights is not None else None
    try:
        return shim.run("aoti_torch_cpu__histogramdd_from_bin_cts", [points], *numbers(bins), place, i64(len(bounds or [])),
                        ctypes.byref(handle) if handle is not None else None, int(density))[0]
    finally:
        if handle is not None:
            shim.call("aoti_torch_delete_tensor_object", handle)


def test_histograms(shim):
    for dtype in REAL:
        for shape, bins in (((40, 2), [3, 4]), ((6, 7, 3), [2, 5, 1]), ((50, 1), [9]), ((0, 2), [3, 2])):
            points, weights = torch.randn(shape, dtype=dtype), torch.rand(shape[:-1], dtype=dtype)
            for bounds in (None, [b for _ in bins for b in (-1.0, 1.5)], [0.0] * (2 * len(bins))):
                by_name(shim, "_histogramdd_bin_edges", points, bins, range=bounds)
                by_name(shim, "_histogramdd_bin_edges", points.mT.contiguous().mT, bins, range=bounds)
                for weight, density in itertools.product((None, weights), (False, True)):
                    if shape[0] > 0 or not density:
                        wanted = aten._histogramdd_from_bin_cts(points, bins, range=bounds, weight=weight, density=density)
                        close(counts(shim, points, bins, bounds, weight, density), wanted)
    points = torch.tensor([[float("nan")], [0.5], [1.0], [-0.1]])
    close(counts(shim, points, [3], [0.0, 1.0], None, False), aten._histogramdd_from_bin_cts(points, [3], range=[0.0, 1.0]))
    refused(shim, "bins from nan", "_histogramdd_bin_edges", points, [3])
    refused(shim, "range of 3 numbers", "_histogramdd_bin_edges", points, [3], range=[0.0, 1.0, 2.0])
    refused(shim, "0 bins", "_histogramdd_bin_edges", points, [0])
    refused(shim, "points of 2 numbers", "_histogramdd_bin_edges", points, [3, 3])
    refused(shim, "not supported for int64", "_histogramdd_bin_edges", points.long(), [3])


# ---- complex numbers ----

UNARY = ["exp", "log", "neg", "reciprocal", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "sinh", "cosh", "tanh"]


def test_complex(shim):
    for dtype, name in itertools.product(COMPLEX, UNARY):
        for x in (torch.randn(6, 7, dtype=dtype), torch.randn(6, 7, dtype=dtype).t(), torch.randn((), dtype=dtype),
                  torch.randn(0, 3, dtype=dtype), torch.randn(5, 8, dtype=dtype)[:, ::2]):
            by_name(shim, name, x)
    for dtype in COMPLEX:
        for name in ("sub.Tensor", "div.Tensor"):
            for others in ((6, 7), (7,), (6, 1), (), (2, 6, 7), (0, 1, 1)):
                for other in (*COMPLEX, *REAL, torch.int64):
                    x, y = torch.randn(6, 7, dtype=dtype), (torch.randn(others) * 5 + 9).to(other)
                    by_name(shim, name, x, y)
                    by_name(shim, name, y, x)
                    by_name(shim, name, x.t().contiguous().t(), y)
                    by_name(shim, name, y.mT.contiguous().mT if y.dim() > 1 else y, x)
    by_name(shim, "sub.Tensor", torch.ones(3, dtype=torch.complex64), torch.ones(3), alpha=2.5)
    zeros = torch.tensor([1 + 1j, 0, 1, 2j]), torch.tensor([0j, 0, 2, 0])
    by_name(shim, "div.Tensor", *zeros)
    large = torch.tensor([1e200 + 1e200j, 1e-300j], dtype=torch.complex128)
    close(shim.by_name("aten::div.Tensor", large, large)[0], torch.ones(2, dtype=torch.complex128))
    refused(shim, "not float32", "exp", torch.ones(3))
    refused(shim, "not float32", "div.Tensor", torch.ones(3), torch.ones(3))
    refused(shim, "not complex32", "neg", torch.ones(3, dtype=torch.complex32))
    refused(shim, "sizes 3 and 2", "sub.Tensor", torch.ones(3, dtype=torch.complex64), torch.ones(2))


def test_complex_functions(shim):
    """The functions that PyTorch's interface has."""
    number = ctypes.c_double
    for dtype in COMPLEX:
        for x in (torch.randn(6, 7, dtype=dtype), torch.randn(6, 7, dtype=dtype).t(), torch.randn((), dtype=dtype), torch.randn(0, dtype=dtype)):
            for y in (torch.rand(1, dtype=torch.float64), torch.rand(x.shape, dtype=dtype)):
                for name, packet, arguments, named in (("add_Tensor", aten.add, [number(1.5)], {"alpha": 1.5}), ("mul_Tensor", aten.mul, [], {}),
                                                       ("pow_Tensor_Tensor", aten.pow, [], {})):
                    close(shim.run("aoti_torch_cpu_" + name, [x, y], *arguments)[0], packet(x, y, **named))
            close(shim.run("aoti_torch_cpu_add_Scalar", [x], number(0.3), number(2))[0], aten.add(x, 0.3, alpha=2))
            close(shim.run("aoti_torch_cpu_mul_Scalar", [x], number(0.3))[0], aten.mul(x, 0.3))
            close(shim.run("aoti_torch_cpu_abs", [x])[0], x.abs())
            # PyTorch compiles these two for these strides; eager PyTorch's results are contiguous.
            close(shim.run("aoti_torch_cpu_angle", [x])[0], torch.empty_like(x, dtype=x.real.dtype).copy_(x.angle()))
            for power in (2.0, -1.0, 0.5, 2.5):
                close(shim.run("aoti_torch_cpu_pow_Tensor_Scalar", [x], number(power))[0], aten.pow(x, power))
            handle, result = shim.wrap(x), ctypes.c_void_p()
            shim.call("aoti_torch_cpu_pow_Scalar", number(1.7), handle, ctypes.byref(result))
            shim.call("aoti_torch_delete_tensor_object", handle)
            close(shim.unwrap(result), torch.empty_like(x).copy_(aten.pow(1.7, x)))
    for call in (lambda: shim.run("aoti_torch_cpu_add_Scalar", [torch.ones(2)], number(1), number(1)),
                 lambda: shim.run("aoti_torch_cpu_abs", [torch.ones(2)])):
        try:
            call()
        except RuntimeError as error:
            assert "only complex64 and complex128 are supported" in str(error), error
        else:
            raise AssertionError("real numbers are not refused")


# ---- matrices ----

def test_matrix_exponential(shim):
    for dtype, size, n in itertools.product((*REAL, *COMPLEX), (1e-6, 0.1, 1.0, 4.0, 25.0), (1, 2, 5, 16)):
        for batch in ([], [3], [2, 1], [0]):
            a = torch.randn(*batch, n, n, dtype=dtype)
            a = a * (size / max(1.0, n ** 0.5))
            for x in (a, a.mT):
                wanted = aten.linalg_matrix_exp(x)
                seen, = shim.by_name("aten::linalg_matrix_exp", x)
                # The possible accuracy depends on the size of the whole matrix, not of an element.
                unit = wanted.abs().amax((-1, -2), keepdim=True) if wanted.numel() else torch.ones(1)
                close(seen / unit, wanted / unit, rtol=0, atol=2e-5 if dtype in (torch.float32, torch.complex64) else 1e-12)
                assert seen.stride() == wanted.stride() or seen.numel() < 2
    for x in (torch.zeros(3, 3), torch.eye(2, dtype=torch.float64), torch.zeros(2, 0, 0), torch.full((2, 2), float("inf")),
              torch.full((2, 2), float("nan")), torch.diag(torch.tensor([1.0, 2.0, -3.0]))):
        by_name(shim, "linalg_matrix_exp", x)
    refused(shim, "square", "linalg_matrix_exp", torch.ones(2, 3))
    refused(shim, "not int64", "linalg_matrix_exp", torch.ones(2, 2, dtype=torch.int64))


def trilinear(shim, tensors, expands, summed, unrolled=1):
    lists = [part for expand in (*expands, summed) for part in numbers(expand)]
    return shim.run("aoti_torch_cpu__trilinear", tensors, *lists, i64(unrolled))[0]


def test_trilinear(shim):
    bilinear = [[1, 3], [0], [1, 2]], [2, 3]
    for dtype in (*REAL, torch.complex64, torch.bfloat16):
        for n, out, first, second in ((4, 5, 3, 2), (1, 1, 1, 1), (0, 3, 2, 2), (3, 0, 2, 2), (3, 2, 0, 4), (33, 7, 20, 17), (2, 3, 1, 5)):
            tensors = [torch.randn(shape).to(dtype) for shape in ((n, first), (out, first, second), (n, second))]
            for unrolled in range(4):
                allowed = {"rtol": 0.05, "atol": 0.5} if dtype == torch.bfloat16 else {}
                seen = trilinear(shim, tensors, *bilinear, unrolled)
                close(seen, aten._trilinear(*tensors, *bilinear[0], bilinear[1], unrolled), **allowed)
    a, b, c = torch.randn(5, 4).t(), torch.randn(2, 4, 5), torch.randn(2, 5)
    cases = [([a, b, c], [[0], [], [1]], [1]), ([a, b, c], [[0], [], [1]], []), ([a, b, c], [[0], [], [1]], [0, 1, 2]),
             ([a[:1], b, c], [[0], [], [1]], [1, 2]), ([a, b, c[:1]], [[-3], [], [1]], [0, 2])]
    for tensors, expands, summed in cases:
        whole = [tensor.clone() for tensor in tensors]
        for i, expand in enumerate(expands):
            for dim in expand:
                whole[i] = whole[i].unsqueeze(dim)
        product = whole[0] * whole[1] * whole[2]
        wanted = product.sum(summed) if summed else product
        for unrolled in range(3):
            torch.testing.assert_close(trilinear(shim, tensors, expands, summed, unrolled), wanted)


def test_trilinear_failures(shim):
    good = [torch.ones(2, 3), torch.ones(4, 3, 5), torch.ones(2, 5)]
    for tensors, expands, summed, unrolled, text in (
            (good, [[1], [0], [1, 2]], [2, 3], 1, "dimension 3"), (good, [[1, 3], [0], [1, 2]], [2, 3], 4, "of which 4"),
            (good, [[1, 1], [0], [1, 2]], [2, 3], 1, "twice"), (good, [[1, 3], [0], [1, 2]], [2, 9], 1, "dimension 9"),
            ([good[0], good[1], torch.ones(2, 6)], [[1, 3], [0], [1, 2]], [2, 3], 1, "sizes 5 and 6"),
            ([good[0].double(), *good[1:]], [[1, 3], [0], [1, 2]], [2, 3], 1, "the same dtype")):
        try:
            trilinear(shim, tensors, expands, summed, unrolled)
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError("not refused: " + text)


def test_every_operator_was_tried(shim, request):
    shim_checks.skip_unless_all_run(request)
    assert shim.tried == linear.ELSEWHERE, sorted(shim.tried ^ linear.ELSEWHERE)
