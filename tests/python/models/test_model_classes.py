"""Tests models whose arguments and results are classes of a library: load() imports what registers them, says what is missing, or
answers without the classes."""
import json
import os
import pathlib
import tempfile

import pytest

from torch_scenarios import TOP, play

_directory = tempfile.TemporaryDirectory(prefix="aoticache-classes.")
DIRECTORY = _directory.name
CACHE = os.path.join(DIRECTORY, "cache")
LIBRARY = os.path.join(DIRECTORY, "library")
PACKAGE = os.path.join(TOP, "eager", "torch")

FILES = {
    "zoo/__init__.py": "",
    "zoo/outputs.py": """
import collections, torch
class Output(collections.OrderedDict):
    # as in libraries of models: the fields are keys
    def __init__(self, **fields):
        super().__init__(fields)
        self.__dict__.update(fields)
torch.utils._pytree.register_pytree_node(
    Output, lambda output: (list(output.values()), list(output)), lambda values, names: Output(**dict(zip(names, values))),
    serialized_type_name="zoo.outputs.Output")
""",
    "zoo/kinds.py": """
import collections, dataclasses, enum, torch
Named = collections.namedtuple("Named", "one two")
torch.utils._pytree._register_namedtuple(Named, serialized_type_name="zoo.kinds.Named")
def zero():
    return 0
@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor
    note: object = None
class Color(enum.Enum):
    RED = 1
""",
    "zoo/registrations.py": """
import torch
from zoo.kinds import Pair
torch.utils._pytree.register_pytree_node(
    Pair, lambda pair: ([pair.left, pair.right], [["left", "right"], ["note"]]),
    lambda values, names: Pair(*values), serialized_type_name="a pair of the zoo")
""",
    "zoo/points.py": """
import dataclasses, torch
@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor
torch.export.register_dataclass(Point, serialized_type_name="zoo.points.Point")
""",
    "broken/zoo/__init__.py": "raise RuntimeError('this zoo is closed')",
}
BEGIN = """
import os, sys, torch, aoticache
X = torch.arange(6.0).reshape(2, 3)
def refused(status, words, call):
    try:
        call()
    except aoticache.AoticacheError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing and error.status == status, f"{error.status} {error}: no {missing}"
    else:
        raise AssertionError(f"no error with {words}")
"""


def run(text, path=LIBRARY, **more):
    return play(BEGIN + text, AOTICACHE_DIR=CACHE, PYTHONPATH=os.pathsep.join(filter(None, (PACKAGE, path))), **more)


@pytest.fixture(scope="module", autouse=True)
def _models():
    for name, text in FILES.items():
        path = pathlib.Path(LIBRARY, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run("""
import collections
import zoo.registrations
from zoo.kinds import Color, Named, Pair, zero
from zoo.outputs import Output
from zoo.points import Point
class Answers(torch.nn.Module):
    def forward(self, x):
        return Output(logits=x * 2, hidden=(x + 1, Pair(x - 1, x * 3)), n=x.shape[0]), {"sum": x.sum()}
class Takes(torch.nn.Module):
    def forward(self, point):
        return point.x + point.y
class Colored(torch.nn.Module):
    def forward(self, x):
        return {Color.RED: x + 2}, Named(x, x + 5), collections.defaultdict(zero, {"a": x})
class Plain(torch.nn.Module):
    def forward(self, x):
        return {"a": [x + 3], "b": (x,)}
model = aoticache.compile(Answers(), (X,), id="answers")
output, _ = model(X)
assert type(output) is Output and type(output.hidden[1]) is Pair and output["n"] == 2, output
aoticache.compile(Takes(), (Point(X, X),), id="takes")
aoticache.compile(Colored(), (X,), id="colored")
aoticache.compile(Plain(), (X,), id="plain")
import dataclasses
@dataclasses.dataclass
class Own:
    value: torch.Tensor
torch.export.register_dataclass(Own, serialized_type_name="main.Own")
class OfMain(torch.nn.Module):
    def forward(self, x):
        return Own(x + 4)
aoticache.compile(OfMain(), (X,), id="of main")
import torch._inductor
torch._inductor.aoti_compile_and_package(torch.export.export(Answers(), (X,)), package_path=sys.argv[1])
print("done")
""", arguments=(os.path.join(DIRECTORY, "answers.pt2"),))


def test_load_imports_what_registers_the_classes():
    run("""
assert "zoo" not in sys.modules
before = list(sys.path)
model = aoticache.load("answers")
assert {"zoo.outputs", "zoo.kinds", "zoo.registrations"} <= set(sys.modules) and sys.path == before
output, rest = model(X)
assert type(output).__module__ == "zoo.outputs" and type(output.hidden[1]).__name__ == "Pair", output
torch.testing.assert_close(output.hidden[1].right, X * 3); torch.testing.assert_close(rest["sum"], X.sum())
model = aoticache.load("takes", imports=["zoo.points"])
from zoo.points import Point
torch.testing.assert_close(model(Point(X, X)), X + X)
model = aoticache.load("colored")
from zoo.kinds import Color
by_color, named, factory = model(X)
torch.testing.assert_close(by_color[Color.RED], X + 2); torch.testing.assert_close(named.two, X + 5)
assert factory["b"] == 0
print("done")
""")


def test_imports_can_be_forbidden():
    run("""
refused("DENIED", ["answers: ", "class Output", "zoo.outputs", "imports=False", "imports=['zoo.outputs']"],
        lambda: aoticache.load("answers", imports=False))
refused("DENIED", ["does not allow to import zoo.outputs"], lambda: aoticache.load("answers", imports=("zoolander", "zoo.points")))
assert "zoo" not in sys.modules
refused("DENIED", ["takes: ", "class Point", "zoo.points"], lambda: aoticache.load("takes", imports=False, results="dict"))
refused("DENIED", ["class Color", "zoo.kinds"], lambda: aoticache.load("colored", imports=()))
for wrong in ("zoo", None, [1]):
    refused("INVALID", ["imports is ", "a list of names of modules"], lambda: aoticache.load("answers", imports=wrong))
aoticache.load("answers", imports=["zoo"])(X)
aoticache.load("answers", imports=False)(X)  # the process has the classes
assert aoticache.load("plain", imports=False)(X)["b"][0] is not None
print("done")
""")


def test_a_missing_module_is_named_by_load():
    run("""
refused("UNSUPPORTED", ["answers: ", "class Output of the module zoo.outputs", "pip install zoo", "before load()", 'results="dict"'],
        lambda: aoticache.load("answers"))
refused("UNSUPPORTED", ["takes: ", "class Point", "pip install zoo"], lambda: aoticache.load("takes"))
refused("UNSUPPORTED", ["class Own", "__main__", "the program that compiled the model"], lambda: aoticache.load("of main"))
print("done")
""", path="")
    run("""
refused("UNSUPPORTED", ["RuntimeError: this zoo is closed"], lambda: aoticache.load("answers"))
print("done")
""", path=os.path.join(LIBRARY, "broken"))


def test_results_without_the_classes():
    run("""
import copy, pickle
refused("INVALID", ["results is 'list'", "'class', 'dict'"], lambda: aoticache.load("answers", results="list"))
output, rest = aoticache.load("answers", results="dict", imports=False)(X)
assert isinstance(output, dict) and list(output) == ["logits", "hidden", "n"] and type(rest) is dict, output
assert output.logits is output["logits"] is output[0] and output[-1] == output.n == 2
pair = output.hidden[1]
assert pair.note is None and "a pair of the zoo" in repr(pair), pair
torch.testing.assert_close(pair.right, X * 3); torch.testing.assert_close(rest["sum"], X.sum())
for again in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
    torch.testing.assert_close(again.left, X - 1)
try:
    pair.middle
except AttributeError as error:
    assert "middle" in str(error)
else:
    raise AssertionError("a field that is not there")
by_color, named, factory = aoticache.load("colored", results="dict")(X)
torch.testing.assert_close(by_color["RED"], X + 2); torch.testing.assert_close(named[1], X + 5)
assert type(factory) is dict and list(factory) == ["a"], factory
torch.testing.assert_close(aoticache.load("of main", results="dict")(X).value, X + 4)
assert type(aoticache.load("plain", results="dict")(X)["b"]) is tuple
print("done")
""", path="")


def test_the_current_directory_is_not_searched_because_of_a_record():
    run("""
os.chdir(sys.argv[1])
sys.path.insert(0, "")  # as in an interactive Python
refused("DENIED", ["zoo.outputs would be imported from the current directory"], lambda: aoticache.load("answers"))
assert "zoo" not in sys.modules
aoticache.load("answers", imports=["zoo"])(X)
print("done")
""", path="", arguments=(LIBRARY,))


def test_a_package_names_the_class_or_answers_without_it():
    run("""
model = aoticache.load_package(sys.argv[1])
refused("UNSUPPORTED", ["its results", "zoo.outputs.Output", "import the module", 'results="dict"'], lambda: model(X))
torch.testing.assert_close(aoticache.load_package(sys.argv[1], results="dict")(X)[0].logits, X * 2)
refused("INVALID", ["results is "], lambda: aoticache.load_package(sys.argv[1], results=1))
print("done")
""", path="", arguments=(os.path.join(DIRECTORY, "answers.pt2"),))


def test_what_is_stored():
    lists = [json.loads(text) for text in (one.read_text() for one in pathlib.Path(CACHE, "objects").rglob("*")
                                           if one.is_file() and one.open("rb").read(10) == b'{"format":')
             if '"tensors"' in text]
    assert len(lists) == 10, len(lists)  # for each model, with and without weights
    with_classes = [one["classes"] for one in lists if "classes" in one]
    assert len(with_classes) == 8, with_classes  # the plain ones have none
    assert {"name": "Pair", "modules": ["zoo.kinds", "zoo.registrations"], "registered": "a pair of the zoo"} in [
        item for one in with_classes for item in one["results"]], with_classes
    assert {item["name"] for one in with_classes for item in one["results"]} == {"Output", "Pair", "Color", "Named", "zero", "Own"}
    assert [item["modules"] for one in with_classes for item in one["arguments"]] == [["zoo.points"]] * 2, with_classes


def test_a_record_that_names_no_module_is_refused():
    run("""
from aoticache._models.classes import NeededClass
good = NeededClass.from_json({"name": "A.B", "modules": ["a.b"]})
assert good.as_json() == {"name": "A.B", "modules": ["a.b"]} and not good.is_known()
for wrong in ({"name": "A"}, {"name": "A", "modules": []}, {"name": 1, "modules": ["a"]}, {"name": "A", "modules": ["../a"]},
              {"name": "A", "modules": [".a"]}, {"name": "A", "modules": [1]}, {"name": "A", "modules": ["a", ""]}, []):
    try:
        NeededClass.from_json(wrong)
    except (ValueError, KeyError, TypeError):
        pass
    else:
        raise AssertionError(wrong)
print("done")
""", path="")
