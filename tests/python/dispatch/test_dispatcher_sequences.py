"""Makes random sequences of registrations in PyTorch's dispatcher and in ours, and compares the answers to all queries
after every step. Then makes random calls: which kernel is reached, and with which key set.

A difference is printed as the shortest list of steps found that still shows it. Environment: BUILD; SEED, the first seed
(by default a fixed one); STEPS, how many steps in total; CALLS, how many calls; TRACE=1 prints each step first.
"""
import math
import os
import random
import sys

import pytest
import torch

import dispatch_calls
import dispatch_host
import dispatch_players

SEED, STEPS = int(os.environ.get("SEED", "1")), int(os.environ.get("STEPS", "8000"))
CALLS, TRACE = int(os.environ.get("CALLS", "6000")), os.environ.get("TRACE")
LENGTH, AT_ONCE = 40, 20  # steps of a sequence; sequences of one case
pytestmark = pytest.mark.skipif(dispatch_players.skip_reason() is not None, reason=str(dispatch_players.skip_reason()))
ALIAS_KEYS = ["Autograd", "CompositeImplicitAutograd", "CompositeExplicitAutograd",
              "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutogradNestedTensor",
              "FuncTorchBatchedDecomposition"]
COMMON_KEYS = ["CPU", "CUDA", "Meta", "XLA", "SparseCPU", "QuantizedCPU", "AutogradCPU", "AutogradCUDA", "AutogradXLA",
               "AutogradOther", "AutogradMeta", "FPGA", "MkldnnCPU", "NestedTensorCPU", "SparseCsrCPU", "BackendSelect",
               "ADInplaceOrView", "Tracer", "AutocastCPU", "FuncTorchBatched", "Batched", "Functionalize", "Python"]
# Keys for which no operator has a kernel in practice, or that are not keys.
ODD_KEYS = ["Undefined", "Dense", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "AutogradFunctionality",
            "QuantizedHIP", "CPUU", "cpu", "AutogradFPGA"]
ALL_KEYS = sorted(name for name in torch._C.DispatchKey.__members__
                  if torch._C._parse_dispatch_key(name) is not None and name not in ODD_KEYS)
RUNTIME_KEYS = [name for name in ALL_KEYS if name not in ALIAS_KEYS]
# Refused for the first of its keys, refused for its only key, and accepted.
FALLBACK_KEYS = (RUNTIME_KEYS + ["Autograd", "FuncTorchBatchedDecomposition"] +
                 5 * ["CompositeImplicitAutogradNestedTensor"])
ALIASES = ["", "", "", "CONSERVATIVE", "FROM_SCHEMA", "PURE_FUNCTION"]
NAMES = ["f", "f.out", "g", "h_.a"]
SIGNATURES = ["(Tensor x) -> Tensor"] * 6 + [
    "(Tensor x, Tensor y) -> Tensor", "(Tensor(a!) x) -> Tensor(a!)", "() -> ()", "(Tensor[] x) -> Tensor",
    "(Tensor x, int n=3, *, float s=0.5) -> (Tensor, Tensor)", "(Tensor? x) -> Tensor"]
VARIABLES = ["f(tensor x) -> tensor", "f(t[] x) -> t", "f(Tensor x) -> Future(t)"]
MALFORMED = ["f(Tensor x -> Tensor", "f(Tensor x)", "f(Tenso x) -> Tensor", "f.(Tensor x) -> Tensor",
             "(Tensor x) -> Tensor", "f(Tensor x) -> Tensor extra", "f(Tensor x, Tensor x) -> Tensor",
             "f(int n=1, Tensor x) -> Tensor", "", "f.default(Tensor x) -> Tensor", "f..a(Tensor x) -> Tensor",
             *VARIABLES]
# Keys that only C++ has: the numbers of keys that PyTorch cannot parse.
UNNAMED_KEYS = ["AutogradMTIA", "AutogradMAIA", "QuantizedMeta", "QuantizedHIP", "SparseXLA", "Undefined"]
# Ways to write names ("@" is the namespace, here and below), and texts that are not names.
SPELLINGS = [" f", "f ", "@0 :: f", " @0::f. out ", "h_ .a", "f\n", "f # x", "@0::\nf", "f.", "f.out.x", "@0::f::g",
             "x::y::z", "", "::f", "f.default", "f.__a", "f g", "1f", "@0:f", "in", "@0::f.1", "f;"]
