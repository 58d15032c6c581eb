"""Runs models and operators of the cache in a Python without PyTorch, on NumPy's arrays and on other objects that share their
memory through the buffer protocol (array.array, bytes, memoryview) or DLPack (`__dlpack__`: JAX, CuPy, PyTorch).

```python
import numpy
import aoticache.runtime

model = aoticache.runtime.load("model.pt2")          # a package of PyTorch, or the name of a stored model
y = model(numpy.ones((4, 64), numpy.float32))        # a NumPy array

mul = aoticache.runtime.operator("aten::mul.Tensor") # a kernel of the cache
z = mul(y, y)
```

It needs neither PyTorch nor NumPy; importing it takes a few milliseconds (docs/runtime.md). Arrays are passed and returned
without copies. The interpreter's lock is released while a model runs, and any number of threads may call one model.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._core.errors import AoticacheError, LibraryNotFoundError
from ._core.library_path import candidates
from ._core.model_inputs import check_constant, fill_in

__all__ = ["AoticacheError", "Model", "Operator", "Tensor", "load", "operator", "provider", "tensor"]

_HEX = frozenset("0123456789abcdef")


def _import_extension() -> Any:
    """Imports the part in C: aoticache/_runtime.abi3.so next to the library, or in a distribution's directory for its parts."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    library = next((path for path in candidates() if os.path.isabs(path) and os.path.exists(path)), None)
    if library is None:  # the system's library: the dynamic linker finds it
        from ._core import capi

        library = capi.load().path
    directory = os.path.dirname(os.path.realpath(library))
    places = [os.path.join(directory, *parts, "_runtime.abi3.so") for parts in (["aoticache"], ["aoticache", "aoticache"])]
    path = next((place for place in places if os.path.exists(place)), None)
    if path is None:
        raise LibraryNotFoundError(f"{places[0]} is missing: reinstall aoticache, or rebuild it (make)")
    spec = spec_from_file_location("aoticache._runtime", path, loader=ExtensionFileLoader("aoticache._runtime", path))
    if spec is None or spec.loader is None:
        raise LibraryNotFoundError(f"{path} cannot be imported")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.set_error_type(AoticacheError)
    return module


_runtime = _import_extension()

if TYPE_CHECKING:

    class Tensor:
        """An array in memory; it supports the buffer protocol and DLPack."""

        shape: tuple[int, ...]
        strides: tuple[int, ...]
        dtype: str
        ndim: int
        size: int
        nbytes: int

        def numpy(self) -> Any: ...
        def tolist(self) -> Any: ...
        def item(self) -> Any: ...
        def view(self, dtype: str) -> Tensor: ...
        def __len__(self) -> int: ...
        def __dlpack__(self, **wishes: Any) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...
else:
    Tensor = _runtime.Tensor


# ---- caches ----

_caches: dict[str | None, Any] = {}
_caches_lock = threading.Lock()


def _open_cache(directory: str | os.PathLike[str] | None) -> Any:
    """Returns a cache, opened once per process. None: the configured one."""
    key = None if directory is None else os.path.abspath(os.fspath(directory))
    with _caches_lock:
        if key not in _caches:
            if not _caches:
                import atexit

                atexit.register(_at_exit)
                os.register_at_fork(after_in_child=_after_fork)
            _caches[key] = _runtime.open_cache(key)
        return _caches[key]


def _at_exit() -> None:
    for cache in list(_caches.values()):
        cache.at_exit()


def _after_fork() -> None:
    global _caches_lock
    _caches_lock = threading.Lock()


# ---- arguments and results, as the module had them ----


#: Containers that are supported in arguments and results. A named tuple becomes a tuple: its class is unknown here.
_KINDS = frozenset(("leaf", "dict", "OrderedDict", "defaultdict", "list", "tuple", "namedtuple"))


