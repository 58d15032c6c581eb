"""Two players with one interface: PyTorch's dispatcher, and ours through dispatch_host.py. They take the same steps and
answer the same questions in the same form.

A step is a tuple: a verb and its arguments; the caller numbers the libraries. play() returns "done", "refused"
(RuntimeError in PyTorch, INVALID here), or "absent" if the library of the step does not exist.

The two differ in the following:
- Only PyTorch has aten's built-in fallbacks: copy_fallbacks() registers as many with the same texts here.
- def_ without aliasing information is FROM_SCHEMA; with def_legacy it stays undecided: AOTICACHE_ALIAS_UNSAID.
- If PyTorch raises a RuntimeError, ours distinguishes INVALID, EXISTS and MISMATCH.
- PyTorch returns names in the order of its hash tables: both lists are sorted.
- For some questions about missing operators and kernels PyTorch raises and ours returns false: both give None.
"""
import re

import torch

import dispatch_host

C = torch._C
TYPED = "(Tensor _0) -> Tensor _0"


def skip_reason():
    """Returns a reason if PyTorch is not the version whose keys and rules ours has; None if it is."""
    version = torch.__version__
    return None if version.startswith("2.13.") else f"PyTorch {version}; the dispatcher is compared with 2.13"


class Player:
    """log: (tag, key set) of each kernel that was reached. A kernel whose tag begins with "next" redispatches below its
    own key."""

    def __init__(self):
        self.libraries, self.log = {}, []

    def play(self, step):
        verb, number, *arguments = step
        if verb == "library":
            return self.attempt(self.library, number, *arguments)
        if number not in self.libraries:
            return "absent"
        return self.attempt(getattr(self, verb), self.libraries[number], *arguments)

    def close(self):
        """Undoes everything, beginning with the libraries that were made last."""
        for number in sorted(self.libraries, reverse=True):
            self.play(("free", number))


def torch_key(name):
    """Returns the key object. PyTorch can only parse some names; others exist only as members of its enumeration."""
    return C.DispatchKey.__members__.get(name) or C._parse_dispatch_key(name)


def full_after(name):
    return C._dispatch_keyset_full_after(torch_key(name)).raw_repr()