counter = 0


class Difference(Exception):
    pass


class Sequence:
    """Makes steps. Namespaces are written "@0", "@1" and replaced by unique names when the steps run."""

    def __init__(self, seed):
        self.random, self.libraries, self.line = random.Random(seed), 0, 0

    def key(self, none=0.15):
        r = self.random.random()
        if r < none:
            return ""
        pool = (COMMON_KEYS if r < 0.6 else ALIAS_KEYS if r < 0.85 else ALL_KEYS if r < 0.96 else ODD_KEYS)
        return self.random.choice(pool)

    def name(self):
        prefix = self.random.choice(["", "", "", "@0::", "@1::", "aten::" if self.random.random() < 0.2 else ""])
        if self.random.random() < 0.04:
            return self.random.choice(SPELLINGS)
        return prefix + self.random.choice(NAMES)

    def schema(self):
        if self.random.random() < 0.06:
            return self.random.choice(MALFORMED)
        return self.name() + self.random.choice(SIGNATURES)

    def library(self):
        self.line += 1
        self.libraries += 1
        kind = self.random.choice(["DEF", "IMPL", "IMPL", "FRAGMENT", "FRAGMENT"])
        namespace = self.random.choice(["@0", "@0", "@0", "@1", "_"])
        key = self.key(0.5) if kind == "IMPL" or self.random.random() < 0.05 else ""
        if kind == "DEF" and namespace == "_":
            namespace = "@1"  # PyTorch's own answer is an accident here: "bad optional access"
        return "library", self.libraries, kind, namespace, key, "file.py", self.line

    def step(self):
        r, number = self.random.random(), self.random.randint(max(1, self.libraries - 5), max(1, self.libraries))
        debug = f"step {self.random.randint(1, 99)}"
        if not self.libraries or r < 0.14:
            return self.library()
        if r < 0.30:
            return "def_", number, self.schema(), self.random.choice(ALIASES + ["NONSENSE"] * (r < 0.17))
        if r < 0.35:
            return "def_name_t_t", number, self.name(), self.key(0.4), debug
        if r < 0.42:
            return "def_schema_t_t", number, self.schema(), self.key(0.4), self.random.choice(ALIASES), debug
        if r < 0.44:
            return "def_legacy", number, self.schema()
        if r < 0.46:
            return "impl_for_key", number, self.name(), self.random.choice(UNNAMED_KEYS), "note"
        if r < 0.60:
            return "impl", number, self.name(), self.key(0) or "CPU", "note"
        if r < 0.75:
            return "impl_t_t", number, self.name(), self.key(), debug
        if r < 0.80:
            return "impl_fallthrough", number, self.name(), self.key(0) or "CPU"
        if r < 0.84:
            return "fallback", number, self.random.choice(FALLBACK_KEYS + ["CPUU"]), "fallback"
        if r < 0.88:
            return "fallback_fallthrough", number, self.random.choice(FALLBACK_KEYS + ["CPUU", ""])
        return "free" if r > 0.95 else "reset", number


def placed(value, names):
    """Replaces the namespaces by those of this run."""
    if isinstance(value, str):
        return value.replace("@0", names[0]).replace("@1", names[1])
    return value


def undefined(step, players):
    """Returns whether a step is left out. PyTorch reads a null pointer if a library of all namespaces takes a kernel for a
    name without one. And if one of the keys that an alias key stands for has a fallback, the keys before it get the new
    one."""
    verb, number, *rest = step
    if verb == "library" or number not in players[0].libraries:
        return False
    if verb == "def_legacy":  # exists only for PyTorch's tests, and takes type variables
        return rest[0] in VARIABLES
    namespace, library_key = players[0].made[number]
    if verb.startswith("fallback"):
        key = rest[0] or library_key
        if key == "AutogradPrivateUse1":  # PyTorch lets this one be replaced, and has none when the newer one goes
            return True
        half = "NestedTensor" if key == "CompositeImplicitAutogradNestedTensor" else "" if "Composite" in key else None
        return half is not None and any(players[0].has_fallback(key) for key in RUNTIME_KEYS if half in key)
    return verb.startswith("impl") and "::" not in rest[0] and namespace == "_"


