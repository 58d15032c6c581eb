"""Tests the census of state (docs/formats/key.md, *State*): everything that PyTorch lets a program set is in the table, and
changing a state that is in the keys of torch.compile's records according to its row changes them."""
import fnmatch
import importlib
import json
import os
import pkgutil
import re
import sys
import types
import warnings

import pytest
import torch

from torch_scenarios import TOP, play

import subprocess

SETTER = re.compile(r"_?(set|use|enable|allow|preferred|seed|manual_seed|no_grad|inference_mode|autocast|sdp_kernel|flags)")
#: Modules with setters, apart from torch.backends and what is below it.
MODULES = ("torch", "torch._C", "torch.__future__", "torch.accelerator", "torch.amp", "torch.autograd", "torch.autograd.grad_mode",
           "torch.autograd.graph", "torch.compiler", "torch.cpu", "torch.cuda", "torch.func", "torch.overrides", "torch.random",
           "torch.sparse", "torch.utils.checkpoint", "torch.utils.deterministic", "torch.xpu", "torch.mps", "torch.mtia")
CONFIGURATIONS = ("torch._inductor.config", "torch._functorch.config", "torch._dynamo.config", "torch.fx.experimental._config",
                  "torch.compiler.config", "torch._inductor.config_comms")
#: Modules whose sources read variables: the compiler, and the modules that it consists of.
COMPILER = ("_inductor", "_functorch", "_dynamo", "_higher_order_ops", "_subclasses", "_library", "_decomp", "fx", "_refs")


def rows():
    """Returns the cells of the table: what it is about, and what each surface does with it."""
    with open(os.path.join(TOP, "docs", "formats", "key.md")) as file:
        text = file.read().partition("## State")[2]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def patterns():
    return [name for row in rows() for name in re.findall(r"`([^`]+)`", row[0])]


def unknown(names):
    known = patterns()
    return sorted(name for name in names if not any(fnmatch.fnmatchcase(name, one) for one in known))


def modules_of_backends():
    for info in pkgutil.walk_packages(torch.backends.__path__, "torch.backends."):
        try:
            yield importlib.import_module(info.name)
        except ImportError:  # a backend that is not installed
            continue


@pytest.mark.quick
def test_no_row_is_open():
    assert len(rows()) > 20
    for row in rows():
        assert len(row) == 4 and all(row) and "open" not in " ".join(row[1:]).split(), row


@pytest.mark.quick
def test_each_setter_is_in_the_table():
    found = set()
    for name in MODULES:
        module = importlib.import_module(name)
        found |= {f"{name}.{one}" for one in dir(module) if SETTER.match(one) and callable(getattr(module, one, None))}
    for module in modules_of_backends():
        name = module.__name__
        found |= {f"{name}.{one}" for one in vars(module) if SETTER.match(one) and callable(getattr(module, one))}
        for cls in type(module).__mro__:  # a module whose attributes are settings
            found |= {f"{name}.{one}" for one, value in vars(cls).items() if type(value).__name__ in ("ContextProp", "property")}
    assert len(found) > 150
    assert not unknown(found), unknown(found)


@pytest.mark.quick
def test_each_option_is_in_the_table_or_in_the_key():
    """Inductor's options are in PyTorch's key of a graph, AOTAutograd's in that of its result, changed ones of others in
    ours."""
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor, config_comms

    sys.path.insert(0, os.path.join(TOP, "eager", "torch"))
    keyed = {"torch._inductor.config": inductor.save_config_portable(ignore_private_configs=False),
             "torch._inductor.config_comms": config_comms.save_config_portable(ignore_private_configs=False),
             "torch._functorch.config": functorch._get_dict(ignored_keys=functorch._save_config_ignore)}
    missing = set()
    for name in CONFIGURATIONS:
        module = importlib.import_module(name)
        in_key = keyed.get(name)
        if in_key is None and name != "torch.compiler.config":
            in_key = set(module._config) - set(getattr(module, "_save_config_ignore", ()))
        missing |= {f"{name}.{one}" for one, entry in module._config.items() if one not in (in_key or ()) and not entry.alias}
    assert not unknown(missing), unknown(missing)


@pytest.mark.quick
def test_each_variable_is_in_the_table_or_an_option():
    """Variables that a configuration reads at import are options. Those that other modules read are in the table."""
    found = set()
    reads = re.compile(r"""(?:environ(?:\.get|\.setdefault)?[\[(]|getenv\()\s*f?["']([A-Za-z_0-9]+)""")
    for top in COMPILER:
        for directory, _, files in os.walk(os.path.join(os.path.dirname(torch.__file__), top)):
            for name in files:
                if name.endswith(".py") and "config" not in name:
                    with open(os.path.join(directory, name)) as file:
                        found |= set(reads.findall(file.read()))
    assert len(found) > 20
    assert not unknown(found), unknown(found)


def holds_functions(value, depth=2):
    if isinstance(value, (types.FunctionType, type)) or type(value).__name__ == "PatternMatcherPass":
        return True
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, set)) else ()
    return depth > 0 and any(holds_functions(one, depth - 1) for one in list(inside)[:50])


