"""Compares linear algebra by LAPACK, and the shim's other functions that are called by name (runtime/named_operators.h), with
PyTorch's operators of the same schemas: real and complex numbers, batches, sizes of 0, strides of results. Random matrices
from a fixed seed.

Vectors of a decomposition are unique except for their sign, so the test compares products. If LAPACK cannot be loaded, each
operator reports that. Environment: BUILD, the build directory.
"""
import ctypes
import itertools
import random

import pytest
import torch

import shim_checks
import test_shim_blas as products
from test_shim_blas import i64

pytestmark = pytest.mark.quick
aten = torch.ops.aten
MORE = {torch.int32: 3, torch.complex32: 8, torch.bool: 11}
products.NUMBERS.update(MORE)
products.DTYPES.update({number: dtype for dtype, number in MORE.items()})
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
# The operators that test_shim_named.py tests.
ELSEWHERE = {"aten::" + name for name in (
    "_histogramdd_bin_edges", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_lanczos2d_aa", "cos", "cosh", "div.Tensor",
    "exp", "linalg_matrix_exp", "log", "median.dim", "nanmedian.dim", "neg", "reciprocal", "rsqrt", "sigmoid", "sin",
    "sinh", "sqrt", "sub.Tensor", "tan", "tanh")}
BATCHES = [[], [], [3], [2, 3], [0]]


class Argument(ctypes.Structure):  # aoticache_named_argument
    _fields_ = [("is_given", ctypes.c_bool), ("tensor", ctypes.c_void_p), ("integer", i64), ("number", ctypes.c_double),
                ("text", ctypes.c_char_p), ("integers", ctypes.POINTER(i64)), ("numbers", ctypes.POINTER(ctypes.c_double)),
                ("count", ctypes.c_size_t)]


class Named(ctypes.Structure):  # aoticache_named_operator
    _fields_ = [("schema", ctypes.c_char_p),
                ("call", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Argument), ctypes.POINTER(ctypes.c_void_p)))]


class Shim(products.Shim):
    def __init__(self, path):
        super().__init__(path)
        list_of = self.library.torch_aoticache_named_operators
        list_of.restype = ctypes.POINTER(Named)
        self.named, self.tried = {}, set()
        operators, i = list_of(), 0
        while operators[i].schema is not None:
            schema = torch._C.parse_schema(operators[i].schema.decode())
            name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
            self.named[name] = schema, operators[i].call
            i += 1

    def argument(self, value, held):
        given = Argument(is_given=value is not None)
        if isinstance(value, torch.Tensor):
            held.append(self.wrap(value))
            given.tensor = held[-1]
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], float):
            given.numbers, given.count = (ctypes.c_double * len(value))(*value), len(value)
        elif isinstance(value, (list, tuple)):
            given.integers, given.count = (i64 * len(value))(*value), len(value)
        elif isinstance(value, str):
            given.text = value.encode()
        elif isinstance(value, torch.dtype):
            given.integer = products.NUMBERS[value]
        elif value is not None:
            given.integer, given.number = int(value), float(value)
        return given

    def by_name(self, name, *values, **named):
        """Returns the results; arguments are given as for PyTorch's own operator."""
        schema, call = self.named[name]
        self.tried.add(name)
        values = list(values) + [named.get(a.name, a.default_value) for a in schema.arguments[len(values):]]
        held, results = [], (ctypes.c_void_p * 64)()
        arguments = (Argument * len(values))(*[self.argument(value, held) for value in values])
        status = call(arguments, results)
        for handle in held:
            self.call("aoti_torch_delete_tensor_object", handle)
        if status != 0:
            raise RuntimeError(self.library.torch_exception_get_what_without_backtrace().decode())
        is_list = str(schema.returns[0].type) == "List[Tensor]" if schema.returns else False
        made = itertools.takewhile(bool, results) if is_list else results[:len(schema.returns)]
        return [self.unwrap(ctypes.c_void_p(result)) for result in made]