def compare(what, answers):
    if answers[0] != answers[1]:
        raise Difference(f"{what}\n  PyTorch: {answers[0]!r}\n  ours:    {answers[1]!r}")


def compare_lines(what, texts):
    """Compares texts; a difference has only the lines that differ."""
    if texts[0] == texts[1]:
        return
    lines = [text.splitlines() for text in texts]
    if len(lines[0]) == len(lines[1]):
        lines = [[line for line, other in zip(mine, others) if line != other]
                 for mine, others in (lines, reversed(lines))]
    compare(what, lines)


def compare_operator(players, name, keys, key_set):
    compare(f"has_kernel of {name}", [player.has_kernel(name) for player in players])
    compare_lines(f"dump of {name}", [player.dump(name) for player in players])
    compare_lines(f"table of {name}", [player.dump_table(name) for player in players])
    compare(f"own check of {name}", ["done", players[1].check(name)])
    # After some steps PyTorch's own check fails: it has not updated its whole table (its dump recomputes it). Ours must
    # always pass its check.
    stale = players[0].check(name) != "done"
    for key in keys:
        answers = [player.about_key(name, key) for player in players]
        if stale and answers[0] is not None:  # its has_computed_kernel reads that table
            answers = [answer and (answer[0], answer[2]) for answer in answers]
        compare(f"has, computed, fallthrough of {name} for {key}", answers)
    compare(f"has_kernel_for_any of {name} for {key_set:#x}",
            [player.has_kernel_for_any(name, key_set) for player in players])


def compare_all(players, names, rng, thorough=False):
    keys = [rng.choice(COMMON_KEYS), rng.choice(ALIAS_KEYS), rng.choice(ALL_KEYS)]
    if thorough:
        keys = RUNTIME_KEYS + ALIAS_KEYS
    key_set = rng.getrandbits(62)
    for namespace in names:
        for name in NAMES:
            compare_operator(players, f"{namespace}::{name}", keys, key_set)
        compare(f"dangling of {namespace}", [player.dangling(namespace) for player in players])
        if thorough or rng.random() < 0.1:  # PyTorch takes milliseconds for each
            compare(f"names of {namespace}", [player.names(namespace) for player in players])
            for key in ["", rng.choice(COMMON_KEYS + ALIAS_KEYS)]:
                compare(f"registrations of {namespace} for {key}",
                        [player.registrations(namespace, key) for player in players])
    for key in keys if thorough else [rng.choice(RUNTIME_KEYS)]:
        compare(f"has_fallback for {key}", [player.has_fallback(key) for player in players])
    for spelling in SPELLINGS if thorough else [rng.choice(SPELLINGS)]:
        name = placed(spelling if "@" in spelling else "@0::" + spelling, names)
        compare(f"finding of {name!r}", [player.finds(name) for player in players])
    compare("own check of everything", ["done", players[1].check_all()])


def everything(player, names):
    return [(player.dump(f"{namespace}::{name}"), player.dump_table(f"{namespace}::{name}"))
            for namespace in names for name in NAMES] + [player.has_fallback(key) for key in RUNTIME_KEYS]


def play_step(players, step, names):
    """Makes one step on both sides. If PyTorch refuses def_schema_t_t because the kernel does not fit, its definition
    stays anyway; ours registers nothing, so the definition is then added to make both equal again."""
    step = tuple(placed(part, names) for part in step)
    if TRACE:
        print(step, file=sys.stderr, flush=True)
    if undefined(step, players):
        return
    before = everything(players[1], names) if step[0] != "library" else None
    outcomes = [player.play(step) for player in players]
    if step[0] == "library":
        players[0].made[step[1]] = step[3], step[4]
    if outcomes[0] != outcomes[1]:
        compare(f"outcome of {step} ({players[0].message} / {players[1].message})", outcomes)
    if outcomes[1] == "refused" and before is not None:
        compare(f"state before and after {step}, which was refused", [before, everything(players[1], names)])
        if step[0] == "def_schema_t_t" and "Inferred operator schema" in players[0].message:
            players[1].play(("def_", *step[1:3], step[4]))