@pytest.mark.quick
def test_each_table_of_the_compiler_is_looked_at():
    """The tables of functions of PyTorch's compiler are those that _digests/surroundings.py checks, or in the table."""
    sys.path.insert(0, os.path.join(TOP, "eager", "torch"))
    from aoticache._digests import surroundings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch._functorch.aot_autograd  # noqa: F401
        import torch._inductor.compile_fx  # noqa: F401
        import torch._inductor.fx_passes.joint_graph  # noqa: F401
        import torch._inductor.fx_passes.post_grad  # noqa: F401
        import torch._inductor.fx_passes.pre_grad  # noqa: F401
    seen = {id(getattr(sys.modules.get(module), name, None)) for module, name in (*surroundings.REGISTRIES, *surroundings.LISTS)}
    seen |= {id(one) for _, one in surroundings._pattern_passes()}
    seen |= {id(one) for one in torch._decomp.global_decomposition_table.values()}
    compiler = re.compile(r"torch\.(_inductor|_functorch|_decomp|_subclasses|_higher_order_ops|_library|fx\.node$)")
    missing = set()
    for name, module in list(sys.modules.items()):
        if compiler.match(name) and module is not None:
            for attribute, value in list(vars(module).items()):
                is_table = isinstance(value, (dict, list, set)) or type(value).__name__ == "PatternMatcherPass"
                is_own = not attribute.startswith("__") and attribute != "_config" and id(value) not in seen
                if is_table and is_own and holds_functions(value):
                    missing.add(f"{name}.{attribute}")
    assert not unknown(missing), unknown(missing)


#: Changes, and what they do to the keys of a graph and of AOTAutograd's result: "both", "trace" (AOTAutograd's only), "none",
#: "refused" (both), or "untraced" (AOTAutograd's result is refused, because code that it was traced through has no digest).
CHANGES = {
    "nothing": ("pass", "none"),
    "default dtype": ("torch.set_default_dtype(torch.float64)", "both"),
    "default device": ("torch.set_default_device('meta')", "both"),
    "matmul precision": ("torch.set_float32_matmul_precision('medium')", "both"),
    "deterministic": ("torch.use_deterministic_algorithms(True)", "both"),
    "deterministic, warnings": ("torch.use_deterministic_algorithms(True, warn_only=True)", "both"),
    "debug mode": ("torch.set_deterministic_debug_mode('warn')", "both"),
    "fill": ("torch.utils.deterministic.fill_uninitialized_memory = False", "both"),
    "denormals": ("torch.set_flush_denormal(True)", "both"),
    "threads": ("torch.set_num_threads(torch.get_num_threads() + 1)", "both"),
    "autocast": ("torch.set_autocast_enabled('cpu', True)", "both"),
    "autocast's dtype": ("torch.set_autocast_enabled('cpu', True); torch.set_autocast_dtype('cpu', torch.float16)", "both"),
    "autocast's cache": ("torch.set_autocast_cache_enabled(False)", "both"),
    "anomalies": ("torch.set_anomaly_enabled(True)", "both"),
    "inference mode": ("mode = torch.inference_mode(); mode.__enter__()", "both"),
    "mkldnn": ("torch.backends.mkldnn.enabled = False", "both"),
    "mkldnn's precision": ("torch.backends.mkldnn.matmul.fp32_precision = 'bf16'", "both"),
    "cudnn": ("torch.backends.cudnn.benchmark = True", "both"),
    "cublas": ("torch.backends.cuda.matmul.allow_tf32 = True", "both"),
    "flash attention": ("torch.backends.cuda.enable_flash_sdp(False)", "both"),
    "math attention": ("torch.backends.cuda.enable_math_sdp(False)", "both"),
    "fast path": ("torch.backends.mha.set_fastpath_enabled(False)", "both"),
    "sparse invariants": ("torch.sparse.check_sparse_tensor_invariants.enable()", "both"),
    "functorch": ("torch._C._functorch._grad_increment_nesting()", "both"),
    "dispatch mode": ("mode = Mode(); mode.__enter__()", "both"),
    "Inductor's option": ("torch._inductor.config.cpp.simdlen = 1", "both"),
    "Inductor's function": ("torch._inductor.config.external_matmul.append(lambda a, b, c: None)", "both"),
    "Dynamo's option": ("torch._dynamo.config.capture_scalar_outputs = True", "both"),
    "symbolic shapes' option": ("torch.fx.experimental._config.use_duck_shape = False", "both"),
    "joint pass": ("torch._functorch.config.joint_custom_pass = lambda graph, inputs: graph", "both"),
    "unreadable pass": ("file = open('/dev/null'); torch._functorch.config.joint_custom_pass = lambda graph, inputs: file", "refused"),
    "decomposition": ("register_decomposition(torch.ops.mine.scaled.default)(lambda x: x * 3)", "both"),
    "decomposition that is gone": ("decomposition.decompositions.pop(torch.ops.aten.silu.default)", "both"),
    "lowering": ("register_lowering(torch.ops.mine.scaled.default)(lambda x: x)", "both"),
    "layout constraint": ("lowering.add_layout_constraint(torch.ops.mine.scaled, lambda node, *a, **k: (a, k))", "both"),
    "pattern": ("register_graph_pattern(CallFunction(torch.ops.aten.relu.default, Arg()), pass_dict=post_grad.pass_patterns[1])("
                "lambda match, x: None)", "both"),
    "choices": ("class Choices(InductorChoices): pass\nV.set_choices_handler(Choices())", "both"),
    "fake kernel": ("scaled.register_fake(lambda x: torch.empty_like(x, dtype=torch.float64))", "trace"),
    "formula": ("scaled.register_autograd(lambda c, g: g * 5)", "trace"),
    "vmap": ("scaled.register_vmap(lambda info, dims, x: (x, dims[0]))", "trace"),
    "autocast of an operator": ("scaled.register_autocast('cpu', torch.float16)", "trace"),
    "side effect": ("torch.fx.node.has_side_effect(torch.ops.mine.scaled.default)", "both"),
    "Python kernel": ("torch.ops.mine.scaled.default.py_impl(torch._C.DispatchKey.Functionalize)(lambda x: x * 3)", "both"),
    "a global of a body": ("FACTOR = 7", "trace"),
    "another operator": ("other.register_autograd(lambda c, g: g * 5)", "none"),
    "body that calls another": ("scaled.register_autograd(lambda c, g: torch.ops.mine.other(g))", "trace"),
    "kernel of the processor": ("more = torch.library.Library('mine', 'FRAGMENT'); more.impl('plain', lambda x: x, 'CPU')", "none"),
    "composite body": ("library.impl('scaled', lambda x: x * 5, 'CompositeImplicitAutograd')", "untraced"),
    "PyTorch's operator": ("own = torch.library.Library('aten', 'IMPL'); own.impl('relu', lambda x: x, 'AutogradCPU')", "untraced"),
    "printing": ("torch.set_printoptions(precision=2)", "none"),
    "seed": ("torch.manual_seed(3)", "none"),
    "warnings": ("torch.set_warn_always(True)", "none"),
}

