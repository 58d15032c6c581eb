"""Makes random calls of random operators in PyTorch's dispatcher and in ours, and compares which kernels are reached in
turn, with which key sets, and which calls fail.

Tensors of several kinds are passed under random thread-local sets; a kernel answers or redispatches. Those of PyTorch's
fallbacks that only redispatch (autograd's, and those that resolve conjugates, negatives and zero tensors) do the same
here. A call that would reach another fallback is not made in PyTorch, and not counted. PyTorch does not always update
the whole table of an operator (docs/dispatch.md), so after the registrations the test forces an update.
"""
import os
import random
import re
import sys
import time
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dispatch_host
import dispatch_players
from dispatch_players import torch_key

C = torch._C
SCHEMAS = ["(Tensor a) -> Tensor", "(Tensor a) -> Tensor", "(Tensor a, Tensor b) -> Tensor",
           "(Tensor a, Tensor? b, int n) -> Tensor", "(Tensor a, Tensor[] b) -> Tensor",
           "(Tensor a, Tensor?[] b, Tensor? c=None) -> Tensor", "(int n, Tensor[] b) -> int", "(int n) -> int",
           "(int n, Tensor a, Tensor b) -> int"]
KERNEL_KEYS = ["CPU", "CPU", "Meta", "CUDA", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "QuantizedCPU",
               "NestedTensorCPU", "AutogradCPU", "AutogradCPU", "AutogradMeta", "AutogradOther",
               "AutogradNestedTensor", "AutogradCUDA", "ADInplaceOrView", "BackendSelect", "Conjugate", "Negative",
               "ZeroTensor", "AutocastCPU", "Tracer", "FuncTorchBatched", "Functionalize", "Python",
               "PythonDispatcher", "XLA", "AutogradXLA", "Autograd", "Autograd", "CompositeImplicitAutograd",
               "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional",
               "CompositeImplicitAutogradNestedTensor", "FuncTorchBatchedDecomposition", "Undefined",
               "FuncTorchDynamicLayerFrontMode", "VmapMode"]
LOCAL_KEYS = [key for key in KERNEL_KEYS if key not in ("Undefined", "Autograd") and "Composite" not in key
              and key != "FuncTorchBatchedDecomposition"]
NEXT_KEYS = [key for key in LOCAL_KEYS if key != "PythonDispatcher"]  # all sets "after" another key have that one
RESOLVE = ("Conjugate", "Negative", "ZeroTensor")
AFTER_AUTOGRAD = C._after_autograd_keyset.raw_repr()


class Unsafe(Exception):
    """Raised if a fallback does more than redispatch."""