@pytest.fixture(scope="module")
def shim():
    if not has_lapack():
        pytest.skip("this machine has no LAPACK")
    return Shim(shim_checks.SHIM)


def has_lapack():
    for name in ("libopenblas.so.0", "liblapack.so.3"):
        try:
            if hasattr(ctypes.CDLL(name), "sgetrf_"):
                return True
        except OSError:
            pass
    return False


begin = shim_checks.seeded(2)


def tolerance(dtype):
    return {"rtol": 1e-3, "atol": 1e-3} if dtype in (torch.float32, torch.complex64) else {"rtol": 1e-9, "atol": 1e-9}


def same(seen, wanted, strides=True):
    assert seen.dtype == wanted.dtype and seen.shape == wanted.shape, (seen.dtype, seen.shape, wanted.dtype, wanted.shape)
    torch.testing.assert_close(seen, wanted.resolve_conj(), **tolerance(wanted.dtype), check_stride=False, equal_nan=True)
    if strides and wanted.numel() > 0:
        pairs = [(a, b) for a, b, size in zip(seen.stride(), wanted.stride(), wanted.shape) if size > 1]
        assert all(a == b for a, b in pairs), "strides %s, PyTorch %s" % (seen.stride(), wanted.stride())


def matrix(batch, rows, columns, dtype):
    """Returns well-conditioned matrices, stored by rows or by columns."""
    a = torch.randn([*batch, rows, columns], dtype=dtype)
    if rows == columns:
        a = a + 3 * torch.eye(rows, dtype=dtype)
    return a if random.random() < 0.6 else a.mT.contiguous().mT


def positive(batch, n, dtype):
    a = matrix(batch, n, n, dtype)
    return a @ a.mH + torch.eye(n, dtype=dtype)


def cases(count):
    for i in range(count):
        yield DTYPES[i % 4], random.choice(BATCHES), random.choice([0, 1, 2, 5, 9]), random.choice([1, 3, 7])


def all_same(shim, name, *values, strides=True, **named):
    packet, _, overload = name.split("::")[1].partition(".")
    operator = getattr(getattr(torch.ops, name.split("::")[0]), packet)
    wanted = getattr(operator, overload or "default")(*values, **named)
    wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    seen = shim.by_name(name, *values, **named)
    assert len(seen) == len(wanted)
    for one, other in zip(seen, wanted):
        same(one, other, strides)
    return seen


def test_factors(shim):
    for dtype, batch, n, other in cases(48):
        a = matrix(batch, n, n, dtype)
        all_same(shim, "aten::linalg_lu_factor_ex", a)
        all_same(shim, "aten::linalg_lu_factor_ex", matrix(batch, n, other, dtype))
        all_same(shim, "aten::linalg_lu", matrix(batch, other, n, dtype))
        all_same(shim, "aten::_linalg_det", a)
        all_same(shim, "aten::_linalg_slogdet", a)
        all_same(shim, "aten::linalg_inv_ex", a)
        p = positive(batch, n, dtype)
        all_same(shim, "aten::linalg_cholesky_ex", p, upper=random.random() < 0.5)
        all_same(shim, "aten::cholesky", p)
        if n > 0:
            hermitian = random.random() < 0.5
            symmetric = a + (a.mH if hermitian else a.mT)
            factor, pivots, _ = aten.linalg_ldl_factor_ex(symmetric, hermitian=hermitian)
            seen = shim.by_name("aten::linalg_ldl_factor_ex", symmetric, hermitian=hermitian)
            same(seen[0].tril(), factor.tril(), strides=False)
            assert torch.equal(seen[1], pivots)
            all_same(shim, "aten::linalg_ldl_solve", factor, pivots, matrix(batch, n, other, dtype), hermitian=hermitian)


