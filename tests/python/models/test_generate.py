"""Tests docs/examples/generate.c on the two packages that docs/examples/generate.py makes. Its greedy tokens are those of
eager PyTorch, which keeps no keys and values and processes all tokens again each time. Sampled tokens are among the most
likely ones, and the same for the same seed. If it cannot do something, it says so.
"""
import functools
import math
import shutil

import pytest
import torch

import generate_host
from generate_host import generate

import generate as example  # the one in docs/examples, whose directory generate_host puts on the path

PROMPTS = ([17, 4, 99], [1, 2], list(range(40, 77)))
KINDS = ("gpt", "llama")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("generate")


@pytest.fixture(scope="module")
def program(directory):
    return generate_host.compile_program(str(directory))


@pytest.fixture(scope="module")
def made(directory):
    """Returns a function that makes the model of a kind, once, and returns it with the path of its package."""
    @functools.cache
    def make(kind):
        step, path = example.make(kind), str(directory / f"{kind}.pt2")
        example.compile_package(step, path)
        return step, path

    return make


def eager_logits(step, tokens):
    with torch.no_grad():
        return step(torch.tensor(tokens))[0]


def eager_tokens(step, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(eager_logits(step, tokens).argmax()))
    return tokens[len(prompt):]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: f"a prompt of {len(prompt)}")
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_eager_pytorch(made, program, kind, prompt):
    step, package = made(kind)
    expected = eager_tokens(step, prompt, 64)
    code, got, err = generate(program, package, prompt)
    assert (code, got) == (0, expected) and len(got) == 64, err
    assert len(set(expected)) > 8, "they are the same again and again"


@pytest.mark.parametrize("kind", KINDS)
def test_sampling(made, program, kind):
    (step, package), prompt = made(kind), PROMPTS[0]
    chance = ("-n", "40", "-t", "1.5", "-k", "5")
    code, got, err = generate(program, package, prompt, *chance, "-s", "7")
    assert (code, got) == generate(program, package, prompt, *chance, "-s", "7")[:2] and len(got) == 40, err
    assert got != generate(program, package, prompt, *chance, "-s", "8")[1], "another seed gives the same"
    ranks = []
    for place, token in enumerate(got):
        logits = eager_logits(step, prompt + got[:place])
        ranks.append(int((logits > logits[token] + 1e-4).sum()))
    assert max(ranks) < 5 and len(set(ranks)) > 1, f"not among the 5 most likely, or always the first: {ranks}"
    assert generate(program, package, prompt, "-t", "2", "-k", "1")[1] == generate(program, package, prompt)[1], \
        "among one there is no choice"


@pytest.mark.parametrize("kind", KINDS)
def test_pytorchs_own_loader_gives_the_same(made, program, kind):
    package = made(kind)[1]
    assert generate_host.torch_tokens(torch, package, PROMPTS[0], 64)[0] == generate(program, package, PROMPTS[0])[1]


def test_chances(made, program):
    """The frequencies of the first token under many seeds match the probabilities from PyTorch's logits."""
    (step, package), turns, temperature = made("llama"), 150, 3.0
    best = eager_logits(step, PROMPTS[0]).topk(3)
    chances = torch.softmax(best.values / temperature, dim=0).tolist()
    options = ("-n", "1", "-t", str(temperature), "-k", "3", "-s")
    found = [generate(program, package, PROMPTS[0], *options, str(seed))[1][0] for seed in range(turns)]
    for token, chance in zip(best.indices.tolist(), chances):
        often = found.count(token) / turns
        assert abs(often - chance) < 5 * math.sqrt(chance * (1 - chance) / turns), f"{often} of the cases, {chances}"


@pytest.mark.parametrize("options, prompt", [
    pytest.param((), [1], id="one token"), pytest.param((), [1, "x"], id="no number"),
    pytest.param(("-n", "-3"), [1, 2], id="a negative count"), pytest.param(("-x",), [1, 2], id="an option that there is not"),
    pytest.param(("-t", "-1"), [1, 2], id="a temperature below 0")])
def test_says_how_it_is_used(made, program, options, prompt):
    code, got, err = generate(program, made("gpt")[1], prompt, *options)
    assert code == 2 and not got and "usage:" in err, err


def test_more_tokens_than_the_model_has_places_for(made, program):
    """It ends with a message and does not write past the last position."""
    code, got, err = generate(program, made("gpt")[1], [place % 331 for place in range(510)], "-n", "9")
    assert code == 1 and len(got) < 9 and "511" in err, f"{got} {err[-300:]}"


def test_a_package_without_these_models(program, directory):
    path = str(directory / "other.pt2")
    torch._inductor.aoti_compile_and_package(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), package_path=path)
    code, got, err = generate(program, path, [1, 2])
    assert code == 1 and "prefill" in err, err
