"""State that affects the code of a graph but is in neither the graph nor PyTorch's key of it (docs/formats/key.md, *State*).

It has three parts, each a text for a key:
- process_state(): modes of the process and options of Dynamo, which PyTorch's compiler reads while it traces and lowers,
- registries(): what a program has added to the compiler's tables, by digests of the functions (bodies.py),
- Operators: the operators that a graph names and that are not PyTorch's.

Objects without a digest raise NotDigestible, and then nothing is served or stored. PyTorch's own objects count as known, because
keys contain its version and its sources.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from .bodies import TABLES, Digest, NotDigestible, digest, is_known, is_known_file

# ---- modes of the process ----

#: Flags of torch.backends that are read while a graph is traced or lowered; a version of PyTorch may lack some.
BACKENDS = (
    "cuda.matmul.allow_fp16_accumulation", "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction", "cuda.matmul.fp32_precision", "cudnn.enabled",
    "cudnn.deterministic", "cudnn.benchmark", "cudnn.fp32_precision", "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision", "mkldnn.enabled", "mkldnn.deterministic", "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision", "mkldnn.rnn.fp32_precision", "opt_einsum.enabled",
    "opt_einsum.strategy", "fp32_precision",
)  # fmt: skip
#: Functions without arguments, of torch and of torch.backends.
GETTERS = (
    "get_default_dtype", "get_default_device", "get_float32_matmul_precision", "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "is_inference_mode_enabled",
    "is_autocast_cache_enabled", "is_anomaly_enabled", "_C._get_default_device", "_C._get_sm_carveout_experimental",
    "_C._get_sdp_priority_order", "_C._get_overrideable_sdp_enabled", "_C._get_fa3_sdp_enabled", "_C._is_view_replay_enabled", "_C._is_fwd_grad_enabled",
    "_C._only_lift_cpu_tensors", "_C._get_dtensor_allow_implicit_replication",
    "_C._get_cpu_allow_fp16_reduced_precision_reduction", "_C._autograd._saved_tensors_hooks_is_enabled",
    "sparse.check_sparse_tensor_invariants.is_enabled", "backends.cuda.flash_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.math_sdp_enabled", "backends.cuda.cudnn_sdp_enabled",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed", "backends.mha.get_fastpath_enabled",
)  # fmt: skip

#: Variables that change code and are not options of a configuration.
VARIABLES = (
    "FX_PATCH_GETITEM", "HALIDE_INCLUDE", "HALIDE_LIB", "PYTORCH_ROCM_ARCH", "TENSORIFY_PYTHON_SCALARS",
    "TORCHINDUCTOR_DEBUG_COMPILE", "TORCHINDUCTOR_DEBUG_SYMBOL", "TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE",
    "TORCHINDUCTOR_PATTERN_MATCH_BACKEND", "TORCHINDUCTOR_XPU_KERNEL_FORMAT", "TRITON_INTERPRET", "TRITON_USE_META_WS",
    "TVM_SCHEDULER", "_SPLITTER_MERGE_OVERLAPPING_FUSIONS",
)  # fmt: skip


def _get(name: str) -> Any:
    """Returns an attribute of torch, or None if this version has none of that name."""
    import torch

    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _value_of(name: str) -> Any:
    try:
        found = _get(name)
        return found() if callable(found) else found
    except RuntimeError:  # PyTorch raises if a precision was set both in the old way and in the new one
        return "undecided"


def process_state(is_on_cpu: bool = True) -> str:
    """Returns the modes of the process and of this thread. is_on_cpu: the code is for the CPU too. Raises NotDigestible."""
    import torch

    state = {name: _value_of(name) for name in (*GETTERS, *("backends." + one for one in BACKENDS))}
    state["fill_uninitialized_memory"] = _get("utils.deterministic.fill_uninitialized_memory")
    state["variables"] = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    state["denormals are zero"] = sys.float_info.min / 2 == 0.0
    for device in torch._C._autocast_supported_devices():
        if torch.is_autocast_enabled(device):
            state[f"autocast {device}"] = torch.get_autocast_dtype(device)
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    state["functorch"] = [str(one.key()) for one in transforms]
    if is_on_cpu and not _pytorch_has_threads():
        state["threads"] = torch.get_num_threads()
    told = Digest().add([_plain(state), _dispatch_modes()])
    for module in ("torch._dynamo.config", "torch.fx.experimental._config"):
        told.add(_options(sys.modules.get(module)))
    return told.hex()


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, (bool, int, list)) else str(value) for name, value in state.items()}


@functools.lru_cache(maxsize=1)
def _pytorch_has_threads() -> bool:
    """Returns whether PyTorch's own key contains the number of threads if the code depends on it (since 2.13)."""
    from torch._inductor.codecache import FxGraphHashDetails

    return hasattr(FxGraphHashDetails, "_may_generate_cpu_cpp_code")