class TorchPlayer(Player):
    name = "PyTorch"

    def attempt(self, function, *arguments):
        self.message = None
        try:
            function(*arguments)
            return "done"
        except RuntimeError as error:
            self.message = str(error).split("\n", maxsplit=1)[0]
            return "refused"

    def library(self, number, kind, namespace, key, file, line):
        self.libraries[number] = C._dispatch_library(kind, namespace, key, file, line)

    def def_(self, library, schema, alias):
        library.def_(schema, alias)

    def def_legacy(self, library, schema):
        library.def_legacy(schema)

    def def_name_t_t(self, library, name, key, debug):
        library.def_name_t_t(name, key, debug)

    def def_schema_t_t(self, library, schema, key, alias, debug):
        library.def_schema_t_t(schema, key, alias, debug)

    def impl_t_t(self, library, name, key, debug):
        library.impl_t_t(name, key, debug)

    def function(self, tag, name, key):
        below = C.DispatchKeySet.from_raw_repr(full_after(key)) if tag.startswith("next") else None

        def kernel(keys, *arguments):
            self.log.append((tag, keys.raw_repr()))
            if below is None:
                return arguments[0]
            return C._dispatch_find_schema_or_throw(*name.split(".", maxsplit=1) if "." in name else (name, "")) \
                .redispatch_boxed(keys & below, *arguments)
        return kernel

    def impl(self, library, name, key, tag):
        library.impl(name, key, self.function(tag, name, key), True)

    def impl_for_key(self, library, name, key, tag):
        library.impl(name, C.DispatchKey.__members__[key], self.function(tag, name, key), True)

    def impl_fallthrough(self, library, name, key):
        library.impl(name, key, torch.library.fallthrough_kernel)

    def fallback(self, library, key, tag):
        def kernel(keys, _operator, *arguments):
            self.log.append((tag, keys.raw_repr()))
            return arguments[0]
        library.fallback(key, kernel, True)

    def fallback_fallthrough(self, library, key):
        library.fallback_fallthrough(key)

    def reset(self, library):
        library.reset()

    def free(self, library):
        library.reset()
        for number in [number for number, other in self.libraries.items() if other is library]:
            del self.libraries[number]

    # ---- questions ----

    def dump(self, name):
        return C._dispatch_dump(name)

    def dump_table(self, name):
        return C._dispatch_dump_table(name) if C._dispatch_has_kernel(name) else ""

    def has_kernel(self, name):
        return C._dispatch_has_kernel(name)

    def finds(self, name):
        try:
            return C._dispatch_has_kernel(name)
        except RuntimeError:
            return "no name"

    def about_key(self, name, key):
        """Returns has_kernel, has_computed_kernel and is_fallthrough."""
        key_value = torch_key(key)
        if not C._dispatch_has_kernel(name):
            return None
        has = C._dispatch_has_kernel_for_dispatch_key(name, key_value)
        return (has, None if C._dispatch_is_alias_key(key_value) else
                C._dispatch_has_computed_kernel_for_dispatch_key(name, key),
                has and C._dispatch_kernel_for_dispatch_key_is_fallthrough(name, key_value))

    def has_kernel_for_any(self, name, keys):
        return C._dispatch_has_kernel(name) and C._dispatch_has_kernel_for_any_dispatch_key(
            name, C.DispatchKeySet.from_raw_repr(keys))

    def has_fallback(self, key):
        return C._dispatch_has_backend_fallback(torch_key(key))

    def check(self, name):
        return self.attempt(C._dispatch_check_invariants, name)

    def check_all(self):
        return self.attempt(C._dispatch_check_all_invariants)

    def dangling(self, namespace):
        return sorted(dump for dump in C._dispatch_find_dangling_impls() if dump.startswith(f"name: {namespace}"))

    def registrations(self, namespace, key):
        return sorted(name for name in C._dispatch_get_registrations_for_dispatch_key(key)
                      if name.startswith(namespace))

    def names(self, namespace):
        return sorted(name for name in C._dispatch_get_all_op_names() if name.startswith(namespace))


def built_in_fallbacks():
    """Returns (key, text, falls through) of PyTorch's fallbacks, read from the table of an operator without kernels."""
    library = C._dispatch_library("FRAGMENT", "dispatch_players", "", "file.py", 1)
    library.def_("empty(Tensor x) -> Tensor")
    found = []
    for line in C._dispatch_dump_table("dispatch_players::empty").splitlines():
        match = re.fullmatch(r"(\w+): (fallthrough )?(.*) \[backend fallback\]", line)
        if match:
            found.append((match[1], match[3], match[2] is not None))
    library.reset()
    return found