def test_solutions(shim):
    for dtype, batch, n, columns in cases(48):
        a, left = matrix(batch, n, n, dtype), random.random() < 0.6
        right = random.choice([batch, []]) if batch != [0] and left else batch
        b = matrix(right, *((n, columns) if left else (columns, n)), dtype)
        all_same(shim, "aten::_linalg_solve_ex", a, b, left=left)
        all_same(shim, "aten::_linalg_solve_ex", a, torch.randn([*batch, n], dtype=dtype))
        factor, pivots, _ = aten.linalg_lu_factor_ex(a)
        all_same(shim, "aten::linalg_lu_solve", factor, pivots, b, left=left, adjoint=random.random() < 0.5)
        options = {"upper": random.random() < 0.5, "left": left, "unitriangular": random.random() < 0.3}
        all_same(shim, "aten::linalg_solve_triangular", a, b, strides=False, **options)
        b = matrix(right, n, columns, dtype)
        flags = [int(random.random() < 0.5) for _ in range(3)]
        seen = shim.run("aoti_torch_cpu_triangular_solve", [b, a], *flags, results=2)
        for one, other in zip(seen, aten.triangular_solve(b, a, *map(bool, flags))):
            same(one, other)
        upper = flags[0]
        factor = torch.linalg.cholesky(positive(batch, n, dtype), upper=bool(upper))
        seen, = shim.run("aoti_torch_cpu_cholesky_solve", [b, factor], upper)
        same(seen, aten.cholesky_solve(b, factor, bool(upper)))
        seen, = shim.run("aoti_torch_cpu_cholesky_inverse", [factor], upper)
        same(seen, aten.cholesky_inverse(factor, bool(upper)), strides=False)
        lu, pivots, _ = aten.linalg_lu_factor_ex(matrix(batch, n, columns, dtype))
        for one, other in zip(shim.run("aoti_torch_cpu_lu_unpack", [lu, pivots], *flags[:2], results=3),
                              aten.lu_unpack(lu, pivots, *map(bool, flags[:2]))):
            same(one, other)


def test_decompositions(shim):
    for dtype, batch, n, other in cases(48):
        a = matrix(batch, n, other, dtype)
        same_scale = tolerance(dtype)
        for full in (False, True):
            u, s, vh = shim.by_name("aten::_linalg_svd", a, full_matrices=full)
            theirs = aten._linalg_svd(a, full)
            same(s, theirs[1])
            assert u.shape == theirs[0].shape and vh.shape == theirs[2].shape
            if min(a.shape) > 1:
                assert u.stride() == theirs[0].stride() and vh.stride() == theirs[2].stride(), (vh.stride(), theirs[2].stride())
            k = s.shape[-1]
            torch.testing.assert_close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, **same_scale, check_stride=False)
            if k > 0:
                torch.testing.assert_close(u.mH @ u, torch.eye(u.shape[-1], dtype=dtype).expand_as(u.mH @ u), **same_scale)
        seen = shim.by_name("aten::_linalg_svd", a, compute_uv=False)
        same(seen[1], aten._linalg_svd(a, False, False)[1])
        for mode in ("reduced", "complete", "r"):
            seen = shim.by_name("aten::linalg_qr", a, mode)
            for one, wanted in zip(seen, aten.linalg_qr(a, mode)):
                assert one.shape == wanted.shape and (one.numel() == 0 or max(one.shape[-2:]) == 1 or one.stride() == wanted.stride())
            if mode != "r":
                torch.testing.assert_close(seen[0] @ seen[1], a, **same_scale, check_stride=False)
        wanted, tau = aten.geqrf(a)
        for one, other_one in zip(shim.run("aoti_torch_cpu_geqrf", [a], results=2), (wanted, tau)):
            same(one, other_one)
        if n >= other:
            all_same(shim, "aten::linalg_householder_product", wanted, tau)
            left, transposed = int(random.random() < 0.5), int(random.random() < 0.5)
            c = matrix(batch, *((n, 4) if left else (4, n)), dtype)
            seen, = shim.run("aoti_torch_cpu_ormqr", [wanted, tau, c], left, transposed)
            same(seen, aten.ormqr(wanted, tau, c, bool(left), bool(transposed)), strides=False)
        if n > 0:
            hermitian = matrix(batch, n, n, dtype)
            hermitian = hermitian + hermitian.mH
            all_same(shim, "aten::linalg_pinv.atol_rtol_tensor", a)
            all_same(shim, "aten::linalg_pinv.atol_rtol_tensor", hermitian, atol=torch.tensor(0.1), hermitian=True)
            values, vectors = shim.by_name("aten::_linalg_eigh", hermitian, random.choice("LU"))
            theirs = aten._linalg_eigh(hermitian)
            same(values, theirs[0])
            assert n < 2 or 0 in batch or vectors.stride() == theirs[1].stride()
            torch.testing.assert_close(hermitian @ vectors, vectors * values.unsqueeze(-2).to(dtype), rtol=1e-2, atol=1e-3)
            same(shim.by_name("aten::_linalg_eigh", hermitian, "L", False)[0], theirs[0])


