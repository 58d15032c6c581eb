"""Key parts of a model that are not in its graph but affect its code; and fingerprints of modules that are not exported.

A stored model is used without an export if the given module has the same fingerprint: the same classes and attributes, the same
names, dtypes and sizes of weights, in a process that would compile it in the same way. A module without a fingerprint, or with
another one, is exported, and the keys of the programs are compared.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from .._digests import Digest, NotDigestible, Operators, digest, names_of_decompositions, process_state, registries
from . import graphs

#: Attributes of a module that have their own line, or none.
_TENSORS = frozenset(("_parameters", "_buffers", "_modules", "training"))
#: Options that a compile itself changes and that do not affect code.
_NOT_IN_CODE = frozenset(("aot_inductor.metadata", "aot_inductor.output_path"))
#: Prefixes of variables that PyTorch's compiler reads into its options; and suffixes of those that do not affect code.
_VARIABLES = ("TORCH", "AOT_INDUCTOR", "AOTINDUCTOR", "INDUCTOR", "TRITON", "PYTORCH")
_NOT_READ = ("_DIR", "_LOGS", "_TRACE", "_THREADS")


def surroundings(torch: Any, graph: Any) -> str:
    """
    Returns lines for the text of a program. graph: its GraphModule. Raises NotDigestible if something is compiled in that
    cannot be compared with the state of another process.
    """
    import torch._inductor.config as config
    import torch._inductor.decomposition  # noqa: F401 - its table is one of the registries

    configuration = _configuration(config)
    changed = {name: value for name, value in configuration.items() if not _is_default(config, name, value)}
    lines = [
        *(f"option {name}: {_plain(value)}" for name, value in sorted(changed.items())),
        f"options of the compiler: {digest(configuration)}",
        f"modes of the process: {_modes(torch)}",
        f"registered with the compiler: {registries(configuration)}",
        f"operators of others: {Operators(graph).bodies()}",
    ]
    return "\n".join(lines) + "\n"


def _configuration(config: Any) -> dict[str, Any]:
    found = config.save_config_portable(ignore_private_configs=False)
    return {name: found[name] for name in sorted(found) if name not in _NOT_IN_CODE}


def _modes(torch: Any) -> str:
    with torch.no_grad():  # models are exported and compiled without gradients, and for any number of threads
        return process_state(is_on_cpu=False)


def _is_default(config: Any, name: str, value: Any) -> bool:
    entry = getattr(config, "_config", {}).get(name)
    return entry is not None and type(entry.default) is type(value) and bool(entry.default == value)


def _plain(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


# ---- modules ----


def fingerprint(torch: Any, model: Any, options: Mapping[str, Any], with_values: bool) -> str:
    """
    Returns the fingerprint of a module or a function. with_values: the weights' values are compiled in. "": there is none,
    because something in it cannot be compared.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return ""  # already exported
    try:
        told = Digest().add([{name: options[name] for name in sorted(options)}, with_values])
        told.add([_modes(torch), _changes(), _variables()])
        if isinstance(model, torch.nn.Module):
            _add_module(torch, told, model, with_values)
        else:
            told.add(model)
        return told.hex()
    except (NotDigestible, RuntimeError):
        return ""


def _changes() -> list[Any]:
    """Returns what this process changed in PyTorch's compiler; nothing if that is not imported."""
    config = sys.modules.get("torch._inductor.config")
    configuration = _configuration(config) if config is not None else {}
    changed = {name: value for name, value in configuration.items() if not _is_default(config, name, value)}
    registered = registries(configuration)
    nothing = digest([names_of_decompositions()])
    return [changed, "" if registered == nothing else registered]


def _variables() -> list[tuple[str, str]]:
    return sorted(
        (name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES) and not name.endswith(_NOT_READ)
    )


def _add_module(torch: Any, told: Digest, model: Any, with_values: bool) -> None:
    places: dict[Any, int] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        told.add([name, type(module), module.training])
        for attribute, value in sorted(vars(module).items()):
            if attribute not in _TENSORS:
                told.add([attribute, value])
    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    for name, tensor in tensors.items():
        place = places.setdefault((tensor.untyped_storage().data_ptr(), tensor.storage_offset()), len(places))
        told.add([name, type(tensor), str(tensor.dtype), list(tensor.shape), list(tensor.stride()), tensor.device.type, place])
        if with_values:
            told.add(graphs.tensor_digest(torch, tensor))