KEYS = """
    import json, os, sys, warnings
    warnings.simplefilter("ignore")
    import torch, aoticache
    import torch._inductor.compile_fx
    from torch._inductor import codecache, decomposition, lowering
    from torch._inductor.choices import InductorChoices
    from torch._inductor.decomposition import register_decomposition
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.lowering import register_lowering
    from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern
    from torch._inductor.virtualized import V
    from torch.utils._python_dispatch import TorchDispatchMode
    assert aoticache.install_compile_cache()
    FACTOR = 3

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    @torch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2
    @torch.library.custom_op("mine::other", mutates_args=())
    def other(x: torch.Tensor) -> torch.Tensor:
        return x * 2
    scaled.register_fake(lambda x: torch.empty_like(x))
    scaled.register_autograd(lambda context, gradient: gradient * FACTOR)
    library = torch.library.Library("mine", "FRAGMENT")
    library.define("plain(Tensor x) -> Tensor")
    library.impl("plain", lambda x: x * 2, "CPU")
    torch.library.register_fake("mine::plain", lambda x: torch.empty_like(x), lib=library)
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.aten.relu.default(torch.ops.mine.plain(torch.ops.mine.scaled(x))))
    x = torch.ones(4)

    class Traced(codecache.FxGraphHashDetails):  # as AOTAutograd's, but for what it adds
        pass

    def key(kind):
        try:
            return codecache.FxGraphCachePickler(graph).get_hash(kind(graph, [x], {}, []))
        except codecache.BypassFxGraphCache as error:
            return f"refused: {error}"
    made = {"": (key(codecache.FxGraphHashDetails), key(Traced))}
    for name, change in json.loads(sys.argv[1]).items():  # each in a fork of its own
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                exec(change)
                said = [key(codecache.FxGraphHashDetails), key(Traced)]
            except BaseException as error:
                said = [f"raised {type(error).__name__}: {error}"] * 2
            os.write(writer, json.dumps(said).encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as file:
            made[name] = json.loads(file.read() or '["died", "died"]')
        os.waitpid(child, 0)
    print("KEYS", json.dumps(made), flush=True)
    print("done")
"""


def keys(seed):
    changes = json.dumps({name: change for name, (change, _) in CHANGES.items()})
    said = play(KEYS, [changes], PYTHONHASHSEED=seed)
    return json.loads(said.partition("KEYS")[2].partition("\n")[0])


def test_a_change_changes_the_keys():
    """Compares the keys before and after each change, and with those of another process."""
    found = keys(None)
    before, wrong = found[""], []
    assert not any(one.startswith("refused") for one in before), before
    expectations = {"both": (True, True), "trace": (False, True), "none": (False, False), "refused": ("refused", "refused"),
                    "untraced": (False, "refused")}
    for name, (_, expected) in CHANGES.items():
        changed = tuple(one.split()[0].strip(":") if " " in one else one != other for one, other in zip(found[name], before))
        if changed != expectations[expected]:
            wrong.append((name, expected, changed, found[name]))
    assert wrong == []
    again = keys("5")
    assert [name for name in found if found[name] != again[name] and not found[name][1].startswith("refused")] == []