class _Node:
    """The structure of arguments or results: a leaf, or a container with its keys."""

    __slots__ = ("children", "keys", "kind")

    def __init__(self, described: dict[str, Any]) -> None:
        import json

        name, context = described["type"], described["context"]
        self.children = [_Node(child) for child in described["children_spec"]]
        self.kind: str = "leaf" if name is None else name.rpartition(".")[2]
        self.keys: list[Any] = []
        if self.kind in ("dict", "OrderedDict", "defaultdict"):
            keys = json.loads(context) if isinstance(context, str) else context
            self.keys = keys if self.kind != "defaultdict" else keys["dict_context"]

    def unknown_kind(self) -> str:
        """Returns the name of a container class that only the exporting program has; "" if there is none."""
        own = "" if self.kind in _KINDS else self.kind
        return own or next(filter(None, (child.unknown_kind() for child in self.children)), "")

    def is_flat(self, count: int) -> bool:
        return len(self.children) == count and all(child.kind == "leaf" for child in self.children)

    def take(self, value: Any, where: str, leaves: list[tuple[str, Any]]) -> None:
        """Appends the leaves of the value. Raises TypeError if it has another structure."""
        if self.kind == "leaf":
            leaves.append((where, value))
        elif self.kind in ("dict", "OrderedDict", "defaultdict"):
            if not isinstance(value, dict) or set(value) != set(self.keys):
                given = f"{sorted(map(str, value))}" if isinstance(value, dict) else type(value).__name__
                raise TypeError(f"{where}: the model takes a dict of {sorted(map(str, self.keys))}, not {given}")
            if self.kind == "OrderedDict" and list(value) != self.keys:
                raise TypeError(f"{where}: the model takes an OrderedDict with the keys {self.keys} in this order")
            for key, child in zip(self.keys, self.children):
                child.take(value[key], f"{where}[{key!r}]", leaves)
        else:
            if not isinstance(value, (list, tuple)) or len(value) != len(self.children):
                given = f"{len(value)}" if isinstance(value, (list, tuple)) else type(value).__name__
                raise TypeError(f"{where}: the model takes {len(self.children)} in a {self.kind}, not {given}")
            for place, child in enumerate(self.children):
                child.take(value[place], f"{where}[{place}]", leaves)

    def count(self) -> int:
        return 1 if self.kind == "leaf" else sum(child.count() for child in self.children)

    def make(self, leaves: Any) -> Any:
        """Builds the results from an iterator over the leaves."""
        if self.kind == "leaf":
            return next(leaves)
        made = [child.make(leaves) for child in self.children]
        if self.kind in ("dict", "OrderedDict", "defaultdict"):
            return dict(zip(self.keys, made))
        return made if self.kind == "list" else tuple(made)


def _read_inputs(directory: str | None) -> dict[str, Any]:
    """Reads the description of a stored model's arguments and results (_core.model_inputs.describe()); {} for a package."""
    if directory is None:
        return {}
    import json

    with open(os.path.join(directory, "weights.list"), encoding="utf-8") as file:
        return dict(json.load(file)["inputs"])


def _results_of(numbers: str, count: int) -> dict[str, Any]:
    """Describes the results of a package. numbers: positions of results that are numbers; the code returns them as arrays."""
    places = numbers.split(",")
    return {"results": [{"number": place} if str(place) in places else place for place in range(count)]}


def _parse(text: str) -> _Node | None:
    """Parses the structure that PyTorch wrote into the library (torch.utils._pytree); None if there is none."""
    if not text:
        return None
    import json

    try:
        return _Node(json.loads(text)[1])
    except (ValueError, LookupError, TypeError):
        return None


class Model:
    """
    A compiled model, to be called like the module that was exported: with the same arguments and the same results.

    Arguments are arrays: NumPy's, or any objects with the buffer protocol or `__dlpack__`. Results are NumPy arrays if one of the
    arguments is, otherwise `Tensor`. Both keep their memory alive.

    Raises AoticacheError with the model's own message if a dtype, a size, a stride or the number of arrays does not fit;
    TypeError and ValueError for objects that are not arrays, or arrays that compiled code cannot read.
    """

    def __init__(self, made: Any, name: str, key: str, directory: str | None, numbers: str | None) -> None:
        if numbers is None:
            # Only its code can check its inputs, and it reads this variable at its first run.
            os.environ.setdefault("AOTI_RUNTIME_CHECK_INPUTS", "1")
        self._made = made
        self._run = made.run
        #: The name under which the model is stored, or its name in the package.
        self.name = name
        #: The key of its entry in the cache, in hexadecimal; `load()` accepts it.
        self.key = key
        inputs, outputs = (_parse(text) for text in made.call_spec)
        self._inputs = inputs if inputs is not None and len(inputs.children) == 2 else None
        self._is_flat = (
            self._inputs is None
            or self._inputs.children[0].is_flat(made.num_inputs)
            and not self._inputs.children[1].children
        )
        described = _read_inputs(directory) or _results_of(numbers or "", made.num_outputs)
        #: Values that are compiled in, for each leaf of the arguments; None: unknown (a package).
        self._arguments = described.get("arguments")
        self._results = described["results"]
        self._outputs = outputs if outputs is not None and outputs.count() == len(self._results) else None
        nodes = [node for node in (self._inputs, self._outputs) if node is not None]
        self._unknown = next(filter(None, (node.unknown_kind() for node in nodes)), "")

    @property
    def num_inputs(self) -> int:
        """Number of arrays that the model takes."""
        return int(self._made.num_inputs)

    @property
    def num_outputs(self) -> int:
        """Number of arrays that the model returns."""
        return int(self._made.num_outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model."""
        if self._unknown:
            raise AoticacheError(
                f"{self.name or self.key[:12]}: an argument or a result is a {self._unknown}, a class of the program that "
                "exported the model: call run() with the list of its arrays",
                "UNSUPPORTED",
            )
        if kwargs or not self._is_flat:
            args = self._flatten(args, kwargs)
        results = tuple(fill_in(self._run(args), self._results))
        if self._outputs is None:
            return results[0] if len(results) == 1 else results
        return results[0] if self._outputs.kind == "leaf" else self._outputs.make(iter(results))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the model with a flat list of arrays. Returns a flat list of results."""
        return list(self._run(tuple(inputs)))

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if self._inputs is None:
            raise TypeError("the names of this model's arguments are unknown: pass them by position")
        positional, named = self._inputs.children
        if len(args) != len(positional.children) or set(kwargs) != set(named.keys):
            names = "".join(f", {name}=" for name in named.keys)
            raise TypeError(
                f"the model takes {len(positional.children)} arguments{names}; given were {len(args)}"
                + "".join(f", {name}=" for name in kwargs)
            )
        leaves: list[tuple[str, Any]] = []
        for place, child in enumerate(positional.children):
            child.take(args[place], f"argument {place}", leaves)
        for name, child in zip(named.keys, named.children):
            child.take(kwargs[name], f"argument {name}", leaves)
        return self._without_constants(leaves)

    def _without_constants(self, leaves: list[tuple[str, Any]]) -> tuple[Any, ...]:
        if self._arguments is None and len(leaves) != self.num_inputs:
            raise AoticacheError(
                f"the package was exported with {len(leaves) - self.num_inputs} arguments that are compiled in (numbers, flags, "
                "strings, None), but does not contain their values, so a call with others would be answered wrongly: call run() "
                "with the list of its arrays",
                "UNSUPPORTED",
            )
        arrays = []
        for number, (where, value) in enumerate(leaves):
            known = self._arguments[number] if self._arguments is not None else None
            if known is None:
                arrays.append(value)
            else:
                check_constant(where, value, known)
        return tuple(arrays)

    def __repr__(self) -> str:
        return f"<aoticache.runtime.Model {self.name or self.key[:12]}>"


class Operator:
    """An operator with kernels in the cache, to be called with arrays, numbers, texts and lists of integers."""

    def __init__(self, name: str, make: Any) -> None:
        #: "aten::mul.Tensor"
        self.name = name
        self._make = make
        self._made: dict[int, Any] = {}

    def __call__(self, *args: Any) -> Any:
        """Runs the kernel for these arguments. Raises AoticacheError (NOT_FOUND) if the cache has none."""
        made = self._made.get(len(args))
        if made is None:
            made = self._made[len(args)] = self._make(len(args))
        results = made.run(tuple(tuple(one) if isinstance(one, list) else one for one in args))
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        return f"<aoticache.runtime.Operator {self.name}>"


def load(
    what: str | os.PathLike[str],
    *,
    model: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    map_weights: bool = False,
    ignore_unknown_weights: bool = False,
    num_runners: int = 1,
    cache_dir: str | os.PathLike[str] | None = None,
    share_read_only: bool = False,
) -> Model:
    """
    Loads a model for the CPU.

    what: the path of a .pt2 package, which is stored in the cache if it is missing; or the name of a model that
        `aoticache.compile(..., id=)` stored; or a key. A text that contains a "/" or ends in ".pt2", and a path object, is a
        path.
    model: the name of the model in a package with several.
    weights: a .safetensors file, which is read into memory: its tensors replace the model's of the same names.
    map_weights: map the file instead, so that processes share it. The file must stay unchanged while the model lives: if it
        is truncated, the process is killed (SIGBUS).
    ignore_unknown_weights: ignore tensors of the file that a package's model does not have, instead of raising. PyTorch
        writes short vectors into the code and folds others, and no file changes those.
    num_runners: how many calls may run concurrently; further calls wait.
    cache_dir: None: the configured cache.
    share_read_only: pass read-only arrays to the model without a copy. By default they are copied for each call, because it
        is unknown whether a model writes to its inputs. A model that does would change read-only data or crash the process.

    Raises AoticacheError; `status` is NOT_FOUND, UNSUPPORTED, INVALID, CORRUPT, ...

    >>> model = aoticache.runtime.load("model.pt2")                                             # doctest: +SKIP
    >>> y = model(x)                                                                            # doctest: +SKIP
    """
    if num_runners < 1:
        raise ValueError(f"num_runners is {num_runners}; it must be at least 1")
    name = os.fspath(what)
    is_path = not isinstance(what, str) or name.endswith(".pt2") or os.sep in name
    if not is_path and model is not None:
        raise ValueError("model= names one of a package's models; this is a stored model")
    given = (None if weights is None else os.fspath(weights), map_weights, ignore_unknown_weights)
    cache = _open_cache(cache_dir)
    kind = "package" if is_path else "model"
    try:
        return Model(*_runtime.open_model(cache, kind, name, model, *given, num_runners, share_read_only))
    except AoticacheError as error:
        if is_path or error.status != "NOT_FOUND" or len(name) != 64 or not _HEX.issuperset(name.lower()):
            raise
    return Model(*_runtime.open_model(cache, "key", name, None, *given, num_runners, share_read_only))


def operator(
    name: str,
    *,
    framework: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    share_read_only: bool = False,
) -> Operator:
    """
    Returns an operator of the cache, for the CPU. Nothing is compiled: `aoticache compile` or a program with PyTorch does that.

    name: "aten::mul.Tensor"; a call must then give all arguments. Or a schema ("aten::softmax.int(Tensor self, int dim,
        ScalarType? dtype=None) -> Tensor"); its defaults are then filled in.
    framework: use kernels of this framework: "pytorch 2.13.0". None: those of any framework, the one stored last.
    cache_dir, share_read_only: as for `load()`.

    >>> mul = aoticache.runtime.operator("aten::mul.Tensor")                                    # doctest: +SKIP
    >>> z = mul(x, y)                                                                           # doctest: +SKIP
    """
    cache = _open_cache(cache_dir)
    bare, parenthesis, _ = name.partition("(")
    bare = bare.strip()

    def make(count: int) -> Any:
        arguments = ", ".join(f"Tensor a{place}" for place in range(count))
        schema = name if parenthesis else f"{bare}({arguments}) -> Tensor[]"
        return _runtime.open_operator(cache, bare, schema, framework, share_read_only)

    return Operator(bare, make)


def tensor(array: Any, dtype: str | None = None, *, share_read_only: bool = False) -> Tensor:
    """
    Returns a tensor over the memory of an array, for dtypes that the array's library does not have: the bits of `numpy.uint16`
    as "bfloat16", those of `numpy.uint8` as "float8_e4m3fn". Elements must have the same size.

    >>> x = aoticache.runtime.tensor(bits, "bfloat16")                                          # doctest: +SKIP
    """
    made: Tensor = _runtime.tensor(array, dtype, share_read_only)
    return made


def provider() -> tuple[str, str]:
    """
    Returns where models get PyTorch's C functions from: ("shim", FILE): libaoticache's own; ("libtorch", FILE): PyTorch, in a
    process that had imported it before its first model was loaded.
    """
    kind, path = _runtime.provider()
    return kind, path
