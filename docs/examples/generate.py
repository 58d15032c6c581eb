"""Compiles two small language models for docs/examples/generate.c: one like GPT-2, one like Llama, with random weights.

    python docs/examples/generate.py gpt gpt.pt2
    python docs/examples/generate.py llama llama.pt2

A package has two models with the same weights. "prefill" takes the tokens of the prompt, two or more. "decode" takes one
token and what is kept of those before it. Both give the logits of the next token, and the keys and values of all tokens so
far, which the next call of "decode" takes.
"""

import argparse

import torch
from torch.nn import functional

LONGEST = 512  # tokens, prompt and answer together


class Gpt(torch.nn.Module):
    """Learned positions, LayerNorm before each half of a block, GELU."""

    def __init__(self, vocabulary: int = 331, width: int = 64, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Embedding(LONGEST, width)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.attend = torch.nn.ModuleList(torch.nn.Linear(width, 3 * width) for _ in range(layers))
        self.project = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.up = torch.nn.ModuleList(torch.nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = torch.nn.ModuleList(torch.nn.Linear(4 * width, width) for _ in range(layers))

    def embed(self, tokens, before):
        places = torch.arange(before, before + tokens.shape[0])
        return self.tokens(tokens) + self.positions(places), places

    def block(self, layer, x, places):
        """Queries, keys and values, each [heads, tokens, size]."""
        joined = self.attend[layer](self.norms[2 * layer](x))
        return (part.view(-1, self.heads, self.size).transpose(0, 1) for part in joined.chunk(3, dim=-1))

    def finish(self, layer, x, attended):
        x = x + self.project[layer](attended)
        hidden = functional.gelu(self.up[layer](self.norms[2 * layer + 1](x)))
        return x + self.down[layer](hidden)

    def logits(self, x):
        return self.norms[-1](x) @ self.tokens.weight.t()


class Llama(torch.nn.Module):
    """Rotary positions, RMSNorm, fewer heads of keys than of queries, SwiGLU."""

    def __init__(self, vocabulary: int = 331, width: int = 64, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, 2, width // heads
        self.kept = heads // self.shared  # heads of keys and values
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width, eps=1e-5) for _ in range(2 * layers + 1))
        plain = lambda a, b: torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False) for _ in range(layers))  # noqa: E731
        self.query, self.key, self.value = plain(width, width), plain(width, width // 2), plain(width, width // 2)
        self.project, self.gate = plain(width, width), plain(width, 3 * width)
        self.up, self.down = plain(width, 3 * width), plain(3 * width, width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, self.size, 2) / self.size))

    def embed(self, tokens, before):
        return self.tokens(tokens), torch.arange(before, before + tokens.shape[0])

    def rotate(self, x, places):
        angles = places[:, None] * self.rates
        cosine, sine = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)

    def block(self, layer, x, places):
        x = self.norms[2 * layer](x)
        split = lambda y, heads: y.view(-1, heads, self.size).transpose(0, 1)  # noqa: E731
        query = self.rotate(split(self.query[layer](x), self.heads), places)
        key = self.rotate(split(self.key[layer](x), self.kept), places)
        return query, key, split(self.value[layer](x), self.kept)

    def finish(self, layer, x, attended):
        x = x + self.project[layer](attended)
        y = self.norms[2 * layer + 1](x)
        return x + self.down[layer](functional.silu(self.gate[layer](y)) * self.up[layer](y))

    def logits(self, x):
        return self.head(self.norms[-1](x))


class Step(torch.nn.Module):
    """Tokens, and the keys and values [layers, heads, tokens, size] of those before them: the logits of the next, and the keys
    and values of all. Both models are this, with and without tokens before."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens, keys=None, values=None):
        model, before = self.model, 0 if keys is None else keys.shape[2]
        x, places = model.embed(tokens, before)
        all_keys, all_values = [], []
        for layer in range(len(model.project)):
            query, key, value = model.block(layer, x, places)
            if keys is not None:
                key, value = torch.cat((keys[layer], key), dim=1), torch.cat((values[layer], value), dim=1)
            all_keys.append(key)
            all_values.append(value)
            attended = attention(query, key, value, is_causal=keys is None)
            x = model.finish(layer, x, attended.transpose(0, 1).reshape(tokens.shape[0], -1))
        return model.logits(x[-1]), torch.stack(all_keys), torch.stack(all_values)


def attention(query, key, value, is_causal):
    """Each token of the prompt sees those before it; the one token that "decode" takes sees all."""
    heads, length, size = query.shape
    kept = key.shape[0]
    if is_causal:
        key, value = (part.repeat_interleave(heads // kept, dim=0) for part in (key, value))
        return functional.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)[0]
    query = query.reshape(kept, heads // kept, size)  # the queries that share a key, side by side
    weights = torch.softmax(query @ key.transpose(1, 2) / size**0.5, dim=-1)
    return (weights @ value).reshape(heads, length, size)


def make(kind: str, **sizes: int) -> Step:
    """With random weights, always the same, large enough that the next token depends on all before it."""
    torch.manual_seed(0)
    step = Step({"gpt": Gpt, "llama": Llama}[kind](**sizes)).eval().requires_grad_(False)
    for weight in step.parameters():
        if weight.dim() == 2:
            weight.normal_(std=0.2)
    return step


def compile_package(step: Step, path: str) -> None:
    """Lengths are free: a prompt of 2 tokens and more, and as many tokens before the next one."""
    length = torch.export.Dim("length", min=2, max=LONGEST - 1)
    prompt = torch.zeros(7, dtype=torch.int64)
    with torch.no_grad():
        _, keys, values = step(prompt)
        prefill = torch.export.export(step, (prompt,), dynamic_shapes={"tokens": {0: length}})
        decode = torch.export.export(
            step,
            (prompt[:1].clone(), keys, values),
            dynamic_shapes={"tokens": {}, "keys": {2: length}, "values": {2: length}},
        )
    options = {"aot_inductor.package": True}
    files = {
        name: torch._inductor.aot_compile(program.module(), program.example_inputs[0], options=options)
        for name, program in (("prefill", prefill), ("decode", decode))
    }
    from torch._inductor.package import package_aoti

    package_aoti(path, files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("gpt", "llama"))
    parser.add_argument("package")
    arguments = parser.parse_args()
    compile_package(make(arguments.kind), arguments.package)


if __name__ == "__main__":
    main()
