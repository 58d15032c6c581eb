"""Whole models: `compile()` compiles one once per machine or fleet, `load()` loads a stored one by its name.

A call of `compile()` exports the model, which takes seconds for large models, and finds the compiled program by the digest of
its graph. With a name that is already stored it does not need an export. Weights are not part of the program: they are the module's
own tensors, or tensors that are stored under a name, mapped and shared by all processes (docs/models-cache.md).
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_void_p, sizeof
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from .._core import caches, capi, model_inputs, tools
from .._core.errors import AoticacheError, SettingsError, warn_once
from .._core.pytorch import require_torch
from .._core.records import CPU, CUDA, Answer, Question, Records
from .._core.settings import current_settings
from . import classes, graphs, keys, proxy_executor, storage
from .package import PackagedModel, check_results
from .storage import Artifact, Contents

MODES = ("wait", "background")
WEIGHTS = ("apart", "frozen")
_MAX_NAME = 200


@dataclass(frozen=True)
class ModelOrigin:
    """Where a model came from, and how long it took."""

    #: Key of the entry, in hexadecimal. `load()`, `aoticache model` and `aoticache_model_open()` accept it, or its first
    #: digits.
    key: str
    #: The name under which program and weights are stored; "" if there is none.
    name: str
    #: "compiled" by this call, "stored" in the cache, or "waited" for (another process compiled it meanwhile).
    source: str
    device: str
    #: False: the model could not be stored, and runs from a temporary copy.
    stored: bool
    export_seconds: float
    #: Time of the compile, in this call or when the program was stored.
    compile_seconds: float
    #: Time to load library, container and weights.
    load_seconds: float


class CompiledModel(PackagedModel):
    """
    A compiled model, to be called like the original module: with the same arguments and the same results.

    Its results have no gradients. Many threads may call it concurrently; `num_runners` calls run at the same time. Inputs must
    have the dtypes and sizes that it was compiled for (AoticacheError names a difference); tensors with other strides are
    copied first.

    If the model was compiled from a module, the module's own tensors are its weights: changing them in place also changes the
    model.
    """

    origin: ModelOrigin  # type: ignore[assignment]

    def __init__(
        self,
        cache: caches.Cache,
        runner: c_void_p,
        contents: Contents,
        origin: ModelOrigin,
        executor: proxy_executor.Executor | None = None,
        results: str = "class",
    ) -> None:
        super().__init__(cache, runner, origin.name or origin.key, origin, executor, results)  # type: ignore[arg-type]
        self._contents = contents
        self._arguments = contents.inputs["arguments"]
        self._results = contents.inputs["results"]
        self._orders = contents.inputs["orders"]
        self._update_lock = threading.Lock()

    def run(self, inputs: list[Any]) -> list[Any]:
        """Runs the model with a flat list of inputs. Returns a flat list of outputs."""
        if len(inputs) == len(self._orders):
            inputs = [
                model_inputs.with_order(one, order) if isinstance(one, require_torch().Tensor) else one
                for one, order in zip(inputs, self._orders)
            ]
        return super().run(inputs)

    def get_metadata(self) -> dict[str, str]:
        """Returns information about the model: key, name, program."""
        return {"key": self.origin.key, "name": self.origin.name, "program": self._contents.program or self.origin.key}

    def update_weights(self, weights: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """
        Replaces weights, even while other threads run the model. weights: a mapping of names to tensors, or a .safetensors
        file. A run uses either all old weights or all new ones. Weights that are not named stay unchanged. The new ones are
        copied.

        Raises AoticacheError if a name, dtype or size does not fit; nothing is changed then.
        """
        tensors = _read_weights(weights)
        with self._update_lock:
            whole = {**self.get_constants(), **self._fit(tensors, needed=False)}
            self.load_constants(
                whole, check_full_update=False, inactive=True, allow_h2d_copy=self.origin.device != "cpu"
            )
            self.swap_constants()

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """
        Writes the model into an archive, for `aoticache import` on another machine: library, weights and name, signed with the
        user's key. Weights that were passed to `load()` or `update_weights()` are not included.

        Raises AoticacheError if the model is not stored, or the archive cannot be written.
        """
        if not self.origin.stored:
            raise AoticacheError(f"{self._path}: it could not be stored, so it cannot be written", "INVALID")
        tool = tools.find("aoticache")
        if tool is None:
            raise AoticacheError("the program aoticache is not installed: install the tools", "UNSUPPORTED")
        words = [tool, "export", os.fspath(path), "--key", self.origin.key, "--cache-dir", self._cache.directory, "--quiet"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise AoticacheError(done.stderr.strip() or f"aoticache export ended with {done.returncode}", "IO")

    def _fit(self, tensors: Mapping[str, Any], needed: bool) -> dict[str, Any]:
        """Returns the tensors that are constants, with the strides that the library expects. Raises AoticacheError."""
        fitted: dict[str, Any] = {}
        for constant in self._contents.constants:
            tensor = constant.value_in(tensors)
            if tensor is not None:
                fitted[constant.name] = _with_strides(tensor.detach(), constant, self._path)
            elif needed and not constant.file:
                raise AoticacheError(f"{self._path}: the weight {constant.name} has no value", "INVALID")
        if tensors and not fitted and self._contents.constants:
            first = self._contents.constants[0].name
            raise AoticacheError(
                f"{self._path}: no weight belongs to the model; the first is {next(iter(tensors))}, "
                f"the model's {first}",
                "INVALID",
            )
        return fitted

    def __repr__(self) -> str:
        return (
            f"<CompiledModel {self.origin.name or self.origin.key[:12]} on {self.origin.device}, {self.origin.source}>"
        )


class BackgroundModel:
    """A model that is being compiled: the module itself answers calls until the compiled model is ready."""

    def __init__(self, eager: Callable[..., Any], make: Callable[[], CompiledModel]) -> None:
        self._eager = eager
        self._model: CompiledModel | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        thread = threading.Thread(target=_make_in_background, args=(weakref.ref(self), make, self._done), daemon=True)
        thread.name = "aoticache compile"
        thread.start()

    @property
    def ready(self) -> bool:
        """Returns whether the compiled model answers calls."""
        return self._model is not None

    def wait(self, timeout: float | None = None) -> CompiledModel | None:
        """Waits for the compiled model and returns it; None after `timeout` seconds. Raises what the compile
        raised."""
        if not self._done.wait(timeout):
            return None
        if self._error is not None:
            raise self._error
        return self._model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._model is not None:
            return self._model(*args, **kwargs)
        with require_torch().no_grad():
            return self._eager(*args, **kwargs)

    def __repr__(self) -> str:
        state = "failed" if self._error is not None else "ready" if self.ready else "compiling"
        return f"<BackgroundModel {state}>"


def _make_in_background(
    owner: weakref.ref[BackgroundModel], make: Callable[[], CompiledModel], done: threading.Event
) -> None:
    model, error = None, None
    try:
        model = make()
    except BaseException as problem:  # noqa: BLE001 - wait() raises it
        error = problem
        warn_once("model", f"aoticache: a model was not compiled, PyTorch answers: {type(problem).__name__}: {problem}")
    background = owner()
    if background is not None:
        background._model, background._error = model, error
    done.set()


# ---- from arguments to a key ----


def compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
    id: str | None = None,
    weights: str = "apart",
    mode: str = "wait",
    num_runners: int = 1,
    strict: bool = False,
    replace: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
) -> CompiledModel | BackgroundModel:
    """
    Compiles a model ahead of time, once per machine or fleet; later calls load it from the cache.

    model: a module, a function of tensors, or an ExportedProgram (args and kwargs are then not needed).
    args, kwargs: example arguments. Values in them that are not tensors become part of the program; calls with other values
        are refused.
    dynamic_shapes: as for `torch.export.export`; None: every size is fixed.
    options: options of Inductor, by name ({"max_autotune": True}). They are part of the key.
    id: a name. If a model with this name is stored, its program is used with this module's weights, without an export as
        long as the module's classes, attributes and sizes are unchanged. A module that needs another program is refused: use
        another name, or replace=True. If the name is not stored, program and weights are stored under it, for `load()`.
    weights: "apart": weights are not part of the program, so all fine-tuned variants of a model share one compile.
        "frozen": weights are compiled in, folded and packed, and part of the key.
    mode: "wait", or "background": the module itself answers calls until it is compiled (`BackgroundModel`).
    num_runners: how many calls may run concurrently. strict: as for `torch.export.export`.
    cache_dir: None: the cache of `configure()`.

    Raises the exceptions of torch.export and Inductor, and AoticacheError. Compiled models are for inference: results have
    no gradients.

    >>> model = aoticache.compile(module, (x,), id="classifier-3")                              # doctest: +SKIP
    >>> y = model(x)                                                                            # doctest: +SKIP
    """
    require_torch()
    _check_arguments(id, weights, mode, options)
    task = _Task(
        store=Records(_open_cache(cache_dir)),
        model=model,
        args=tuple(args),
        kwargs=dict(kwargs or {}),
        dynamic_shapes=dynamic_shapes,
        options=dict(options or {}),
        name=id or "",
        frozen=weights == "frozen",
        num_runners=num_runners,
        strict=strict,
    )
    if task.name and not replace:
        found = task.open_named()
        if found is not None:
            return found
    if task.program is None:
        task.export()
    if mode == "background":
        found = task.open_program()
        if found is None:
            return BackgroundModel(task.eager(), lambda: task.make(replace))
    return task.make(replace)


def load(
    name_or_key: str,
    *,
    weights: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    map_weights: bool = False,
    num_runners: int = 1,
    device: str | None = None,
    imports: bool | Sequence[str] = True,
    results: str = "class",
    cache_dir: str | os.PathLike[str] | None = None,
) -> CompiledModel:
    """
    Loads a stored model, by the name given to `compile(..., id=)`, or by its key or the first digits of the key (at least 8).

    weights: replace stored weights of the same names: a .safetensors file, which is read into memory, or a mapping of names
    to tensors, which are used without a copy. A program that was stored without a name needs them.
    map_weights: map the file instead, so that processes share it. The file must stay unchanged while the model lives: if it is
    truncated, the process is killed (SIGBUS).
    num_runners: how many calls may run concurrently. device: "cuda:1"; None: the device that it was compiled for.
    imports: the classes of the model's arguments and results belong to modules, which are imported if this process does not know
    the classes. False: import none; a list: only these modules and what is in them (["transformers"]). True imports nothing from
    the current directory that Python itself put into sys.path (python -c, python -m); a list may.
    results: "class": the classes of the module's results. "dict": a dict with the fields as attributes stands for each class that
    is not Python's or PyTorch's, so nothing is imported for results.

    Raises AoticacheError: NOT_FOUND lists the existing models; DENIED, UNSUPPORTED name a class that the model needs.

    >>> model = aoticache.load("classifier-3")                                                  # doctest: +SKIP
    """
    torch = require_torch()
    classes.check_imports(imports)
    check_results(results)
    store = Records(_open_cache(cache_dir))
    path = weights if isinstance(weights, (str, os.PathLike)) else None
    options = _model_options(torch, num_runners)
    options.weights = capi.encode(path)
    options.device = capi.encode(device)
    options.partial_weights = isinstance(weights, Mapping)
    options.map_weights = map_weights
    pointer, report = c_void_p(), capi.ModelReport()
    store.library.call(
        "aoticache_model_lookup",
        store.cache.handle,
        capi.encode(name_or_key),
        byref(options),
        byref(pointer),
        byref(report),
    )
    artifact = Artifact(store, pointer)
    try:
        model = _open(store, artifact, options, report, source="stored", imports=imports, results=results)
    finally:
        artifact.close()
    if isinstance(weights, Mapping):
        _give(model, model._fit(weights, needed=True))
    caches.log.debug("model %s: hit: loaded from the cache", name_or_key)
    return model


# ---- one call of compile() ----


class _Task:
    """One call of compile(): its request and the steps to fulfil it."""

    def __init__(
        self,
        store: Records,
        model: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic_shapes: Any,
        options: dict[str, Any],
        name: str,
        frozen: bool,
        num_runners: int,
        strict: bool,
    ) -> None:
        self.torch = require_torch()
        self.store = store
        self.model = model
        self.args = args
        self.kwargs = kwargs
        self.dynamic_shapes = dynamic_shapes
        self.options = options
        self.name = name
        self.frozen = frozen
        self.num_runners = num_runners
        self.strict = strict
        self.program: Any = None
        self.text = ""
        self.export_seconds = 0.0

    # ---- stored models ----

    def open_named(self) -> CompiledModel | None:
        """Returns the model stored under the name, with the weights of the given module."""
        artifact = storage.look_up(self.store, self.named_question())
        if artifact is None:
            return None
        try:
            self._check_named(artifact)
            model = self._open(artifact, self.named_question(), "stored", self.name)
        finally:
            artifact.close()
        if not self.frozen:
            _give(model, model._fit(self._tensors_of_model(), needed=False))
        caches.log.debug("model %s: hit: it is stored under this name", self.name)
        return model

    def _check_named(self, artifact: Artifact) -> None:
        """Raises for a module, a function or options that the stored program was not compiled for."""
        contents = artifact.contents()
        if contents.fingerprint and contents.fingerprint == self.fingerprint():
            return
        if self.program is None:
            self.export()
        if _key_of(self.store, self.program_question()) == contents.program:
            return
        difference = graphs.difference(self.text, artifact.graph()) or "weights= or options= are not the same"
        raise AoticacheError(
            f"the model {self.name} is stored, and was compiled for another program than this one ({difference}); give another "
            "id, or say replace=True",
            "INVALID",
        )

    def fingerprint(self) -> str:
        return keys.fingerprint(self.torch, self.model, {"strict": self.strict, **self.options}, self.frozen)

    def open_program(self) -> CompiledModel | None:
        artifact = storage.look_up(self.store, self.program_question())
        if artifact is None:
            return None
        artifact.close()
        return self.make(False)

    # ---- compiling ----

    def export(self) -> None:
        begun = time.monotonic()
        self.program = (
            self.model
            if isinstance(self.model, self.torch.export.ExportedProgram)
            else _export(self.torch, self.model, self.args, self.kwargs, self.dynamic_shapes, self.strict)
        )
        self.text = graphs.describe(self.program, frozen=self.frozen)
        self.text += keys.surroundings(self.torch, self.program.graph_module)
        self.export_seconds = time.monotonic() - begun

    def make(self, replace: bool) -> CompiledModel:
        question = self.program_question()
        artifact, made = storage.get_or_make(self.store, question, self._compile)
        if made:
            caches.log.info("model %s: miss: compiled in %.1f s", self.name or "without a name", artifact.compile_seconds)
        else:
            caches.log.debug("model %s: hit: its program is in the cache", self.name or "without a name")
        try:
            if not self.name:
                model = self._open(artifact, question, "compiled" if made else "stored", "")
                if not self.frozen:
                    _give(model, model._fit(graphs.weights(self.program), needed=True))
                return model
            return self._store_named(artifact, question, made, replace)
        finally:
            artifact.close()

    def eager(self) -> Callable[..., Any]:
        if isinstance(self.model, self.torch.export.ExportedProgram):
            return self.model.module()  # type: ignore[no-any-return]
        return self.model  # type: ignore[no-any-return]

    def _store_named(self, program: Artifact, question: Question, made: bool, replace: bool) -> CompiledModel:
        named = self.named_question()
        weights = {} if self.frozen else graphs.weights(self.program)
        key = _key_of(self.store, question)
        if replace:
            _remove(self.store, named)
        artifact, _ = storage.get_or_make(
            self.store,
            named,
            lambda directory: storage.make_model(
                directory, program, key, self.fingerprint(), weights, storage.Classes.of(self.program), self.producer
            ),
        )
        try:
            self._check_named(artifact)  # another process may have stored it meanwhile
            model = self._open(artifact, named, "compiled" if made else "stored", self.name)
        finally:
            artifact.close()
        if not self.frozen:
            _give(model, model._fit(weights, needed=False))
        return model

    def _compile(self, directory: str) -> Answer:
        worker = load_worker(self.store.library)
        with _inductor_alone():
            try:
                compiled = worker.compile_program(
                    self.torch,
                    self.program,
                    directory,
                    self.name,
                    self.options,
                    self._cpu_features(),
                    self.frozen,
                )
            except worker.Unsupported as error:
                raise AoticacheError(f"{self.name or 'the model'} cannot be compiled: {error}", "UNSUPPORTED") from error
        inputs = model_inputs.describe(self.program, compiled["check"], compiled["results"])
        return storage.make_program(directory, compiled, inputs, self.program, self.producer, self.text)

    def _cpu_features(self) -> str | None:
        """Returns the CPU features as the C library chooses them for the worker. None: all that this machine has."""
        chosen = current_settings().cpu_features or capi.configured(self.store.library, "cpu")
        return None if chosen == "native" else chosen

    # ---- the question ----

    def program_question(self) -> Question:
        options = json.dumps({"frozen": self.frozen, **self.options}, sort_keys=True, default=repr)
        return storage.program_question(self._environment(), graphs.digest(self.text), options, self._device())

    def named_question(self) -> Question:
        return storage.model_question(self._environment(), self.name, self._device())

    @property
    def producer(self) -> str:
        return f"pytorch {self.torch.__version__}"

    def _environment(self) -> dict[str, str]:
        return {"framework": self.producer, "arch": platform.machine(), **_gpu(self.torch, self._device())}

    def _device(self) -> capi.Device:
        for tensor in self._all_tensors():
            if tensor.device.type == "cuda":
                return CUDA
        return CPU

    def _all_tensors(self) -> list[Any]:
        given = self.torch.utils._pytree.tree_leaves((self.args, self.kwargs))
        tensors = [value for value in given if isinstance(value, self.torch.Tensor)]
        return [*tensors, *self._tensors_of_model().values()]

    def _tensors_of_model(self) -> dict[str, Any]:
        if isinstance(self.model, self.torch.export.ExportedProgram):
            return graphs.weights(self.model)
        if isinstance(self.model, self.torch.nn.Module):
            return {
                **dict(self.model.named_parameters(remove_duplicate=False)),
                **dict(self.model.named_buffers(remove_duplicate=False)),
            }
        return {}

    def _open(self, artifact: Artifact, question: Question, source: str, name: str) -> CompiledModel:
        options = _model_options(self.torch, self.num_runners)
        options.partial_weights = True
        report = capi.ModelReport()
        report.key = capi.Digest.from_buffer_copy(bytes.fromhex(_key_of(self.store, question)))
        report.name = name.encode()
        report.device = b"cuda" if self._device().type == CUDA.type else b"cpu"
        return _open(self.store, artifact, options, report, source, self.export_seconds)


def _open(
    store: Records,
    artifact: Artifact,
    options: capi.ModelOptions,
    report: capi.ModelReport,
    source: str,
    export_seconds: float = 0.0,
    imports: bool | Sequence[str] = True,
    results: str = "class",
) -> CompiledModel:
    capi.require_libtorch(store.library)
    contents, runner = artifact.contents(), c_void_p()
    name = report.name or bytes(report.key.bytes).hex()[:12].encode()
    classes.provide(contents.classes.arguments, name.decode(), imports, "")
    if results == "class":
        classes.provide(contents.classes.results, name.decode(), imports, ', or say results="dict"')
    nodes, executor = proxy_executor.find_nodes(artifact.directory), None
    if nodes is not None:
        device = (options.device or report.device).decode() or "cpu"
        executor = proxy_executor.create(store.library, nodes, device, name.decode())
        options.proxy_executor = executor.handle
    is_stored, compile_seconds = artifact.is_stored, artifact.compile_seconds
    store.library.call(
        "aoticache_model_open_artifact",
        store.cache.handle,
        artifact.pointer,
        name,
        byref(options),
        byref(runner),
        byref(report),
    )
    origin = ModelOrigin(
        key=bytes(report.key.bytes).hex(),
        name=report.name.decode(),
        source=source,
        device=report.device.decode(),
        stored=is_stored,
        export_seconds=export_seconds,
        compile_seconds=compile_seconds,
        load_seconds=(report.lookup_ns + report.load_ns + report.weights_ns) / 1e9,
    )
    return CompiledModel(store.cache, runner, contents, origin, executor, results)


def _give(model: CompiledModel, tensors: Mapping[str, Any]) -> None:
    """Makes the tensors the model's constants. They are not copied if they are on the CPU or on the model's device."""
    if tensors:
        model.load_constants(tensors, check_full_update=False, user_managed=True)


# ---- helpers ----


def _check_arguments(name: str | None, weights: str, mode: str, options: Mapping[str, Any] | None) -> None:
    if weights not in WEIGHTS:
        raise SettingsError(f"weights is {weights!r}; it must be one of {', '.join(map(repr, WEIGHTS))}")
    if mode not in MODES:
        raise SettingsError(f"mode is {mode!r}; it must be one of {', '.join(map(repr, MODES))}")
    if name is not None and (
        not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_NAME or not name.isprintable()
    ):
        raise SettingsError(f"id is {name!r}; it must be a string of 1 to {_MAX_NAME} printable bytes")
    for option in options or ():
        if option.startswith("aot_inductor.package") or option == "aot_inductor.output_path":
            raise SettingsError(f"the option {option} cannot be set: it controls how the model is stored")


def _open_cache(cache_dir: str | os.PathLike[str] | None) -> caches.Cache:
    directory = os.path.abspath(os.fspath(cache_dir)) if cache_dir is not None else None
    return caches.open_cache(directory or current_settings().cache_dir)


def _model_options(torch: Any, num_runners: int) -> capi.ModelOptions:
    return capi.ModelOptions(
        size=sizeof(capi.ModelOptions), framework=f"pytorch {torch.__version__}".encode(), num_models=num_runners
    )


def _own_tensors(torch: Any, examples: Any) -> Any:
    """Returns the examples with a distinct tensor for each position: torch.export treats a repeated tensor as one input."""
    seen: set[int] = set()

    def own(value: Any) -> Any:
        is_again = isinstance(value, torch.Tensor) and id(value) in seen
        seen.add(id(value))
        return torch.empty_like(value).copy_(value.detach()).requires_grad_(value.requires_grad) if is_again else value

    return torch.utils._pytree.tree_map(own, examples)


def _export(torch: Any, model: Any, args: Any, kwargs: Any, dynamic_shapes: Any, strict: bool) -> Any:
    if not isinstance(model, torch.nn.Module):
        if not callable(model):
            raise SettingsError(
                f"compile() takes a module, a function or an ExportedProgram, not {type(model).__name__}"
            )
        function, model = model, torch.nn.Module()
        model.forward = function  # gives the module the function's signature
    with torch.no_grad():
        args, kwargs = _own_tensors(torch, (tuple(args), dict(kwargs or {})))
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)


def _gpu(torch: Any, device: capi.Device) -> dict[str, str]:
    if device.type != CUDA.type:
        return {}
    major, minor = torch.cuda.get_device_capability()
    return {"gpu": f"sm_{major}{minor}", "cuda": str(torch.version.cuda)}


def _key_of(store: Records, question: Question) -> str:
    digest = capi.Digest()
    with store.request(question) as request:
        store.library.call("aoticache_request_key", request, byref(digest))
    return bytes(digest.bytes).hex()


def _remove(store: Records, question: Question) -> None:
    key = capi.Digest.from_buffer_copy(bytes.fromhex(_key_of(store, question)))
    try:
        store.library.call("aoticache_cache_remove", store.cache.handle, byref(key), None)
    except AoticacheError as error:
        if error.status != "NOT_FOUND":
            raise


def _with_strides(tensor: Any, constant: storage.Constant, where: str) -> Any:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != constant.dtype or list(tensor.shape) != constant.sizes:
        raise AoticacheError(
            f"{where}: the weight {constant.name} is {dtype}{list(tensor.shape)}; the model has "
            f"{constant.dtype}{constant.sizes}",
            "INVALID",
        )
    if list(tensor.stride()) == constant.strides:
        return tensor
    torch = require_torch()
    return torch.empty_strided(constant.sizes, constant.strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _read_weights(weights: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    return weights if isinstance(weights, Mapping) else storage.read_safetensors(os.fspath(weights))


@lru_cache(maxsize=1)
def load_worker(library: capi.Library) -> ModuleType:
    """Returns the compile worker's functions, so that compiles here are the same as in the worker."""
    path = library.home / "share" / "aoticache" / "worker.py"
    if not path.is_file():
        raise AoticacheError(f"{path} is missing: reinstall libaoticache", "UNSUPPORTED")
    spec = importlib.util.spec_from_file_location("aoticache_worker", path)
    if spec is None or spec.loader is None:
        raise AoticacheError(f"{path} cannot be imported", "UNSUPPORTED")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _inductor_alone() -> Any:
    """Makes torch.compile of other threads wait, because what this compile replaces in Inductor must not affect them."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock
