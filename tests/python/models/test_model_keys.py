"""Tests the key of an exported program: it is the same for the same program in another process, with other weights,
or after other exports; it differs after each single change; and a message names what changed."""
import os

from torch_scenarios import TOP, play

HERE = os.path.dirname(os.path.abspath(__file__))

# A module whose every choice is an argument; `changes` replaces one choice.
PROGRAM = '''
import torch
from torch import nn
from torch.export import Dim

def numbers(*sizes):
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes) / 7

@torch.library.custom_op("keys::twice", mutates_args=())
def twice(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    return x * n
@twice.register_fake
def _(x, n=2):
    return torch.empty_like(x)

@torch.library.custom_op("keys::thrice", mutates_args=())
def thrice(x: torch.Tensor, n: float = 3.0) -> torch.Tensor:
    return x * n
@thrice.register_fake
def _(x, n=3.0):
    return torch.empty_like(x)

DEFAULTS = dict(factor=1.5, act=torch.relu, dtype=torch.float32, width=4, scale=1.0, order=0, kwarg="k", constant=3.0,
                custom="twice", mutates=True, persistent=True, tied=False, channels_last=False, upper=64, dynamic=True,
                training=False, dim=1, keepdim=False, eps=1e-5, literal=0.0, string="bilinear", name="layer", extra=False,
                out="tuple", branch=1, batch=8, strided=False)

def make(seed=0, **changes):
    c = {**DEFAULTS, **changes}
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(seed)
            setattr(self, c["name"], nn.Linear(c["width"], 4, dtype=c["dtype"]))
            self.norm = nn.LayerNorm(4, eps=c["eps"], dtype=c["dtype"])
            self.conv = nn.Conv2d(1, 2, 3, padding=1, dtype=c["dtype"])
            self.other = nn.Linear(c["width"], 4, dtype=c["dtype"])
            if c["tied"]:
                self.other.weight = getattr(self, c["name"]).weight
            if c["channels_last"]:
                self.conv.weight.data = self.conv.weight.data.contiguous().to(memory_format=torch.channels_last)
                self.conv.weight.data = self.conv.weight.data.as_strided(self.conv.weight.shape, (9, 1, 3, 1))
            if c["strided"]:
                layer = getattr(self, c["name"])
                layer.weight.data = layer.weight.data.t().contiguous().t()
            self.register_buffer("count", torch.zeros(4, dtype=c["dtype"]), persistent=c["persistent"])
            self.drop = nn.Dropout(0.25)
        def body(self, x, k):
            shift = torch.tensor([1.0, 2.0, c["constant"], 4.0], dtype=c["dtype"])
            if c["mutates"]:
                self.count.add_(1)
            y = c["act"](getattr(self, c["name"])(x) * c["factor"] + shift) + self.other(x) + self.count
            y = self.norm(y) * k + c["literal"]
            y = getattr(torch.ops.keys, c["custom"])(y)
            y = self.drop(y)
            z = self.conv(y.reshape(-1, 1, 2, 2)).sum(c["dim"], keepdim=c["keepdim"])
            w = torch.cond(y.sum() > 0, lambda a: a + c["branch"], lambda a: a * 2, (y,))
            if c["extra"]:
                y = y + y
            results = [y, z, w][:: -1 if c["order"] else 1]
            return tuple(results) if c["out"] == "tuple" else {"a": results[0], "b": results[1:]}
    class WithK(Module):
        def forward(self, x, *, k):
            return self.body(x, k)
    class WithJ(Module):
        def forward(self, x, *, j):
            return self.body(x, j)
    module = {"k": WithK, "j": WithJ}[c["kwarg"]]().train(c["training"])
    x = torch.randn(c["batch"], c["width"]).to(c["dtype"])
    sizes = {0: Dim("n", max=c["upper"])} if c["dynamic"] else None
    shapes = {"x": sizes, c["kwarg"]: None} if c["dynamic"] else None
    with torch.no_grad():
        return torch.export.export(module, (x,), {c["kwarg"]: c["scale"]}, dynamic_shapes=shapes)

# What is changed, and what the difference has to name.
CHANGES = [
    (dict(factor=2.5), "0x1.4"), (dict(factor=-1.5), "-0x1.8"), (dict(act=torch.tanh), "tanh"),
    (dict(dtype=torch.float64), "float64"), (dict(width=5), "5"), (dict(scale=2.0), "input"), (dict(order=1), ""),
    (dict(kwarg="j"), '\\\\"j\\\\"'), (dict(constant=5.0), "constant"), (dict(custom="thrice"), "thrice"),
    (dict(mutates=False), ""), (dict(persistent=False), "count"), (dict(tied=True), "layer.weight+0"),
    (dict(strided=True), "layer.weight"), (dict(upper=1024), "1024"), (dict(dynamic=False), ""),
    (dict(training=True), ""), (dict(dim=0), ""), (dict(keepdim=True), ""), (dict(eps=1e-6), "layer_norm"),
    (dict(literal=-0.0), "-0x0"), (dict(literal=float("inf")), "inf"), (dict(literal=float("nan")), "nan"),
    (dict(name="first"), "first"), (dict(extra=True), ""), (dict(out="dict"), "results"), (dict(branch=2), "graph at node"),
    (dict(batch=40), "like"), (dict(branch=1.0), "graph at node"),
]
'''


def test_the_same_program_has_the_same_key_in_every_process():
    text = PROGRAM + """
import sys
from aoticache._models import graphs
more = int(sys.argv[1])
for place in range(more):  # symbols get other numbers, nodes other names
    make(width=3 + place, name="before")
texts = [graphs.describe(make(seed=more + place)) for place in range(2)]
assert texts[0] == texts[1], graphs.difference(*texts)
frozen = graphs.describe(make(seed=more), frozen=True), graphs.describe(make(seed=more + 1), frozen=True)
assert frozen[0] != frozen[1] and "the parameter" in graphs.difference(*frozen), graphs.difference(*frozen)
print("key", graphs.digest(texts[0]), "done")
"""
    keys = set()
    for more in ("0", "1", "3"):
        said = play(("\n" * int(more)) + text, [more], PYTHONHASHSEED=more)
        keys.add(said.split("key ")[1].split()[0])
    assert len(keys) == 1, keys


def test_real_models_have_one_key_in_every_process():
    """Exports some of docs/results/models.md if their packages are installed: PYTHONPATH may have transformers and
    torchvision."""
    text = """
import sys
import torch
import models
from aoticache._models import graphs
some = [*models.PLAIN, "GRU", "ResNet-18", "MobileNetV3 small", "ViT", "BERT", "GPT-2", "Llama", "T5 encoder", "CLIP text tower"]
for number, name in enumerate(sorted(some, reverse=sys.argv[1] == "1")):
    torch.manual_seed(number + 100 * int(sys.argv[1]))
    try:
        module, inputs = models.MODELS[name](torch)
    except ImportError as error:
        print("absent", name.replace(" ", "-"), str(error).replace(" ", "-"))
        continue
    with torch.no_grad():
        program = torch.export.export(module.eval(), inputs, strict=False)
    print("key", name.replace(" ", "-"), graphs.digest(graphs.describe(program)))
print("done")
"""
    found = []
    for number in ("0", "1"):
        said = play(text, [number], PYTHONHASHSEED=number, PYTHONPATH=os.pathsep.join(
            [HERE, os.path.join(TOP, "eager", "torch"), os.environ.get("PYTHONPATH", "")]))
        found.append(dict(line.split()[1:3] for line in said.splitlines() if line.startswith("key ")))
    assert found[0] == found[1] and len(found[0]) >= 5, found  # other weights, another order, other hash seeds
    assert len(set(found[0].values())) == len(found[0]), found
    print(f"# {len(found[0])} models")


def test_each_single_change_has_another_key_and_is_named():
    play(PROGRAM + """
from aoticache._models import graphs
base = graphs.describe(make())
assert base == graphs.describe(make())
seen = {base: "nothing"}
for changes, words in CHANGES:
    text = graphs.describe(make(**changes))
    assert text not in seen, f"{changes} has the key of {seen[text]}"
    seen[text] = str(changes)
    difference = graphs.difference(base, text)
    assert difference and words in difference, f"{changes}: {difference}"
assert len(seen) > 28 and graphs.difference(base, base) == ""
print(len(seen), "done")
""")


def test_weights_are_those_that_the_library_asks_for():
    play("""
        import tempfile, torch
        from aoticache._core import capi
        from aoticache._models import graphs
        from aoticache._models.compiled import load_worker
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, bias=False)
                self.b.weight = self.a.weight
                self.register_buffer("kept", torch.ones(4)); self.register_buffer("other", torch.ones(()), persistent=False)
            def forward(self, x):
                return self.b(self.a(x)) * self.kept + self.other + torch.tensor([1.0, 2.0, 3.0, 4.0])
        program = torch.export.export(Module(), (torch.randn(2, 4),))
        found = graphs.weights(program)
        assert set(found) == {"a.weight", "a.bias", "b.weight", "kept", "other"}, set(found)
        with tempfile.TemporaryDirectory() as directory:
            compiled = load_worker(capi.load()).compile_program(torch, program, directory)
        own = set(compiled["constants"]) - set(found)
        assert own == {"_tensor_constant0"}, own
        rest = set(compiled["constants"]) - own - {"a.weight", "b.weight"}  # of a tied weight one name
        assert rest == {"a.bias", "kept", "other"} and len(compiled["constants"]) == 5, list(compiled["constants"])
        print("done")
    """)


def test_objects_have_no_key():
    play("""
        import torch
        from aoticache import AoticacheError
        from aoticache._models import graphs
        try:
            graphs._Writer(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), False)._argument(object(), {})
        except AoticacheError as error:
            assert "object" in str(error) and error.status == "UNSUPPORTED", error
            print("done")
    """)