def make_tensors():
    """Returns (key set, tensor) of all kinds that a machine without accelerators has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = torch.ones(2, 2)
        with torch.inference_mode():
            made_in_inference = torch.ones(2)
        tensors = [plain, plain.clone().requires_grad_(), torch.ones(2, device="meta"), plain.to_sparse(),
                   plain.to_sparse_csr(), plain.to_mkldnn(), torch.ones(2, dtype=torch.complex64).conj(),
                   torch._neg_view(plain), torch._efficientzerotensor(2), torch.nested.nested_tensor([plain]),
                   torch.quantize_per_tensor(plain, 1.0, 0, torch.quint8), made_in_inference, plain, plain]
    return [(C._dispatch_keys(tensor).raw_repr(), tensor) for tensor in tensors]


def key_set(raw):
    return C.DispatchKeySet.from_raw_repr(raw)


class Operator:
    """An operator with random kernels in both dispatchers."""

    def __init__(self, rng, players, number):
        self.namespace, self.schema = f"calls{number}", rng.choice(SCHEMAS)
        self.name, self.libraries = f"{self.namespace}::f", [2 * number + 1, 2 * number + 2]
        self.steps = [("library", self.libraries[0], "FRAGMENT", self.namespace, "", "file.py", 1),
                      ("def_", self.libraries[0], "f" + self.schema, "")]
        for position in range(rng.randint(0, 7)):
            key = rng.choice(KERNEL_KEYS)
            tag = "next " if rng.random() < 0.4 and key in NEXT_KEYS else "last "
            if rng.random() < 0.2:
                self.steps.append(("impl_fallthrough", self.libraries[0], self.name, key))
            else:
                self.steps.append(("impl", self.libraries[0], self.name, key, f"{tag}{position} {key}"))
        if rng.random() < 0.2:
            self.steps += [("library", self.libraries[1], "IMPL", "_", "", "file.py", 2),
                           ("fallback", self.libraries[1], rng.choice(["CPU", "Meta", "SparseCPU", "CUDA"]), "all")]
        for step in self.steps:
            outcomes = [player.play(step) for player in players]
            assert outcomes[0] == outcomes[1], (step, outcomes, [player.message for player in players])
        refresh = C._dispatch_library("FRAGMENT", self.namespace, "", "file.py", 3)
        # Not a function: under modes PyTorch finds functions by operator and key and uses the last one that was ever
        # registered.
        refresh.impl("f", "CompositeImplicitAutograd", torch.library.fallthrough_kernel)
        refresh.reset()
        assert players[0].check(self.name) == "done"
        self.torch = C._dispatch_find_schema_or_throw(self.name, "")
        self.own = players[1].find(self.name)

    def free(self, players):
        for player in players:
            for number in reversed(self.libraries):
                player.play(("free", number))


def make_arguments(rng, schema, tensors):
    """Returns pairs: the argument for PyTorch, the argument for dispatch_host.Call."""
    def tensor(optional=False):
        if rng.random() < (0.3 if optional else 0.05):  # a plain Tensor may also be undefined
            return None, ("none",)
        keys, value = rng.choice(tensors)
        return value, ("tensor", keys)

    def many(optional):
        made = [tensor(True) if optional else rng.choice(tensors) for _ in range(rng.randint(0, 3))]
        if not optional:
            made = [(value, ("tensor", keys)) for keys, value in made]
        return [value for value, _ in made], ("tensors", [None if spec[0] == "none" else spec[1] for _, spec in made])

    pairs = []
    for argument in schema[1:schema.index(")")].split(", "):
        kind = argument.split(" ")[0]
        pairs.append((7, ("int", 7)) if kind == "int" else many("?" in kind) if "[]" in kind else tensor("?" in kind))
    return pairs


class TorchLocal:
    """Sets PyTorch's thread-local sets with its guards and functions."""

    def __init__(self, included, excluded):
        self.guards = [C._ForceDispatchKeyGuard(key_set(included), key_set(excluded))]
        self.guards[0].__enter__()

    def apply(self, what, *arguments):
        if what in ("tls_include", "tls_exclude"):
            function = getattr(C, f"_dispatch_tls_set_dispatch_key_{what[4:]}d")
            function(torch_key(arguments[0]), arguments[1])
            return
        guard = {"exclude": lambda keys: C._ExcludeDispatchKeyGuard(key_set(keys)),
                 "include": lambda key: C._IncludeDispatchKeyGuard(torch_key(key)),
                 "force": lambda included, excluded: C._ForceDispatchKeyGuard(key_set(included), key_set(excluded)),
                 "set_exclude": lambda key, on: C._SetExcludeDispatchKeyGuard(torch_key(key), on),
                 "preserve": C._PreserveDispatchKeyGuard}[what](*arguments)
        guard.__enter__()
        self.guards.append(guard)

    def sets(self):
        return C._dispatch_tls_local_include_set().raw_repr(), C._dispatch_tls_local_exclude_set().raw_repr()

    def end(self):
        while self.guards:
            self.guards.pop().__exit__(None, None, None)


class TorchMode(TorchDispatchMode):
    """Records that it was called, and calls the operator again."""

    def __init__(self, number, player):
        super().__init__()
        self.number, self.player = number, player

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace.startswith("calls"):  # skips operators that a fallback of PyTorch calls: aten::clone
            self.player.log.append((f"mode {self.number}", C._dispatch_tls_local_exclude_set().raw_repr()))
        return function(*args, **kwargs or {})


def own_mode(number, player):
    def mode(operator, _keys, stack):
        player.log.append((f"mode {number}", dispatch_host.c.aoticache_dispatch_get_local().excluded))
        dispatch_host.call("operator_call", operator, dispatch_host.ctypes.byref(stack))
    user, kernel = player.kernels.make(mode)
    return dispatch_host.Mode(kernel.call, user)


class Modes:
    """Pushes the same modes on both sides for the duration of a call."""

    def __init__(self, players):
        self.pairs = [(TorchMode(number, players[0]), own_mode(number, players[1])) for number in range(3)]

    def push(self, count):
        for theirs, ours in self.pairs[:count]:
            theirs.__enter__()
            dispatch_host.call("dispatch_mode_push", ours)

    def pop(self, count):
        for theirs, _ in reversed(self.pairs[:count]):
            theirs.__exit__(None, None, None)
            dispatch_host.c.aoticache_dispatch_mode_pop()