def _dispatch_modes() -> list[str]:
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return [digest(type(mode)) for mode in _get_current_dispatch_mode_stack()]


def _options(module: Any) -> dict[str, Any]:
    """Returns the options of a configuration that differ from PyTorch's defaults."""
    if module is None:
        return {}
    changed = module._get_dict(skip_default=True)  # includes options that were set back, as PyTorch's own code does
    ignored = getattr(module, "_save_config_ignore", ())
    return {name: changed[name] for name in sorted(changed)
            if name not in ignored and changed[name] != module._config[name].default}  # fmt: skip


# ---- functions that a program registers with PyTorch's compiler ----

#: Tables of functions and of patterns: module, attribute.
REGISTRIES = (
    ("torch._inductor.lowering", "lowerings"), ("torch._inductor.lowering", "user_lowerings"),
    ("torch._inductor.lowering", "_maybe_layout_constraints"), ("torch._inductor.decomposition", "decompositions"),
    ("torch._decomp", "global_decomposition_table"), ("torch._decomp.decompositions_for_rng", "rng_decompositions"),
    ("torch._decomp.decompositions_for_rng", "extra_random_decomps"), ("torch._inductor.decomposition", "inductor_decompositions"),
    ("torch._higher_order_ops.utils", "registered_hop_fake_fns"), ("torch._subclasses.fake_impls", "FAST_OP_IMPLEMENTATIONS"),
    ("torch._inductor.ir", "REDUCTION_COMBINE_FN"), ("torch._inductor.fx_utils", "flop_registry"),
    ("torch._inductor.runtime.benchmarking", "_BENCHMARK_DISPATCH"), ("torch._library.triton", "triton_ops_to_kernels"),
    ("torch._subclasses.fake_impls", "op_implementations_dict"),
    ("torch._subclasses.fake_impls", "op_implementations_checks"), ("torch._subclasses.fake_tensor", "_DISPATCH_META_HANDLERS"),
    ("torch._functorch.aot_autograd", "aot_autograd_decompositions"), ("torch._inductor.hooks", "INTERMEDIATE_HOOKS"),
    ("torch._inductor.codegen.common", "device_codegens"), ("torch._inductor.codegen.common", "device_op_overrides_dict"),
    ("torch._inductor.codegen.common", "pointwise_overrides_data"), ("torch._inductor.constant_folding", "_dont_constant_fold"),
    ("torch._inductor.template_heuristics.registry", "_TEMPLATE_HEURISTIC_REGISTRY"),
    ("torch._inductor.utils", "op_dtype_propagation_rules"), ("torch._inductor.config", "external_matmul"),
    ("torch._inductor.fx_passes.post_grad", "noop_registry"), ("torch._inductor.fx_passes.post_grad", "pass_patterns"),
    ("torch._inductor.fx_passes.joint_graph", "pass_patterns"), ("torch._inductor.fx_passes.freezing_patterns", "pass_patterns"),
    ("torch._inductor.fx_passes.reinplace", "inplaceable_ops"),
    ("torch._inductor.fx_passes.reinplace", "inplaceable_foreach_ops"),
    ("torch._inductor.fx_passes.split_cat", "PRE_GRAD_PATTERNS"), ("torch._inductor.fx_passes.split_cat", "POST_GRAD_PATTERNS"),
    ("torch._inductor.fx_passes.group_batch_fusion", "PRE_GRAD_FUSIONS"),
    ("torch._inductor.fx_passes.group_batch_fusion", "POST_GRAD_FUSIONS"), ("torch._library._out_variant", "_manual_out_variant_registry"),
    ("torch._higher_order_ops.effects", "_EFFECTFUL_HOPS_WITH_SCHEMA"),
)  # fmt: skip
#: Options that hold functions, and that PyTorch's key of Inductor's configuration omits or represents only by name.
PASSES = (
    ("torch._inductor.config", "pre_grad_custom_pass"), ("torch._inductor.config", "joint_custom_pre_pass"),
    ("torch._inductor.config", "joint_custom_post_pass"), ("torch._inductor.config", "post_grad_custom_pre_pass"),
    ("torch._inductor.config", "post_grad_custom_post_pass"), ("torch._inductor.config", "_pre_fusion_custom_pass"),
    ("torch._inductor.config", "_post_fusion_custom_pass"), ("torch._inductor.config", "_fuse_ddp_communication_passes"),
    ("torch._inductor.config", "custom_partitioner_fn"), ("torch._inductor.config", "inductor_choices_class"),
    ("torch._functorch.config", "joint_custom_pass"),
)  # fmt: skip

