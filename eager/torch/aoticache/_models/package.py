"""Packages (.pt2) from the cache: `load_package()`, a counterpart of `torch._inductor.aoti_load_package()`.

PyTorch's loader unpacks the archive into a temporary directory at every load. Here a model is unpacked once per machine; later
loads use the verified entry in the cache (docs/packages.md).
"""

from __future__ import annotations

import itertools
import os
import tempfile
import weakref
from collections.abc import Callable, Mapping
from ctypes import byref, c_bool, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer, sizeof
from dataclasses import dataclass
from functools import partial
from typing import Any

from .._core import caches, capi, model_inputs
from .._core.errors import AoticacheError, SettingsError, warn_once
from .._core.pytorch import require_torch
from .._core.settings import current_settings
from . import stand_ins
from .handles import delete_handles, from_handles, to_handles, torch_library


#: Options of runs that take ownership of their inputs.
STEALING = capi.RunOptions(size=sizeof(capi.RunOptions), steal_inputs=True)

#: What stands for the classes of results.
RESULTS = ("class", "dict")

#: Prefix of metadata that we add to that of the package: requirements of its inputs, and which results are numbers.
OURS = "aoticache."


@dataclass(frozen=True)
class Origin:
    """Where a model came from, and how long it took."""

    #: Key by which `aoticache run-package` and `aoticache_package_load_key()` find it without the file.
    key: str
    model: str
    device: str
    #: True: this call put it into the cache; False: it was there already.
    added: bool
    #: False: the model could not be stored, and runs from a temporary copy.
    stored: bool
    bytes: int
    digest_seconds: float
    add_seconds: float
    load_seconds: float