class OwnLocal:
    def __init__(self, included, excluded):
        self.guards = []
        self.apply("force", included, excluded)

    def apply(self, what, *arguments):
        c = dispatch_host.c
        if what in ("tls_include", "tls_exclude"):
            getattr(c, f"inline_dispatch_{what[4:]}")(dispatch_host.parse_key(arguments[0]), arguments[1])
            return
        self.guards.append(c.aoticache_dispatch_get_local())
        if what == "force":
            c.aoticache_dispatch_set_local(dispatch_host.Local(*arguments))
        elif what == "include":
            c.inline_dispatch_add_local(c.aoticache_key_set_of(dispatch_host.parse_key(arguments[0])), 0)
        elif what == "exclude":
            c.inline_dispatch_add_local(0, arguments[0])
        elif what == "set_exclude":
            c.inline_dispatch_exclude(dispatch_host.parse_key(arguments[0]), arguments[1])

    def sets(self):
        local = dispatch_host.c.aoticache_dispatch_get_local()
        return local.included, local.excluded

    def end(self):
        while self.guards:
            dispatch_host.c.aoticache_dispatch_set_local(self.guards.pop())


def make_local(rng):
    """Returns what is done to the thread-local sets before a call."""
    def keys(count):
        made = 0
        for _ in range(rng.randint(0, count)):
            made |= C.DispatchKeySet(torch_key(rng.choice(LOCAL_KEYS))).raw_repr()
        return made

    choices = [lambda: ("exclude", keys(4)), lambda: ("exclude", keys(2)), lambda: ("include", rng.choice(LOCAL_KEYS)),
               lambda: ("set_exclude", rng.choice(LOCAL_KEYS), rng.random() < 0.5),
               lambda: ("force", keys(3), keys(3)), lambda: ("tls_include", rng.choice(LOCAL_KEYS), rng.random() < 0.5),
               lambda: ("tls_exclude", rng.choice(LOCAL_KEYS), rng.random() < 0.5), lambda: ("preserve",)]
    return [rng.choice(choices)() for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]


def make_options(rng, operator):
    """Returns how the operator is called: through its arguments, with a key set, or with a key."""
    r = rng.random()
    if r < 0.65:
        return ("call",)
    if r < 0.7:
        keys = [key for key in LOCAL_KEYS if C._dispatch_has_computed_kernel_for_dispatch_key(operator.name, key)]
        return ("computed", rng.choice(keys), C.DispatchKeySet(torch_key("CPU")).raw_repr()) if keys else ("call",)
    if r < 0.85:
        raw = 0
        for _ in range(rng.randint(0, 4)):
            raw |= C.DispatchKeySet(torch_key(rng.choice(LOCAL_KEYS))).raw_repr()
        return "redispatch", raw if rng.random() < 0.8 else rng.getrandbits(62)
    # PyTorch crashes if nothing is registered for the key.
    keys = [key for key in LOCAL_KEYS if C._dispatch_has_kernel_for_dispatch_key(operator.name, torch_key(key))]
    return ("call_for_key", rng.choice(keys)) if keys else ("call",)


def torch_call(operator, manner, values):
    if os.environ.get("TRACE"):
        print(operator.steps, manner, [type(value) for value in values], C._dispatch_tls_local_include_set(),
              C._dispatch_tls_local_exclude_set(), file=sys.stderr, flush=True)
    try:
        if manner[0] == "call":
            C._dispatch_call_boxed(operator.torch, *values)
        elif manner[0] == "redispatch":
            operator.torch.redispatch_boxed(key_set(manner[1]), *values)
        elif manner[0] == "computed":
            C._dispatch_get_computed_kernel_for_dispatch_key(operator.name, torch_key(manner[1])).call_boxed(
                key_set(manner[2]), *values)
        else:
            getattr(torch.ops, operator.namespace).f.default._op_dk(torch_key(manner[1]), *values)
        return "answered", None
    except RuntimeError as error:
        # NotImplementedError means that a kernel is missing. So does reaching a fallthrough: PyTorch then fails an
        # assertion.
        absent = isinstance(error, NotImplementedError) or "fallthrough_kernel was executed" in str(error)
        return "no kernel" if absent else "failed", error


def own_call(operator, manner, specs):
    call = dispatch_host.Call(specs)
    try:
        if manner[0] == "call":
            operator.own.call(call.stack)
        elif manner[0] == "redispatch":
            operator.own.redispatch(manner[1], call.stack)
        elif manner[0] == "computed":
            kernel = dispatch_host.ComputedKernel(operator.own, dispatch_host.parse_key(manner[1]))
            try:
                kernel.call(manner[2], call.stack)
            finally:
                kernel.free()
        else:
            operator.own.call_for_key(dispatch_host.parse_key(manner[1]), call.stack)
        assert call.stack.count == 1, call.stack.count
        return "answered", None
    except dispatch_host.Refused as error:
        return "no kernel" if error.status == "NOT_FOUND" else "failed", error