def play(steps, seed):
    """Raises Difference at the first one; returns how many steps were refused."""
    global counter
    counter += 1
    names = [f"seq{counter}a", f"seq{counter}b"]
    players = [dispatch_players.TorchPlayer(), dispatch_players.OwnPlayer()]
    players[0].made = {}  # namespace and key of each library
    rng = random.Random(seed)
    try:
        players[1].copy_fallbacks(FALLBACKS)
        for step in steps:
            play_step(players, step, names)
            compare_all(players, names, rng)
        compare_all(players, names, rng, thorough=True)
    finally:
        for player in players:
            player.close()
    compare("names left", [sorted(n for n in torch._C._dispatch_get_all_op_names() if n.startswith(names[0])), []])


def difference_of(steps, seed):
    try:
        play(steps, seed)
    except (Difference, AssertionError) as difference:
        return difference
    return None


def shrink(steps, seed):
    """Removes steps that are not needed for the difference, first in chunks, then one by one."""
    size = max(1, len(steps) // 2)
    while size:
        position = 0
        while position < len(steps):
            shorter = steps[:position] + steps[position + size:]
            if difference_of(shorter, seed):
                steps = shorter
            else:
                position += size
        size //= 2
    return steps


@pytest.mark.parametrize("first", [pytest.param(seed, marks=pytest.mark.quick if seed == SEED else ())
                                   for seed in range(SEED, SEED + math.ceil(STEPS / LENGTH), AT_ONCE)])
def test_sequences(first):
    """The same steps have the same effects. On a difference, reports the shortest list of steps found that still shows
    it."""
    for seed in range(first, min(first + AT_ONCE, SEED + math.ceil(STEPS / LENGTH))):
        sequence = Sequence(seed)
        steps = [sequence.step() for _ in range(LENGTH)]
        if difference_of(steps, seed):
            steps = shrink(steps, seed)
            shown = "".join(f"\n    {step}" for step in steps)
            pytest.fail(f"sequence of seed {seed}:{shown}\n    {difference_of(steps, seed)}", pytrace=False)


@pytest.mark.quick
def test_calls():
    different, counts = dispatch_calls.compare_calls(SEED, CALLS, FALLBACKS)
    assert not different, different[:5]
    assert counts["same"] + counts["modes"] >= 2 * counts["skipped"] and counts["modes"] >= counts["same"] // 8, \
        f"too few calls can be compared: {counts}"


@pytest.mark.quick
@pytest.mark.parametrize("step", [
    ("fallback_fallthrough", 1, "CompositeExplicitAutograd"), ("fallback", 1, "Autograd", "fallback"),
    ("def_schema_t_t", 2, "f(Tensor x, Tensor y) -> Tensor", "CPU", "", "kernel")], ids=lambda step: step[0])
def test_what_is_refused_is_refused_as_a_whole(step):
    """PyTorch does these partly and ours not at all: a fallback for several keys of which one has a fallback, and a
    definition whose kernel does not fit."""
    player = dispatch_players.OwnPlayer()
    player.copy_fallbacks(FALLBACKS)
    for other in [("library", 1, "IMPL", "_", "", "file.py", 1), ("library", 2, "DEF", "half", "", "file.py", 2)]:
        assert player.play(other) == "done", player.message
    before = everything(player, ["half"])
    assert player.play(step) == "refused" and everything(player, ["half"]) == before, player.message
    player.close()


@pytest.mark.quick
def test_every_function_is_bound():
    not_bound, not_declared, not_exported = dispatch_host.missing()
    assert not not_bound and not not_declared and not not_exported


@pytest.mark.quick
def test_structures_have_the_size_of_the_library_s():
    assert not dispatch_host.wrong_sizes()


FALLBACKS = dispatch_players.built_in_fallbacks()