#: Objects that belong to PyTorch, by id(); they are kept alive, so that no other object gets the same id().
_ours: dict[int, Any] = {}


def registries(configuration: Mapping[str, Any] | None = None) -> str:
    """
    Returns what the program has added to the compiler's tables. configuration: Inductor's, as in PyTorch's key. Raises
    NotDigestible.
    """
    found: list[tuple[str, str]] = []
    for module_name, attribute in REGISTRIES:
        table = getattr(sys.modules.get(module_name), attribute, None)
        if table is not None:
            TABLES[id(table)] = f"{module_name}.{attribute}"
            found += [(f"{attribute} {where}", _digest_of(value, attribute, where)) for where, value in _foreign(table)]
    for name, table in _pattern_passes():
        found += [(f"{name} {where}", _digest_of(value, name, where)) for where, value in _foreign(table.patterns)]
    for module_name, option in PASSES:
        value = getattr(sys.modules.get(module_name), option, None)
        if value and _is_foreign(value):
            found.append((option, _digest_of_pass(value, option)))
    for name, value in (configuration or {}).items():
        if _is_foreign(value):
            found.append((name, _digest_of(value, "the option", name)))
    choices = sys.modules.get("torch._inductor.virtualized")
    if choices is not None and _is_foreign(type(choices.V.choices)):
        found.append(("choices", _digest_of(choices.V.choices, "the choices", "handler")))
    return digest(sorted(found) + [names_of_decompositions()])


_passes: tuple[int, list[tuple[str, Any]]] = (0, [])


def _pattern_passes() -> list[tuple[str, Any]]:
    """Returns the pattern matcher passes of all imported modules of Inductor."""
    global _passes
    if _passes[0] != len(sys.modules):
        modules = [(name, vars(one)) for name, one in list(sys.modules.items()) if name.startswith("torch._inductor.fx_passes.")]
        found = [(f"{name}.{attribute}", value) for name, inside in modules for attribute, value in inside.items()
                 if type(value).__name__ == "PatternMatcherPass"]  # fmt: skip
        _passes = (len(sys.modules), found)
    return _passes[1]


def _digest_of(value: Any, table: str, where: str) -> str:
    try:
        return digest(value)
    except NotDigestible as error:
        raise NotDigestible(f"{table} of PyTorch's compiler has a custom entry of this program ({where}): {error}") from None