class PackagedModel:
    """
    A model of a package, to be called like the module that was exported: with the same arguments and the same results.

    Many threads may call it concurrently; `num_runners` calls run at the same time.
    """

    def __init__(
        self,
        cache: caches.Cache,
        runner: c_void_p,
        path: str,
        origin: Origin,
        executor: Any = None,
        results: str = "class",
    ) -> None:
        library = cache.library
        self._cache = cache
        self._library = library
        self._runner = runner
        self._path = path
        #: Where the model came from: key, bytes, times.
        self.origin = origin
        info = library.runner_info(runner)
        self._inputs = int(info.num_inputs)
        self._outputs = int(info.num_outputs)
        #: Descriptions of arguments and results (model_inputs.describe()); for a package, which results are numbers.
        self._arguments: list[str | None] | None = None
        self._results: list[Any] = list(range(self._outputs))
        self._has_stand_ins = results == "dict"
        #: The structure of the arguments, and what builds the results from their leaves.
        self._specs: tuple[Any, Callable[[list[Any]], Any]] | None = None
        self._kept: list[list[int]] = []
        self._finalizer = weakref.finalize(self, _release, library, runner, self._kept, executor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model."""
        in_spec, build = self._get_specs()
        leaves = model_inputs.flatten(args, kwargs, in_spec)
        outputs = self.run(model_inputs.tensors_among(leaves, self._arguments, self._inputs))
        return build(model_inputs.fill_in(outputs, self._results))

    def run(self, inputs: list[Any]) -> list[Any]:
        """Runs the model with a flat list of inputs. Returns a flat list of outputs."""
        torch = require_torch()
        for place, tensor in enumerate(inputs):
            if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
                what = f"a tensor of {tensor.layout}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise AoticacheError(f"{self._path}: input {place} is {what}; the model only accepts strided tensors", "INVALID")
        handles = to_handles([tensor.resolve_conj().resolve_neg() for tensor in inputs])
        given = (c_void_p * max(1, len(handles)))(*handles)
        outputs = (c_void_p * max(1, self._outputs))()
        # With steal_inputs the function takes ownership of the inputs, also if it fails.
        self._library.call(
            "aoticache_runner_run_with",
            self._runner,
            byref(STEALING),
            given,
            c_size_t(len(handles)),
            outputs,
            c_size_t(self._outputs),
        )
        made = iter(from_handles([handle for handle in outputs[: self._outputs] if handle is not None]))
        return [None if handle is None else next(made) for handle in outputs[: self._outputs]]

    def get_metadata(self) -> dict[str, str]:
        """Returns the metadata of the compiled model, including the user's, from the cache: the package may be deleted."""
        try:
            found = stored_metadata(self._cache, self.origin.key)
            return {name: value for name, value in found.items() if not name.startswith(OURS)}
        except AoticacheError:  # it could not be stored, or an older version stored it
            return read_metadata(self._library, self._path, self.origin.model)

    def get_constant_fqns(self) -> list[str]:
        """Returns the names of the constants that can be updated, as in the module: ["weight", "bias"]."""
        found = (self._constant(place) for place in range(self._number_of_constants()))
        return [
            constant.original_fqn.decode() for constant in found if constant.original_fqn and not constant.from_folded
        ]

    def load_constants(
        self,
        constants_map: Mapping[str, Any],
        *,
        check_full_update: bool,
        user_managed: bool = False,
        allow_h2d_copy: bool = False,
        inactive: bool = False,
    ) -> None:
        """
        Replaces the values of constants, by the names that `get_constant_fqns()` returns.

        Values must have the dtype, the sizes and the strides of the constant; all are checked before any is changed.
        check_full_update: require a value for every constant. user_managed: do not copy; the tensors' memory is used as long
        as the model lives. allow_h2d_copy: copy tensors on the CPU to the model's device. inactive: write to the inactive
        buffer, which `swap_constants()` makes the active one.
        """
        options = capi.UpdateOptions(
            size=sizeof(capi.UpdateOptions),
            inactive=inactive,
            partial=not check_full_update,
            user_managed=user_managed,
            from_cpu=allow_h2d_copy,
            by_fqn=True,
        )
        names = list(constants_map)
        handles = to_handles([constants_map[name] for name in names])
        pairs = (capi.ConstantPair * max(1, len(names)))()
        for pair, name, handle in zip(pairs, names, handles):
            pair.name, pair.handle = name.encode(), handle
        try:
            self._library.call(
                "aoticache_runner_update_constants", self._runner, byref(options), pairs, c_size_t(len(names))
            )
        except AoticacheError:
            delete_handles(handles)
            raise
        if user_managed:
            self._kept.append(handles)
        else:
            delete_handles(handles)

    def get_constants(self, *, inactive: bool = False) -> dict[str, Any]:
        """Returns copies of the constants' values, by name, without folded ones."""
        found: dict[str, Any] = {}

        def take(_user: Any, name: bytes, handle: int) -> bool:
            copy = c_void_p()
            if torch_library().aoti_torch_new_tensor_handle(c_void_p(handle), byref(copy)) != 0:
                return False
            found[name.decode()] = from_handles([copy.value or 0])[0].clone()
            return True

        self._library.call(
            "aoticache_runner_extract_constants", self._runner, c_bool(inactive), capi.CONSTANT(take), None
        )
        return found

    def fold_constants(self, *, inactive: bool = False) -> None:
        """Runs the model's constant folding now, instead of with the next call."""
        self._library.call("aoticache_runner_fold_constants", self._runner, c_bool(inactive), None)

    def swap_constants(self) -> None:
        """Exchanges the active and the inactive buffer of constants, between two calls."""
        self._library.call("aoticache_runner_swap_constants", self._runner)

    def free_inactive_constants(self) -> None:
        """
        Empties the inactive buffer, and frees its memory if its constants were not folded.

        (If folded constants were freed, the process would crash at the next update; PyTorch's libraries are left that way.)
        """
        self._library.call("aoticache_runner_free_inactive_constants", self._runner)

    def __deepcopy__(self, memo: Any) -> PackagedModel:
        return self

    def __repr__(self) -> str:
        return f"<PackagedModel {self.origin.model!r} of {self._path!r} on {self.origin.device}>"

    def _number_of_constants(self) -> int:
        return int(self._library.runner_info(self._runner).num_constants)

    def _constant(self, place: int) -> capi.RunnerConstant:
        constant = capi.RunnerConstant()
        self._library.call("aoticache_runner_read_constant", self._runner, c_size_t(place), byref(constant))
        return constant

    def _get_specs(self) -> tuple[Any, Callable[[list[Any]], Any]]:
        if self._specs is None:
            texts = c_char_p(), c_char_p()
            self._library.call("aoticache_runner_call_spec", self._runner, byref(texts[0]), byref(texts[1]))
            arguments, results = ((text.value or b"").decode() for text in texts)
            in_spec = self._parse(arguments, "arguments", "")
            if self._has_stand_ins:
                build = stand_ins.builder(results, self._path)
            else:
                out_spec = self._parse(results, "results", ', or load the model with results="dict"')
                build = partial(require_torch().utils._pytree.tree_unflatten, treespec=out_spec)
            self._specs = in_spec, build
        return self._specs

    def _parse(self, text: str, of: str, advice: str) -> Any:
        try:
            return require_torch().utils._pytree.treespec_loads(text)
        except (ValueError, KeyError, TypeError, AttributeError, ImportError, NotImplementedError) as error:
            reason = str(error).split("\n")[0]
            raise AoticacheError(
                f"{self._path}: the structure of its {of} is unknown: {reason}; first import the module that registers its "
                f"classes, or call run() with its tensors as a list{advice}",
                "UNSUPPORTED",
            ) from error


def check_results(results: Any) -> None:
    """Raises SettingsError for a value that load() and load_package() do not accept."""
    if results not in RESULTS:
        raise SettingsError(f"results is {results!r}; it must be one of {', '.join(map(repr, RESULTS))}")


def _release(library: capi.Library, runner: c_void_p, kept: list[list[int]], executor: Any) -> None:
    """Frees a runner. executor: calls operators for the runner; it must live as long as the runner."""
    library.get("aoticache_runner_unref", runner)
    for handles in kept:
        delete_handles(handles)


def load_package(
    path: Any,
    model_name: str | None = None,
    run_single_threaded: bool = False,
    num_runners: int = 1,
    device_index: int = -1,
    *,
    weights: str | os.PathLike[str] | None = None,
    map_weights: bool = False,
    ignore_unknown_weights: bool = False,
    results: str = "class",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """
    Loads the model of a .pt2 package from the cache; stores it there first if it is missing.

    path: the package, or a file object with one. model_name: None: the only one or, if there are several, the one named
    "model". num_runners: how many calls may run concurrently. device_index: of the GPU; -1: the current one.
    run_single_threaded: accepted for programs written for PyTorch's loader; without concurrent calls the fast path is used
    in any case. weights: a .safetensors file, which is read into memory: its tensors replace the package's of the same names.
    map_weights: map the file instead, so that processes share it. The file must stay unchanged while the model lives: if it is
    truncated, the process is killed (SIGBUS). ignore_unknown_weights: ignore tensors of the file that the model does not have,
    instead of raising. cache_dir: None: the cache of `configure()`.
    results: "class": the classes of the module's results; a package does not name their modules, so import these before the first
    call. "dict": a dict with the fields as attributes stands for each class that is not Python's or PyTorch's.

    A package that the cache cannot load here (its model calls operators of PyTorch through its proxy executor, or the cache
    cannot be opened) is loaded by PyTorch, with one warning; with `weights` or results="dict" it is refused. Returns a PackagedModel, or what
    PyTorch returns.

    >>> model = aoticache.load_package("model.pt2")                                             # doctest: +SKIP
    >>> y = model(x)                                                                            # doctest: +SKIP
    """
    torch = require_torch()
    import torch.utils._pytree

    check_results(results)
    if hasattr(path, "read"):
        with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
            path.seek(0)
            file.write(path.read())
            file.flush()
            return load_package(
                file.name,
                model_name,
                run_single_threaded,
                num_runners,
                device_index,
                weights=weights,
                map_weights=map_weights,
                ignore_unknown_weights=ignore_unknown_weights,
                results=results,
                cache_dir=cache_dir,
            )
    path = os.path.abspath(os.fspath(path))
    try:
        directory = os.path.abspath(os.fspath(cache_dir)) if cache_dir is not None else None
        cache = caches.open_cache(directory or current_settings().cache_dir)
        options = capi.PackageOptions(
            size=sizeof(capi.PackageOptions),
            model=capi.encode(model_name),
            num_models=num_runners,
            weights=None if weights is None else os.fsencode(weights),
            map_weights=map_weights,
            ignore_unknown_weights=ignore_unknown_weights,
        )
        return _load(cache, path, options, device_index, results)
    except AoticacheError as error:
        is_ours = error.status not in ("UNSUPPORTED", "DENIED", "IO", "LOCKED") or not os.path.exists(path)
        if is_ours or weights is not None or results != "class":
            raise
        warn_once("package " + path, f"aoticache: {path} is loaded by PyTorch's own loader: {error}")
        from torch._inductor.package.package import load_package as torch_load_package

        return torch_load_package(path, model_name or "model", run_single_threaded, num_runners, device_index)


def _load(
    cache: caches.Cache, path: str, options: capi.PackageOptions, device_index: int, results: str
) -> PackagedModel:
    library, runner, report = cache.library, c_void_p(), capi.PackageReport()
    capi.require_libtorch(library)
    if device_index >= 0 and require_torch().cuda.is_available():
        options.device = f"cuda:{device_index}".encode()
    library.call(
        "aoticache_package_load", cache.handle, os.fsencode(path), byref(options), byref(runner), byref(report)
    )
    origin = Origin(
        key=bytes(report.key.bytes).hex(),
        model=report.model.decode(),
        device=report.device.decode(),
        added=report.added,
        stored=report.stored,
        bytes=report.bytes,
        digest_seconds=report.digest_ns / 1e9,
        add_seconds=report.add_ns / 1e9,
        load_seconds=report.load_ns / 1e9,
    )
    if library.library_info(library.runner_info(runner).library).needs_proxy_executor:
        library.get("aoticache_runner_unref", runner)
        raise AoticacheError(
            f"its model {origin.model} calls PyTorch operators through its proxy executor", "UNSUPPORTED"
        )
    model = PackagedModel(cache, runner, path, origin, results=results)
    model._results = _results_of(cache, origin, model._outputs)
    return model


def _results_of(cache: caches.Cache, origin: Origin, count: int) -> list[Any]:
    """Returns which results are numbers that the code returns as tensors. If the package does not describe its inputs, its code
    checks them itself, if told so before its first run."""
    try:
        known = stored_metadata(cache, origin.key)
    except AoticacheError:  # the package could not be stored
        known = {}
    if OURS + "inputs" not in known:
        os.environ.setdefault("AOTI_RUNTIME_CHECK_INPUTS", "1")
    numbers = set(known.get(OURS + "numbers", "").split(","))
    return [{"number": place} if str(place) in numbers else place for place in range(count)]


def stored_metadata(cache: caches.Cache, key: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def take(_user: Any, name: bytes, value: bytes) -> bool:
        found[name.decode()] = value.decode()
        return True

    digest = create_string_buffer(bytes.fromhex(key), 32)
    cache.library.call("aoticache_package_read_metadata", cache.handle, digest, capi.METADATA(take), None)
    return found


def read_metadata(library: capi.Library, path: str, model_name: str) -> dict[str, str]:
    package = c_void_p()
    found: dict[str, str] = {}

    def take(_user: Any, name: bytes, value: bytes) -> bool:
        found[name.decode()] = value.decode()
        return True

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library.call("aoticache_package_open_fd", c_int(descriptor), os.fsencode(path), byref(package))
        try:
            models = (library.get("aoticache_package_model_at", package, place) for place in itertools.count())
            named = itertools.takewhile(bool, models)
            model = next((one for one in named if one.contents.name.decode() == model_name), None)
            if model is None:
                raise AoticacheError(f"{path} has no model {model_name}", "NOT_FOUND")
            library.get("aoticache_package_list_metadata", package, model, capi.METADATA(take), None)
        finally:
            library.get("aoticache_package_close", package)
    finally:
        os.close(descriptor)
    return found