def test_eigenvalues(shim):
    for dtype, batch, n, _ in cases(32):
        a = matrix(batch, n, n, dtype)
        values, vectors = shim.by_name("aten::linalg_eig", a)
        wanted, theirs = aten.linalg_eig(a)
        assert values.dtype == wanted.dtype and vectors.shape == theirs.shape
        assert a.numel() < 2 or vectors.stride() == theirs.stride(), (vectors.stride(), theirs.stride())
        torch.testing.assert_close(a.to(values.dtype) @ vectors, vectors * values.unsqueeze(-2), rtol=1e-2, atol=1e-3)
        sizes = torch.linalg.vector_norm(vectors, dim=-2)
        torch.testing.assert_close(sizes, torch.ones_like(sizes), rtol=1e-3, atol=1e-3)
        same(shim.by_name("aten::_linalg_eigvals", a)[0], values)


def test_failures(shim):
    singular = torch.zeros(2, 3, 3)
    singular[0] = torch.eye(3)
    for name, values, word in (("aten::_linalg_solve_ex", [singular, torch.ones(3, 1), True, True], "matrix 1 is singular"),
                               ("aten::cholesky", [-torch.eye(3)], "not positive-definite"),
                               ("aten::linalg_inv_ex", [torch.ones(3, 2)], "square"),
                               ("aten::linalg_inv_ex", [torch.ones(3, 3, dtype=torch.int64)], "float32"),
                               ("aten::_linalg_check_errors", [torch.tensor([0, 2], dtype=torch.int32), "linalg.inv"], "matrix 1"),
                               ("aten::linalg_lu_solve", [torch.eye(2), torch.tensor([1, 7], dtype=torch.int32), torch.eye(2)], "a pivot is 7"),
                               ("aten::bincount", [torch.tensor([1, -2])], "-2")):
        try:
            shim.by_name(name, *values, **({"is_matrix": False} if "check" in name else {}))
        except RuntimeError as error:
            assert word in str(error), error
        else:
            raise AssertionError("not refused: %s %s" % (name, word))
    assert shim.by_name("aten::_linalg_check_errors", torch.zeros(2, dtype=torch.int32), "linalg.inv", is_matrix=True) == []