def _digest_of_pass(value: Any, option: str) -> str:
    """Returns the digest of a pass. If it has none, its author must keep its uuid() up to date, which is in PyTorch's key."""
    try:
        return digest(value)
    except NotDigestible as error:
        if all(hasattr(one, "uuid") for one in (value if isinstance(value, (list, tuple)) else (value,))):
            return "uuid"
        raise NotDigestible(f"the option {option} has no uuid(), and no digest: {error}") from None


def _foreign(table: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the entries of a table, or of tables in it, that are not PyTorch's."""
    if type(table).__name__ == "PatternMatcherPass" and is_known(type(table)):
        table = table.patterns
    entries = table.items() if isinstance(table, Mapping) else (("", value) for value in table)
    for key, value in list(entries):
        if id(value) in _ours:
            continue
        if isinstance(value, (Mapping, list, tuple, set, frozenset)) or type(value).__name__ == "PatternMatcherPass":
            yield from _foreign(value, f"{where} {key}")
        elif _is_foreign(value):
            yield re.sub(r" at 0x[0-9a-f]+", "", f"{where} {key}".strip()), value
        else:
            _ours[id(value)] = value


def _is_foreign(value: Any, depth: int = 4) -> bool:
    """Returns whether a value is, closes over or holds a function or a class that is not PyTorch's."""
    kind = type(value)
    if kind is types.FunctionType:
        if not is_known(value):
            return True
        return depth > 0 and any(_is_foreign(_content(cell), depth - 1) for cell in value.__closure__ or ())
    if value is None or kind in (bool, int, float, str, bytes) or depth == 0 or kind.__module__ == "torch._ops":
        return False
    if isinstance(value, type):
        return not is_known(value)
    if kind is types.MethodType:
        code = getattr(value.__func__, "__code__", None)
        is_made = code is not None and code.co_filename == "<string>" and is_known(type(value.__self__))
        return not is_made and _is_foreign(value.__func__, depth) or _is_foreign(value.__self__, depth - 1)
    if isinstance(value, functools.partial):
        return any(_is_foreign(one, depth - 1) for one in (value.func, *value.args, *value.keywords.values()))
    if isinstance(value, Mapping):
        return any(_is_foreign(one, depth - 1) for one in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_is_foreign(one, depth - 1) for one in value)
    if not is_known(kind):
        return True
    return any(_is_foreign(one, depth - 1) for one in getattr(value, "__dict__", {}).values() if callable(one))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


_decompositions: tuple[dict[Any, Any], str] = ({}, "")


def names_of_decompositions() -> str:
    """Returns which functions of PyTorch decompose which operator, because programs remove some."""
    global _decompositions
    module: Any = sys.modules.get("torch._inductor.decomposition")
    table = getattr(module, "decompositions", {})
    if _decompositions[0] != table:
        lines = [f"{key} {getattr(value, '__qualname__', '')}" for key, value in table.items()]
        _decompositions = (dict(table), digest(sorted(lines)))
    return _decompositions[1]


# ---- operators that are not PyTorch's ----

#: Keys of kernels that a compiled graph calls at run time, so that they are not compiled into code.
_CALLED = re.compile(r"(Quantized|Sparse|SparseCsr|NestedTensor|Mkldnn)?(CPU|CUDA|HIP|XPU|MPS|HPU|MTIA|XLA|IPU|VE|MAIA|Lazy|PrivateUse\d)"
                     r"|Tracer")  # fmt: skip
_KERNEL = re.compile(r"^(\w+)(\[alias\])?: registered at (.*):\d+ ::", re.M)


class Operators:
    """The operators of a graph that are not PyTorch's, including those that their bodies call."""

    def __init__(self, graph: Any) -> None:
        self._found: dict[str, Any] = {}
        for operator in operators_in(graph):
            self._add(operator)

    def _add(self, operator: Any) -> None:
        if operator.name() not in self._found and is_foreign(operator):
            self._found[operator.name()] = operator

    def schemas(self) -> str:
        """Returns what lowering a call depends on. Raises NotDigestible."""
        return digest([_schema_of(one) for _, one in sorted(self._found.items())])

    def bodies(self) -> str:
        """Returns what tracing a call also runs: fake kernels, gradients, rules of transforms. Raises NotDigestible."""
        parts: dict[str, list[Any]] = {}
        while waiting := [name for name in self._found if name not in parts]:
            names: set[str] = set()
            for name in waiting:
                told = Digest()
                parts[name] = [_schema_of(self._found[name]), told.add(_bodies_of(self._found[name])).hex()]
                names |= told.names
            for operator in _operators_named(names):
                self._add(operator)
        return digest(sorted(parts.items()))


def operators_in(graph: Any) -> Iterator[Any]:
    """Yields the overloads that a graph calls or forwards."""
    import torch

    for module in graph.modules() if graph is not None else ():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            for value in (node.target, *node.args, *node.kwargs.values()):
                if isinstance(value, torch._ops.OpOverload):
                    yield value
                elif isinstance(value, torch._ops.OpOverloadPacket):
                    packet: Any = value
                    yield from (getattr(packet, name) for name in packet.overloads())


#: Lists of operators that are handled specially.
LISTS = (
    ("torch._inductor.lowering", "needs_realized_inputs"), ("torch._inductor.lowering", "foreach_ops"),
    ("torch._inductor.lowering", "inplace_foreach_ops"), ("torch._inductor.lowering", "inplaceable_foreach_ops"),
    ("torch._inductor.constant_folding", "_dont_constant_fold"), ("torch.fx.node", "_side_effectful_functions"),
    ("torch.fx.node", "_side_effectful_need_to_be_preserved_pre_dispatch"),
)  # fmt: skip


def _schema_of(operator: Any) -> list[Any]:
    lists = [attribute for module, attribute in LISTS if operator in getattr(sys.modules.get(module), attribute, ())]
    # If an operator has no lowering, the first compile creates one that calls it, and adds it to this list.
    if operator in getattr(sys.modules.get("torch._inductor.lowering"), "fallbacks", ()):
        lists = [one for one in lists if one != "needs_realized_inputs"]
    own = {str(key): body for key, body in operator.py_kernels.items() if _is_foreign(body)}
    return [str(operator._schema), sorted(map(str, operator.tags)), lists, own]


def _bodies_of(operator: Any) -> list[Any]:
    """Returns an operator's functions that PyTorch's Python side knows. Raises NotDigestible if it has other kernels."""
    from torch._library.custom_ops import OPDEFS
    from torch._library.simple_registry import singleton

    name = operator.name()
    entry = singleton.get(name)
    definition = OPDEFS.get(name)
    fake = entry.fake_impl.kernel if entry is not None else None
    bodies: list[Any] = [fake.func if fake is not None else None]
    if entry is not None:
        bodies += [getattr(entry.torch_dispatch_rules, "_data", {}), str(getattr(getattr(entry, "effect", None), "effect", ""))]
    if definition is not None:
        names = ("_abstract_fn", "_setup_context_fn", "_backward_fn", "_torch_dispatch_fns", "_vmap_fn", "_autocast_dtype")
        bodies += [getattr(definition, one, None) for one in names]
    has_meta = torch_has_kernel(name, "Meta")
    for key, _, file in _KERNEL.findall(dump(name)):
        is_told = definition is not None and file.endswith(os.path.join("torch", "_library", "custom_ops.py"))
        is_told |= key == "Meta" and fake is not None or key == "CompositeExplicitAutograd" and has_meta
        if not is_told and not _CALLED.fullmatch(key):
            raise NotDigestible(f"the operator {name} has a kernel for {key} whose code PyTorch does not show ({file})")
    return bodies


def torch_has_kernel(name: str, key: str) -> bool:
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def dump(name: str) -> str:
    """Returns the dispatcher's description of an operator."""
    import torch

    return str(torch._C._dispatch_dump(name))


@functools.lru_cache(maxsize=1)
def _source_directory() -> str:
    """Returns the directory of PyTorch's sources when it was built, taken from its registrations."""
    found = re.search(r"registered at (.*?)(build/)?aten/src/", dump("aten::add.Tensor"))
    return found[1] if found is not None else ""


def _is_pytorchs(file: str) -> bool:
    directory = _source_directory()
    return is_known_file(file) and not file.endswith(os.path.join("torch", "_library", "custom_ops.py")) \
        or bool(directory) and file.startswith(directory)  # fmt: skip


_foreign_operators: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def is_foreign(operator: Any) -> bool:
    """Returns whether an operator was defined outside PyTorch."""
    found = _foreign_operators.get(operator)
    if found is None:
        defined = re.search(r"^debug: registered at (.*):\d+$", dump(operator.name()), re.M)
        found = _foreign_operators[operator] = defined is None or not _is_pytorchs(defined[1])
    return found


_all_names: tuple[tuple[int, ...], list[str]] = ((), [])


def _operators_named(names: set[str]) -> Iterator[Any]:
    """Yields the overloads whose namespace and name occur in the code of a body."""
    import torch

    global _all_names
    state = (len(sys.modules), len(torch.library._defs), len(torch.ops.loaded_libraries))  # a definition changes one of these
    if _all_names[0] != state:
        _all_names = (state, [name for name in torch._C._dispatch_get_all_op_names() if not name.startswith("aten::")])
    for whole in _all_names[1]:
        namespace, _, name = whole.partition("::")
        name, _, overload = name.partition(".")
        if namespace in names and name in names:
            yield getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


_libraries: weakref.WeakKeyDictionary[Any, tuple[int, str]] = weakref.WeakKeyDictionary()


def check_pytorchs_operators() -> None:
    """Raises NotDigestible if the program has replaced kernels of PyTorch that tracing runs."""
    import torch

    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        alive = finalizer.peek()
        if alive is None or not isinstance(alive[0], torch.library.Library):
            continue
        library = alive[0]
        count, problem = _libraries.get(library, (-1, ""))
        if count != len(library._op_impls):
            problem = _replaced_by(library)
            _libraries[library] = (len(library._op_impls), problem)
        if problem:
            raise NotDigestible(problem)


def _replaced_by(library: Any) -> str:
    """Describes a replaced kernel of PyTorch. (A library registers all its kernels at one line of one file.)"""
    for place in sorted(library._op_impls):
        namespace, name, key = place.split("/")
        whole = f"{namespace}::{name}"
        if whole in library._op_defs or _CALLED.fullmatch(key or "CompositeImplicitAutograd"):
            continue
        described = dump(whole)
        defined = re.search(r"^debug: registered at (.*):\d+$", described, re.M)
        if defined is None or not _is_pytorchs(defined[1]):
            continue  # the program's own operator: it matters only if a graph calls it
        files = {found: file for found, _, file in _KERNEL.findall(described)}
        file = files.get(key or "CompositeImplicitAutograd")
        if file is None:
            continue
        return "" if _is_pytorchs(file) else f"{whole} has a kernel for {key} of this program's own ({file})"
    return ""


# ---- inputs and results ----


def subclasses(inputs: Any) -> str:
    """Returns the classes of traced tensors that are not PyTorch's. Raises NotDigestible."""
    import torch

    found: list[type] = []

    def visit(value: Any) -> None:
        if not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter):
            return
        if not is_known(type(value)):
            found.append(type(value))
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                visit(getattr(value, name))

    for value in inputs:
        visit(value)
    return digest(found)


def results(graph: Any) -> str:
    """Returns the results of a graph's nodes according to fake kernels: the generated code relies on them."""
    import torch

    def told(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [told(one) for one in value]
        if not isinstance(value, torch.Tensor):
            return str(value) if isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)) else None
        strides = str(value.stride()) if value.layout is torch.strided else ""
        return [str(value.dtype), str(tuple(value.shape)), strides, str(value.device)]

    lines = []
    for module in graph.modules() if graph is not None else ():
        if isinstance(module, torch.fx.GraphModule):
            lines += [[node.op == "call_function" and told(node.meta.get("val"))] for node in module.graph.nodes]
    return digest(lines)