def fallback_of(passed):
    """Returns a function that gives what our copies of PyTorch's fallbacks do."""
    def make(key):
        below = (AFTER_AUTOGRAD if key.startswith("Autograd") else dispatch_players.full_after(key))

        def kernel(operator, keys, stack):
            passed.append(key)
            if not key.startswith("Autograd") and key not in RESOLVE:
                raise Unsafe(key)
            dispatch_host.call("operator_redispatch", operator, keys & below, dispatch_host.ctypes.byref(stack))
        return kernel
    return make


SNAPSHOT = C.DispatchKeySet(torch_key("PythonTLSSnapshot")).raw_repr()


def log_of(player):
    """PyTorch's modes are at two keys. The upper one copies the thread's sets and continues with the lower one."""
    return [(tag, keys & ~SNAPSHOT) for tag, keys in player.log]


def one_call(rng, players, operator, tensors, passed, modes):
    """Returns "same", "skipped", or the difference."""
    arguments = make_arguments(rng, operator.schema, tensors)
    changes, manner = make_local(rng), make_options(rng, operator)
    count = rng.choice([0, 0, 0, 1, 1, 2, 3])
    plain = TorchLocal.sets(None)
    locals_, pushed = [TorchLocal(*plain), OwnLocal(*plain)], 0
    try:
        for change in changes:
            for local in locals_:
                local.apply(*change)
        sets = [local.sets() for local in locals_]
        if sets[0] != sets[1]:
            return f"thread-local sets after {changes}\n  PyTorch: {sets[0]}\n  ours:    {sets[1]}"
        passed.clear()
        for player in players:
            player.log.clear()
        players[1].kernels.raised = None
        modes.push(count)
        pushed = count
        ours = own_call(operator, manner, [spec for _, spec in arguments])
        resolves = any(key in RESOLVE for key in passed)
        if isinstance(players[1].kernels.raised, Unsafe) or (resolves and sets[0] != plain):
            return "skipped"
        theirs = torch_call(operator, manner, [value for value, _ in arguments])
    finally:
        modes.pop(pushed)
        for local in locals_:
            local.end()
    if count and "INTERNAL ASSERT FAILED" in str(theirs[1]) and re.search("python_(dispatch|arg_parser).cpp",
                                                                           str(theirs[1])):
        return "skipped"  # fallbacks in Python under modes, or modes that are reached while Python is excluded
    logs = [log_of(player) for player in players]
    if theirs[0] != "answered" and count:  # under modes PyTorch tries a failing call several times
        logs[0] = logs[0][:len(logs[1])]
    if (theirs[0], logs[0]) == (ours[0], logs[1]):
        return "modes" if any(tag.startswith("mode") for tag, _ in players[0].log) else "same"
    steps = "\n".join(f"    {step}" for step in operator.steps)
    specs = [value if spec[0] == "int" else str(C._dispatch_keys(value)) if spec[0] == "tensor" else
             [item is not None and str(C._dispatch_keys(item)) for item in value or []] for value, spec in arguments]

    def log(player):
        return [(tag, str(key_set(keys))) for tag, keys in player.log]
    return (f"{manner} with {specs} after {changes} under {count} modes\n{steps}\n"
            f"  PyTorch: {theirs[0]} {log(players[0])} "
            f"{str(theirs[1])[:300]}\n  ours:    {ours[0]} {log(players[1])} {str(ours[1])[:300]}")


def compare_calls(seed, calls, fallbacks, of_each=40):
    """Returns the calls that differ, and the number of calls of each kind."""
    counts, passed, different = {"same": 0, "modes": 0, "skipped": 0}, [], []
    C._set_autograd_fallback_mode("nothing")
    players = [dispatch_players.TorchPlayer(), dispatch_players.OwnPlayer()]
    players[1].copy_fallbacks(fallbacks, fallback_of(passed))
    tensors, modes = make_tensors(), Modes(players)
    for number in range(max(1, calls // of_each)):
        rng = random.Random(f"{seed} {number}")
        operator = Operator(rng, players, number)
        for _ in range(of_each):
            outcome = one_call(rng, players, operator, tensors, passed, modes)
            if outcome in counts:
                counts[outcome] += 1
            else:
                different.append(f"operator {number} of seed {seed}: {outcome}")
        operator.free(players)
    for player in players:
        player.close()
    return different, counts