class OwnPlayer(Player):
    """A player with its own dispatcher of our library. registered: the kernels that must be released, each once."""
    name = "ours"

    def __init__(self):
        super().__init__()
        self.dispatcher = dispatch_host.Dispatcher()
        self.kernels, self.message = self.dispatcher.kernels, None
        self.registered = set()

    def attempt(self, function, *arguments):
        self.message = None
        try:
            function(*arguments)
            return "done"
        except dispatch_host.Refused as refused:
            self.message = str(refused)
            return "refused" if refused.status in ("INVALID", "EXISTS", "MISMATCH") else refused.status

    def library(self, number, kind, namespace, key, file, line):
        self.libraries[number] = self.dispatcher.oplib(kind, namespace, key or None, file, line)

    def def_(self, library, schema, alias):
        library.define(schema, alias or "FROM_SCHEMA")

    def def_legacy(self, library, schema):
        library.define(schema, "CONSERVATIVE (default)")

    def keep(self, register, *before, function=None, signature=None, debug=None, fallthrough=False, **after):
        user, kernel = self.kernels.make(function, signature, debug, fallthrough)
        register(*before, kernel, **after)
        self.registered.add(user)

    def def_name_t_t(self, library, name, key, debug):
        self.keep(library.define_kernel, name, signature=TYPED, debug=debug, key=key or None)

    def def_schema_t_t(self, library, schema, key, alias, debug):
        self.keep(library.define_kernel, schema, signature=TYPED, debug=debug, key=key or None,
                  alias=alias or "FROM_SCHEMA")

    def impl_t_t(self, library, name, key, debug):
        self.keep(library.impl, name, signature=TYPED, debug=debug, key=key or None)

    def note(self, tag, below=None):
        """Returns a kernel that records that it was reached, and answers with its first argument or redispatches."""
        def kernel(operator, keys, stack):
            self.log.append((tag, keys))
            if below is None:
                stack.count = 1
            else:
                dispatch_host.call("operator_redispatch", operator, keys & below, dispatch_host.ctypes.byref(stack))
        return kernel

    def impl(self, library, name, key, tag):
        below = full_after(key) if tag.startswith("next") else None
        self.keep(library.impl, name, function=self.note(tag, below), key=key)

    def impl_for_key(self, library, name, key, tag):
        self.impl(library, name, dispatch_host.NUMBERS[key], tag)

    def impl_fallthrough(self, library, name, key):
        self.keep(library.impl, name, fallthrough=True, key=key)

    def fallback(self, library, key, tag):
        self.keep(library.fallback, function=self.note(tag), key=key)

    def fallback_fallthrough(self, library, key):
        self.keep(library.fallback, fallthrough=True, key=key or None)

    def reset(self, library):
        library.reset()

    def free(self, library):
        library.free()
        for number in [number for number, other in self.libraries.items() if other is library]:
            del self.libraries[number]

    def copy_fallbacks(self, found, function=None):
        """Registers copies of PyTorch's fallbacks. function(key): returns what the fallback of a key does."""
        library = self.libraries[-1] = self.dispatcher.oplib("IMPL", "_")
        for key, text, falls_through in found:
            self.keep(library.fallback, function=function and function(key), debug=text, fallthrough=falls_through,
                      key=dispatch_host.NUMBERS[key])

    def close(self):
        """Closes the dispatcher, and reports kernels that were not released exactly once."""
        super().close()
        self.dispatcher.free()
        released = self.kernels.released
        wrong = {user: released[user] for user in self.kernels.functions if released[user] != (user in self.registered)}
        assert not wrong, f"how often each of these kernels was released, instead of once if registered: {wrong}"

    # ---- questions ----

    def find(self, name):
        try:
            return self.dispatcher.find(name)
        except dispatch_host.Refused as refused:
            assert refused.status == "NOT_FOUND", refused
            return None

    def dump(self, name):
        operator = self.find(name)
        return operator.dump() if operator else ""

    def dump_table(self, name):
        operator = self.find(name)
        return operator.dump_table() if operator else ""

    def has_kernel(self, name):
        return self.dispatcher.has_kernel(name)

    def finds(self, name):
        try:
            self.dispatcher.find(name)
        except dispatch_host.Refused as refused:
            assert not self.dispatcher.has_kernel(name), name
            return {"NOT_FOUND": False, "INVALID": "no name"}[refused.status]
        return True

    def about_key(self, name, key):
        operator, number = self.find(name), dispatch_host.parse_key(key)
        if not operator:
            return None
        has = operator.has("has_kernel_for_key", number)
        return (has, None if dispatch_host.c.aoticache_dispatch_key_is_alias(number) else
                operator.has("has_computed_kernel", number), has and operator.has("is_fallthrough", number))

    def has_kernel_for_any(self, name, keys):
        operator = self.find(name)
        return bool(operator) and operator.has("has_kernel_for_any", keys)

    def has_fallback(self, key):
        return self.dispatcher.has_fallback(dispatch_host.parse_key(key))

    def check(self, name):
        operator = self.find(name)
        return self.attempt(operator.check) if operator else "done"

    def check_all(self):
        return self.attempt(self.dispatcher.check)

    def dangling(self, namespace):
        return sorted(dump for dump in self.dispatcher.dangling_dumps() if dump.startswith(f"name: {namespace}"))

    def registrations(self, namespace, key):
        return sorted(name for name in self.dispatcher.registrations(key or None) if name.startswith(namespace))

    def names(self, namespace):
        return sorted(name for name in self.dispatcher.names() if name.startswith(namespace))
