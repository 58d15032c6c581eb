"""Classes in a model's arguments and results that are not Python's own containers, and the modules that register them.

PyTorch knows how to take such a class apart once the module that registers it was imported: a library's class of results, or a
dataclass. A process that loads a stored model has usually not imported that module. So `compile()` stores the modules' names in
`weights.list`, and `load()` imports them.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import os
import sys
from collections import defaultdict, namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.errors import AoticacheError, SettingsError
from .._core.pytorch import require_torch

#: Modules whose classes every process with PyTorch knows.
_ALWAYS_KNOWN = frozenset(("builtins", "collections", "torch", "torch.return_types", "torch.utils._pytree"))


@dataclass(frozen=True)
class NeededClass:
    """A class that a process needs before it can read the structure of arguments or results."""

    #: Its name in its module.
    name: str
    #: The module that defines it, then those whose functions take it apart: importing one of them registers it.
    modules: tuple[str, ...]
    #: The name under which it is registered; "": it is a value in the structure (an Enum, a factory), and only has to exist.
    registered: str = ""

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": self.name, "modules": list(self.modules)}
        return {**fields, "registered": self.registered} if self.registered else fields

    @staticmethod
    def from_json(item: Any) -> NeededClass:
        """Raises ValueError, KeyError or TypeError for what as_json() does not return."""
        name, modules, registered = item["name"], tuple(item["modules"]), item.get("registered", "")
        if not all(isinstance(text, str) for text in (name, registered, *modules)) or not modules:
            raise ValueError("a needed class without a name or modules")
        if not all(part.isidentifier() for module in modules for part in module.split(".")):
            raise ValueError(f"{modules} are not names of modules")
        return NeededClass(name, modules, registered)

    def is_known(self) -> bool:
        """Returns whether this process has the class."""
        if self.registered:
            return self.registered in require_torch().utils._pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
        found: Any = sys.modules.get(self.modules[0])
        for part in self.name.split("."):
            found = getattr(found, part, None)
        return found is not None

    def __str__(self) -> str:
        return f"{self.modules[0]}.{self.name}"


# ---- what a structure needs ----


def needed_by(spec: Any) -> list[NeededClass]:
    """Returns the classes that a structure (TreeSpec) needs, each once."""
    return list(dict.fromkeys(_walk(spec)))


def _walk(spec: Any) -> Iterator[NeededClass]:
    """Yields the classes of a structure, in the order in which they are in it."""
    pytree = require_torch().utils._pytree
    if spec.is_leaf():
        return
    is_named_tuple = spec.type is namedtuple
    kind = spec.context if is_named_tuple else spec.type  # the context of a named tuple is its class
    serialized = pytree.SUPPORTED_SERIALIZED_TYPES.get(kind)
    if kind.__module__ not in _ALWAYS_KNOWN and serialized is not None:
        definition = pytree.SUPPORTED_NODES.get(kind)
        takers = (definition.flatten_fn, definition.unflatten_fn) if definition is not None else ()
        others = [getattr(function, "__module__", None) or "torch" for function in takers]
        modules = dict.fromkeys((kind.__module__, *(one for one in others if one.partition(".")[0] != "torch")))
        yield NeededClass(kind.__qualname__, tuple(modules), serialized.serialized_type_name)
    context: Any = None if is_named_tuple else spec.context
    if kind is defaultdict:
        factory, context = context
        if factory.__module__ not in _ALWAYS_KNOWN:
            yield NeededClass(factory.__qualname__, (factory.__module__,))
    for value in _enums_in(context):
        yield NeededClass(type(value).__qualname__, (type(value).__module__,))
    for child in spec.children():
        yield from _walk(child)


def _enums_in(context: Any) -> Iterator[enum.Enum]:
    if isinstance(context, enum.Enum):
        yield context
    elif isinstance(context, dict):
        yield from _enums_in([*context, *context.values()])
    elif isinstance(context, (list, tuple)):
        for value in context:
            yield from _enums_in(value)


# ---- loading ----


def check_imports(imports: Any) -> None:
    """Raises SettingsError for a value that load() does not accept."""
    is_list = isinstance(imports, (list, tuple)) and all(isinstance(one, str) for one in imports)
    if not isinstance(imports, bool) and not is_list:
        raise SettingsError(f"imports is {imports!r}; it must be True, False or a list of names of modules")


def provide(needed: Sequence[NeededClass], where: str, imports: bool | Sequence[str], advice: str) -> None:
    """
    Imports modules until this process has all classes. imports: as for load(). advice: ends the message for a class that
    stays unknown. Raises AoticacheError, whose message begins with `where`.
    """
    for one in needed:
        problems: dict[str, str] = {}  # one for each package
        status = "UNSUPPORTED"
        for module in one.modules:
            if one.is_known():
                break
            top = module.partition(".")[0]
            if module == "__main__":
                problems[top] = "the program that compiled the model defined it, not a module that can be imported"
            if module in sys.modules:
                continue
            refusal = _refusal(module, imports)
            if refusal:
                status = "DENIED"
                problems.setdefault(top, refusal)
                continue
            try:
                importlib.import_module(module)
            except Exception as error:  # noqa: BLE001 - the module's own code may raise anything
                problems.setdefault(top, _reason(module, error))
        if not one.is_known():
            reasons = "; ".join(problems.values()) or f"importing {' and '.join(one.modules)} does not register it"
            raise AoticacheError(
                f"{where}: the model needs the class {one.name} of the module {one.modules[0]}: {reasons}; "
                f"you can also import or call what registers it before load(){advice}",
                status,
            )


def _reason(module: str, error: Exception) -> str:
    top = module.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == top:
        return f"the module {top} is not installed; install it (pip install {top}, or the package that has it)"
    if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(f"{error.name}."):
        return f"the installed {top} has no module {error.name}; install the version that the model was compiled with"
    return f"the module {module} cannot be imported ({type(error).__name__}: {error})"


def _refusal(module: str, imports: bool | Sequence[str]) -> str:
    """Returns why a module may not be imported; "" if it may."""
    if not isinstance(imports, bool):
        if any(f"{module}.".startswith(f"{allowed}.") for allowed in imports):
            return ""
        return f"imports= does not allow to import {module}; add it there"
    if not imports:
        return f"imports=False forbids to import {module}; allow it (imports=[{module!r}])"
    if _is_in_current_directory(module.partition(".")[0]):
        return (
            f"{module} would be imported from the current directory, which only a name in imports= allows; allow it "
            f"(imports=[{module!r}])"
        )
    return ""


def _is_in_current_directory(top: str) -> bool:
    """
    Returns whether a module that is not yet imported would come from the current directory only because Python puts that into
    sys.path by itself (python -c, python -m, interactive): there, a model's record could choose any file.
    """
    if top in sys.modules:
        return False
    main = sys.modules.get("__main__")
    is_script = getattr(main, "__file__", None) is not None and getattr(main, "__spec__", None) is None
    chosen = sys.path if is_script or getattr(sys.flags, "safe_path", False) else sys.path[1:]
    here = os.path.realpath(os.curdir)
    if here in (os.path.realpath(entry) for entry in chosen if entry):
        return False
    spec = importlib.util.find_spec(top)
    if spec is None:
        return False
    places = list(spec.submodule_search_locations or ()) or ([spec.origin] if spec.has_location and spec.origin else [])
    return here in (os.path.dirname(os.path.realpath(place)) for place in places)
