"""Tests random models: inputs and outputs are random trees of tensors, numbers, texts and None, and a call may differ from the
export in any part of them. Each call is made in all forms that a model has here, and compared with ExportedProgram.module()."""
import collections
import dataclasses
import json
import os
import random
import subprocess
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import torch
from torch.utils import _pytree as pytree

import aoticache
import aoticache.runtime
from torch_scenarios import BUILD, environment

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Item:
    first: object
    second: object


torch.export.register_dataclass(Item, serialized_type_name="generated_models.Item")
pytree._register_namedtuple(Pair, serialized_type_name="generated_models.Pair")
ROWS = torch.export.Dim("rows", min=1, max=9)
WORDS = ("sum", "mean", "twice", "")


# ---- models ----


class Maker:
    """A random model and its calls."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.has_rows = self.random.random() < 0.6
        count = self.random.randint(1, 3)
        self.args = tuple(self.tree(2) for _ in range(count))
        self.kwargs = {f"k{place}": self.tree(1) for place in range(self.random.randint(0, 2))}
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((self.args, self.kwargs))):
            self.args = (self.tensor(), *self.args[1:])
        self.results = [self.random.random() for _ in range(40)]
        self.module = make_module(len(self.args), list(self.kwargs), self)

    def tensor(self):
        dtype = self.random.choice((torch.float32, torch.float32, torch.float64, torch.int64, torch.bool))
        rows = 4 if self.has_rows and self.random.random() < 0.7 else 3
        made = torch.arange(rows * 2).reshape(rows, 2) % 5 + self.random.randint(0, 3)
        return (made % 2 if dtype == torch.bool else made).to(dtype)

    def constant(self):
        return self.random.choice((None, True, False, self.random.randint(-3, 5), self.random.choice((0.5, -0.0, 2.0)),
                                   self.random.choice(WORDS)))

    def tree(self, depth):
        chosen = self.random.random()
        if depth == 0 or chosen < 0.45:
            return self.tensor()
        if chosen < 0.65:
            return self.constant()
        items = [self.tree(depth - 1) for _ in range(self.random.randint(1, 3))]
        kind = self.random.choice(("dict", "dict", "list", "tuple", "ordered", "pair", "item"))
        if kind in ("dict", "ordered"):
            names = self.random.sample("abcd", len(items))
            return (dict if kind == "dict" else collections.OrderedDict)(zip(names, items))
        if kind in ("pair", "item"):
            return (Pair if kind == "pair" else Item)(items[0], self.tree(depth - 1))
        return items if kind == "list" else tuple(items)

    def shapes(self):
        """Returns dynamic shapes for torch.export, structured like the arguments."""
        if not self.has_rows:
            return None

        def of(value):
            if isinstance(value, torch.Tensor):
                return {0: ROWS} if value.shape[0] == 4 else None
            if isinstance(value, dict):
                return type(value)((key, of(item)) for key, item in value.items())
            if isinstance(value, Item):  # torch.export takes a list for an instance of a class
                return [of(value.first), of(value.second)]
            if isinstance(value, Pair):
                return Pair(*map(of, value))
            return type(value)(map(of, value)) if isinstance(value, (list, tuple)) else None

        named = {f"p{place}": value for place, value in enumerate(self.args)}
        return of({**named, **self.kwargs})

    # ---- calls ----

    def calls(self):
        """Yields (label, args, kwargs) of each call; the first is as exported."""
        given = (self.args, self.kwargs)
        yield "as exported", *given
        yield "keys in another order", *turned(given)
        yield "other values", *self.change(given, lambda leaf: leaf.flip(0) + (leaf.dtype != torch.bool) * 1)
        yield "other strides", *self.change(given, lambda leaf: leaf.t().contiguous().t())
        for rows in (1, 2, 9, 10, 0) if self.has_rows else ():
            yield f"{rows} rows", *self.change(given, lambda leaf: resized(leaf, rows) if leaf.shape[0] == 4 else leaf)
        leaves, spec = pytree.tree_flatten(given)
        for place, leaf in enumerate(leaves):
            for other in others(leaf, self.random):
                changed = [*leaves[:place], other, *leaves[place + 1:]]
                yield f"leaf {place} is {shown(other)}", *pytree.tree_unflatten(changed, spec)
        if len(self.args) > 1:
            yield "two arguments exchanged", (self.args[1], self.args[0], *self.args[2:]), self.kwargs
        yield "one argument less", self.args[:-1], self.kwargs
        yield "one keyword more", self.args, {**self.kwargs, "more": 1}

    def change(self, given, function):
        return pytree.tree_map(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, given)


def resized(tensor, rows):
    return torch.cat([tensor] * 3)[:rows]


def others(leaf, rng):
    if isinstance(leaf, torch.Tensor):
        kind = rng.choice(("dtype", "sizes", "none", "number"))
        return {"dtype": [leaf.to(torch.float64 if leaf.dtype != torch.float64 else torch.float32)],
                "sizes": [torch.cat([leaf, leaf], 1)], "none": [None], "number": [3]}[kind]
    return [rng.choice([other for other in (None, True, False, 2, 0.0, -0.0, 0.25, "sum", "other")
                        if (type(other), repr(other)) != (type(leaf), repr(leaf))])]


def turned(value):
    """Returns the value with the keys of each dict in reverse order."""
    if type(value) is dict:
        return {key: turned(value[key]) for key in reversed(value)}
    if isinstance(value, Item):
        return Item(turned(value.first), turned(value.second))
    if isinstance(value, Pair):
        return Pair(*map(turned, value))
    return type(value)(map(turned, value)) if type(value) in (list, tuple) else value


def make_module(count, names, maker):
    """Returns a module whose forward has arguments p0, p1, ... and keyword-only ones, and uses all their leaves."""
    positional = [f"p{place}" for place in range(count)]
    signature = ", ".join(["self", *positional, *(["*"] if names else []), *names])
    space = {"compute": lambda *given: compute(maker.results, *given)}
    values = "".join(f"{name}, " for name in (*positional, *names))
    exec(f"def forward({signature}):\n    return compute({values})\n", space)
    return type("Generated", (torch.nn.Module,), {"forward": space["forward"]})().eval()


def compute(choices, *given):
    leaves = pytree.tree_leaves(given)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    factor = 1
    for place, leaf in enumerate(leaves):  # each leaf has its own factor, so that its position matters
        if isinstance(leaf, str):
            factor += (len(leaf) + 1) * (place + 1)
        elif leaf is None or isinstance(leaf, (bool, int, float)):
            factor += {None: 7, True: 11, False: 13}.get(leaf, 0) * (place + 1) if not isinstance(leaf, float) else leaf
    made = [tensor * factor + place for place, tensor in enumerate(tensors)]
    made += [made[0].sum(), tensors[0]]
    pool = [*made, *made, None, 3, -0.0, True, "text", tensors[0].shape[0], made[0]]
    rest = iter(choices)

    def build(depth):
        chosen = next(rest, 0.0)
        if depth == 0 or chosen < 0.5:
            return pool[int(next(rest, 0.0) * len(pool))]
        items = [build(depth - 1) for _ in range(int(chosen * 100) % 3 + 1)]
        kind = int(chosen * 1000) % 5
        return [dict(zip("yxz", items)), items, tuple(items), Pair(items[0], made[0]), Item(items[0], items[-1])][kind]

    return {"made": made[0], "tree": build(2)} if choices[0] < 0.7 else (build(2), made[-2])


# ---- comparing ----


def shown(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}"
    return repr(value)[:200]


def same(got, expected, plain=False, loose=False):
    """Compares. plain: without PyTorch, so that results are NumPy arrays and plain tuples instead of named ones. loose: results
    may have any strides, because inputs do not have those of the export."""
    if isinstance(expected, torch.Tensor):
        if plain and not isinstance(got, torch.Tensor) and hasattr(got, "__array__"):
            got = torch.from_numpy(got.__array__().copy())
        if not isinstance(got, torch.Tensor) or (got.dtype, got.shape) != (expected.dtype, expected.shape):
            return False
        strides = plain or loose or all(a == b or size < 2 for a, b, size in zip(got.stride(), expected.stride(), got.shape))
        return strides and torch.allclose(got.double(), expected.double(), equal_nan=True)
    if isinstance(expected, dict):
        return isinstance(got, dict) and (plain or type(got) is type(expected)) and list(got) == list(expected) and all(
            same(got[key], value, plain, loose) for key, value in expected.items())
    if isinstance(expected, Item):
        return type(got) is Item and same([got.first, got.second], [expected.first, expected.second], plain, loose)
    if isinstance(expected, (list, tuple)):
        kinds = (plain and isinstance(expected, Pair) and type(got) is tuple) or type(got) is type(expected)
        return kinds and len(got) == len(expected) and all(same(a, b, plain, loose) for a, b in zip(got, expected))
    return type(got) is type(expected) and repr(got) == repr(expected)


class Raised:
    def __init__(self, error):
        self.error = error

    def __repr__(self):
        return f"{type(self.error).__name__}: {self.error}"[:300]


def attempt(function, *args, **kwargs):
    try:
        with torch.no_grad():
            return function(*args, **kwargs)
    except Exception as error:
        return Raised(error)


class Table:
    """Results: how often each form was right or refused, and what was wrong."""

    def __init__(self):
        self.counts, self.wrong = collections.Counter(), []

    def add(self, form, label, got, expected, eager, plain=False):
        if isinstance(got, Raised):
            self.counts[form, "refused"] += 1
            if not isinstance(got.error, (aoticache.AoticacheError, TypeError, ValueError)) or not str(got.error):
                self.wrong.append(f"{form}, {label}: not in words: {got!r}")
        elif any(not isinstance(one, Raised) and same(got, one, plain, label.endswith("other strides")) for one in (expected, eager)):
            self.counts[form, "right"] += 1
        else:
            self.wrong.append(f"{form}, {label}: {shown(got)}; PyTorch: {shown(expected)}")


# ---- all forms of one model ----


def play(seed, table, directory):
    maker = Maker(seed)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(maker.module, maker.args, maker.kwargs, dynamic_shapes=maker.shapes())
        except Exception as error:  # PyTorch cannot export it
            table.counts["export", type(error).__name__] += 1
            return
        forms = {"compile": attempt(aoticache.compile, program, id=f"generated-{seed}")}
    if isinstance(forms["compile"], Raised):
        table.add("compile", f"{seed}: compile()", forms["compile"], None, None)
        return
    forms["load"] = aoticache.load(f"generated-{seed}")
    forms["runtime, stored"] = aoticache.runtime.load(f"generated-{seed}")
    package = os.path.join(directory, f"generated-{seed}.pt2")
    made = attempt(torch._inductor.aoti_compile_and_package, program, package_path=package)
    if not isinstance(made, Raised):  # PyTorch cannot package models with a text among their results
        forms["load_package"] = aoticache.load_package(package)
        forms["runtime, package"] = aoticache.runtime.load(package)
    reference = program.module()
    calls = [(f"{seed}: {label}", args, kwargs, attempt(reference, *args, **kwargs), attempt(maker.module, *args, **kwargs))
             for label, args, kwargs in maker.calls()]
    for form, model in forms.items():
        for label, args, kwargs, expected, eager in calls:
            is_plain = form.startswith("runtime")
            given = plain_of((args, kwargs)) if is_plain else (args, kwargs)
            got = attempt(model, *given[0], **given[1])
            table.add(form, label, got, expected, eager, is_plain)
            if label.endswith("as exported") and isinstance(got, Raised) and form in ("compile", "load"):
                table.wrong.append(f"{form}, {label}: refused: {got!r}")
    if not isinstance(made, Raised):
        play_tool(table, package, calls)


def plain_of(value):
    return pytree.tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf, value)


def play_tool(table, package, calls):
    """Runs `aoticache run-package`, without PyTorch: tensors in, tensors out."""
    words = [os.path.join(BUILD, "bin", "aoticache"), "run-package", package, "--json", "--all-values"]
    for label, args, kwargs, expected, eager in calls[:1] + [one for one in calls if one[0].endswith(("1 rows", "10 rows"))]:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        inputs = []
        for place, tensor in enumerate(tensors):
            path = f"{package}.{place}"
            with open(path, "wb") as file:
                file.write(tensor.contiguous().numpy().tobytes())
            inputs += ["--input", f"{str(tensor.dtype)[6:]}:{'x'.join(map(str, tensor.shape))}=@{path}"]
        done = subprocess.run([*words, *inputs], env=environment(AOTICACHE_DIR=os.environ["AOTICACHE_DIR"]), capture_output=True,
                              text=True)
        if done.returncode != 0:
            table.add("run-package", label, Raised(ValueError(done.stderr.strip())), expected, eager)
            continue
        values = [one and one["values"] for one in json.loads(done.stdout)["outputs"]]
        wanted = [leaf.flatten().tolist() for leaf in pytree.tree_leaves(expected) if isinstance(leaf, torch.Tensor)]
        numbers = [value for value in values if value is not None]
        right = all(any(same(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)) for a in numbers) for b in wanted)
        table.counts["run-package", "right"] += right
        if not right or isinstance(expected, Raised):
            table.wrong.append(f"run-package, {label}: {values}; PyTorch: {shown(expected)}")


def main():
    table = Table()
    for seed in range(int(os.environ.get("FIRST", "0")), int(os.environ.get("FIRST", "0")) + int(os.environ.get("COUNT", "4"))):
        play(seed, table, sys.argv[1])
    print(json.dumps({"counts": {", ".join(key): count for key, count in sorted(table.counts.items())}, "wrong": table.wrong}))


if __name__ == "__main__":
    main()