def test_others(shim):
    for dtype in (torch.float32, torch.complex64, torch.int64, torch.bfloat16):
        x = torch.randn(3, 4, 5).to(dtype).transpose(0, 2)
        all_same(shim, "aten::clone", x)
        all_same(shim, "aten::unsqueeze", x, 1)
        all_same(shim, "aten::unsqueeze", x, -1)
        for padding in ([1, 2], [0, 1, 2, 0, 1, 1], [-1, 2, 0, -3], [-2, -1, 1, 1]):
            all_same(shim, "aten::constant_pad_nd", x, padding, 2, strides=False)
        all_same(shim, "prims::convert_element_type", x, torch.float64)
    x = torch.randn(4, 6, dtype=torch.complex64)
    all_same(shim, "aten::_conj_physical", x.t())
    same(shim.by_name("aten::_conj", x.t())[0], x.t().conj())
    all_same(shim, "aten::complex", torch.randn(4, 1), torch.randn(5))
    for dtype in (torch.float32, torch.float64):
        sizes, angles = torch.randn(3, 4, dtype=dtype), torch.randn(4, 3, dtype=dtype).t()
        same(shim.run("aoti_torch_cpu_polar", [sizes, angles])[0], torch.polar(sizes, angles), strides=False)
    numbers, = shim.by_name("prims::normal", [2000], mean=3.0, std=0.5, dtype=torch.float32, requires_grad=False)
    assert abs(numbers.mean() - 3) < 0.1 and abs(numbers.std() - 0.5) < 0.05, (numbers.mean(), numbers.std())
    for norm in (0, 1, 2):
        all_same(shim, "aten::_fft_c2r", x, [0, 1], norm, 10 + norm % 2, strides=False)
        all_same(shim, "aten::_fft_c2c", x, [1], norm, bool(norm), strides=False)
    numbers = torch.randint(0, 9, (40,))
    all_same(shim, "aten::bincount", numbers)
    all_same(shim, "aten::bincount", numbers, torch.rand(40), 12)
    all_same(shim, "aten::bincount", numbers.int(), torch.randint(0, 5, (40,)))
    for x in (torch.randint(-3, 3, (5, 8)), torch.randint(0, 3, (40,)).float(), torch.tensor([1.0, float("nan"), 1.0, float("nan")]),
              torch.tensor([True, False, True]), torch.zeros(0), torch.randint(0, 4, (6, 5)).bfloat16().t()):
        for inverse in (False, True):
            for counts in (False, True):
                all_same(shim, "aten::_unique2", x, True, inverse, counts, strides=False)
                all_same(shim, "aten::unique_consecutive", x, inverse, counts, strides=False)
    for dtype in (torch.float32, torch.float64):
        values, weights = torch.randn(300, dtype=dtype), torch.rand(300, dtype=dtype)
        for bounds in (None, (-1.0, 1.5)):
            for density in (0, 1):
                pair = (ctypes.c_double * 2)(*(bounds or (0, 0)))
                place = ctypes.byref(ctypes.cast(pair, ctypes.c_void_p)) if bounds else None
                handle = shim.wrap(weights)
                seen = shim.run("aoti_torch_cpu_histogram_bin_ct", [values], i64(17), place, i64(2), ctypes.byref(handle), density,
                                results=2)
                shim.call("aoti_torch_delete_tensor_object", handle)
                for one, wanted in zip(seen, torch.histogram(values, 17, range=bounds, weight=weights, density=bool(density))):
                    same(one, wanted)


def test_every_operator_was_tried(shim, request):
    shim_checks.skip_unless_all_run(request)
    untried = set(shim.named) - shim.tried
    assert untried == ELSEWHERE, sorted(untried ^ ELSEWHERE)
    for name, (schema, _) in shim.named.items():
        theirs = torch._C._jit_get_schemas_for_operator(schema.name)
        assert any(str(one) == str(schema) for one in theirs), "%s is not PyTorch's schema: %s" % (name, [str(one) for one in theirs])


def test_without_lapack():
    with shim_checks.path_of(shim_checks.PLAIN) as path:
        check_without_lapack(Shim(path))


def check_without_lapack(shim):
    for name, values in (("aten::_linalg_solve_ex", [torch.eye(3), torch.ones(3, 1)]), ("aten::_linalg_svd", [torch.eye(3)]),
                         ("aten::_linalg_eigh", [torch.eye(3)])):
        try:
            shim.by_name(name, *values)
        except RuntimeError as error:
            assert "needs LAPACK" in str(error) and "install" in str(error), error
        else:
            raise AssertionError("%s runs without LAPACK" % name)
