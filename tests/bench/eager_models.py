"""The programs of bench_models_eager.py: small models as users write them, each with the definition of a step. Every
program is made from one seed, so that two processes that run it have the same numbers.
"""
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional as F


class Perceptron(nn.Module):
    def __init__(self, features=128, hidden=256, classes=10):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.up, self.gate, self.down = nn.Linear(features, hidden), nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.norm(x)
        return F.log_softmax(self.down(F.gelu(self.up(x)) * torch.sigmoid(self.gate(x))), -1)


class Encoder(nn.Module):
    def __init__(self, width=96, layers=2, classes=8):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                                           norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return F.log_softmax(self.head(self.layers(x).mean(1)), -1)


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.second, self.norm2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride != 1 or inside != outside else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        return F.log_softmax(self.head(self.blocks(x).mean((2, 3))), -1)


class Recurrent(nn.Module):
    """An LSTM whose cell is written out, as in its variants."""

    def __init__(self, features=32, hidden=64, classes=8):
        super().__init__()
        self.hidden = hidden
        self.inside, self.again = nn.Linear(features, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.hidden)
        for part in self.inside(x).unbind(1):
            i, f, g, o = (part + self.again(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return F.log_softmax(self.head(h), -1)


class Root(nn.Module):
    """RMSNorm and other parts of newer relatives of GPT are written out in many models."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Root(width), Root(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.gate, self.down = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gpt(nn.Module):
    def __init__(self, words=256, width=96, layers=2, heads=4, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = Root(width), nn.Linear(width, words, bias=False)
        self.register_buffer("mask", torch.ones(length, length).triu(1).bool())

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.words(tokens) + self.places[:length]
        for layer in self.layers:
            x = layer(x, self.mask[:length, :length])
        return self.head(self.norm(x))


@dataclass
class Program:
    """step() does one step, and returns the tensors to compare."""

    step: Callable[[], list]
    tolerance: float


def infer(model, *inputs, tolerance=1e-4):
    model.eval()

    def step():
        with torch.no_grad():
            return [model(*inputs)]

    return Program(step, tolerance)


def train(model, make_optimizer, loss_of, *inputs, tolerance=1e-3):
    optimizer = make_optimizer(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = loss_of(model(*inputs))
        loss.backward()
        optimizer.step()
        return [loss.detach(), *(one.detach() for one in model.parameters())]

    return Program(step, tolerance)


def sample(model, prompt, tolerance=1e-3):
    """
    Draws 16 tokens, one after the other, with a temperature, from the 20 best; with the same random numbers every time.
    """
    model.eval()
    draws = torch.rand(16, prompt.shape[0], 1)

    def step():
        tokens, seen = prompt, []
        with torch.no_grad():
            for draw in draws:
                logits = model(tokens)[:, -1] / 0.8
                best = torch.topk(logits, 20).values[:, -1:]
                shares = torch.softmax(logits.masked_fill(logits < best, float("-inf")), -1)
                token = (shares.cumsum(-1) < draw).sum(-1, keepdim=True).clamp(max=255)
                seen.append(shares)
                tokens = torch.cat([tokens[:, 1:], token], 1)
        return seen[:1]

    return Program(step, tolerance)


def cross_entropy(target):
    return lambda found: F.nll_loss(found, target)


def words_loss(target):
    return lambda found: F.cross_entropy(found.float().flatten(0, 1), target.flatten())


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def images(count):
    return torch.randn(count, 3, 32, 32).to(memory_format=torch.channels_last)


def make(name: str) -> Any:
    torch.manual_seed(1)
    tokens = torch.randint(0, 256, (4, 32))
    last = torch.channels_last
    return {
        "perceptron, inference": lambda: infer(Perceptron(), torch.randn(16, 128)),
        "perceptron, training, SGD": lambda: train(
            Perceptron(), sgd, cross_entropy(torch.arange(16) % 10), torch.randn(16, 128)),
        "encoder, inference": lambda: infer(Encoder(), torch.randn(4, 32, 96)),
        "encoder, training, AdamW": lambda: train(Encoder(), adamw, cross_entropy(torch.arange(4)), torch.randn(4, 32, 96)),
        "ResNet, inference, channels_last": lambda: infer(ResNet().to(memory_format=last), images(4)),
        "ResNet, training, SGD, channels_last": lambda: train(
            ResNet().to(memory_format=last), sgd, cross_entropy(torch.arange(4)), images(4)),
        "LSTM, inference": lambda: infer(Recurrent(), torch.randn(8, 16, 32)),
        "LSTM, training, AdamW": lambda: train(Recurrent(), adamw, cross_entropy(torch.arange(8)), torch.randn(8, 16, 32)),
        "GPT, sampling": lambda: sample(Gpt(), tokens),
        "GPT, training, AdamW, bfloat16": lambda: train(
            Gpt().bfloat16(), adamw, words_loss(tokens.roll(-1, 1)), tokens, tolerance=5e-2),
    }[name]()


NAMES = ("perceptron, inference", "perceptron, training, SGD", "encoder, inference", "encoder, training, AdamW",
         "ResNet, inference, channels_last", "ResNet, training, SGD, channels_last", "LSTM, inference",
         "LSTM, training, AdamW", "GPT, sampling", "GPT, training, AdamW, bfloat16")
