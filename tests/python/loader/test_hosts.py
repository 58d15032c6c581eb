"""Makes one series of calls in three hosts, on libraries that PyTorch made and on their counterparts in C.

The hosts: a C program without PyTorch (loader and shim), this process (the loader together with libtorch), and PyTorch's
own runner. tests/helpers/host_battery.c makes the calls in the first two and writes every status, kind of message and
result; both hosts, and both makers, must write the same. PyTorch's runner offers fewer calls to Python; those are made
here on both makers' libraries, and compared.
"""
import ctypes
import functools
import os
import subprocess

import pytest
import torch

import host_models

pytestmark = pytest.mark.quick
MODELS = list(host_models.make_models(torch))
PROGRAM = os.path.join(host_models.BUILD, "tests", "helpers", "host_battery")
def play_alone(library, sizes, output):
    result = subprocess.run([PROGRAM, library, output, *map(str, sizes)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, timeout=600)
    return result.returncode, read_lines(output)


def play_with_torch(battery, library, sizes, output):
    sizes = (ctypes.c_int64 * len(sizes))(*sizes)
    code = battery.host_battery(os.fsencode(library), os.fsencode(output), ctypes.c_int64(len(sizes)), sizes)
    return code, read_lines(output)


def read_lines(path):
    with open(path) as text:
        return text.read().splitlines()


def differences(codes, one, other):
    wrong = [f"exit {code}" for code in codes if code != 0]
    wrong += [f"line {i + 1}: {a!r} and {b!r}" for i, (a, b) in enumerate(zip(one, other)) if a != b]
    wrong = wrong[:12]
    return wrong + ([f"{len(one)} and {len(other)} lines"] if len(one) != len(other) else [])


@pytest.fixture(scope="module")
def paths():
    return host_models.torch_libraries(torch)


@pytest.fixture(scope="module")
def played(paths, tmp_path_factory):
    """Runs a maker's library of this name in both hosts, once. Returns the two exit statuses and what each host
    wrote."""
    battery = ctypes.CDLL(os.path.join(host_models.BUILD, "tests", "helpers", "libhost_battery.so"))

    @functools.cache
    def play(maker, name):
        directory = str(tmp_path_factory.mktemp("battery"))
        path, sizes = paths[name] if maker == "pytorch" else host_models.c_library(name), host_models.INPUT_SIZES[name]
        alone, one = play_alone(path, sizes, os.path.join(directory, "alone"))
        beside, other = play_with_torch(battery, path, sizes, os.path.join(directory, "beside"))
        return (alone, beside), one, other

    return play


@pytest.mark.parametrize("maker, name", [*(("pytorch", name) for name in MODELS), *(("c", name) for name in host_models.INPUT_SIZES)])
def test_alone_and_next_to_libtorch(played, maker, name):
    assert not differences(*played(maker, name))


@pytest.mark.parametrize("name", MODELS)
def test_makers(played, name):
    """All are the same except one intended difference: PyTorch's library ignores an update with a name that no constant
    has; the one in C refuses it, and changes nothing."""
    one, other = played("pytorch", name)[1], played("c", name)[1]
    refused = [line for line in other if line.startswith("update an unknown one")]
    assert refused and all("status 1, message some" in line for line in refused), refused
    one, other = ([line for line in both if "unknown one" not in line] for both in (one, other))
    assert not differences((), one, other)


# ---- PyTorch's own runner ----

def attempt(call, *arguments):
    """Returns whether the call is accepted, and its result."""
    try:
        return True, call(*arguments)
    except RuntimeError:
        return False, None


def plain(value):
    """Returns tensors as sizes, strides and values."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return (tuple(value.shape), value.stride(), value.tolist()) if hasattr(value, "stride") else value


class Play:
    """Records a runner's answers, step by step."""

    def __init__(self, torch, library, sizes):
        self.torch = torch
        self.runner = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 2)
        self.input = (torch.arange(1. * sizes[0] * sizes[1]) * 5 % 17 - 8).reshape(sizes)
        self.steps = []

    def do(self, method, *arguments):
        self.steps.append((method, plain(attempt(getattr(self.runner, method), *arguments))))

    def run(self):
        self.do("run", [self.input])

    def new_constants(self, factor, term):
        """Returns new constants by the library's names, without those that tracing made."""
        names = self.runner.get_constant_names_to_original_fqns()
        old = self.runner.extract_constants_map(False)
        return {name: old[fqn] * factor + term for name, fqn in names.items() if fqn in old and "_constant" not in fqn}

    def ask(self):
        for query in ("get_call_spec", "get_constant_names_to_original_fqns", "get_constant_names_to_dtypes"):
            self.do(query)
        self.do("extract_constants_map", False)
        self.do("extract_constants_map", True)

    def update_active(self):
        new = self.new_constants(1, 1)
        one = dict(list(sorted(new.items()))[:1])
        for constants, validate in ((one, False), (one, True), (new, True)):
            self.do("update_constant_buffer", constants, False, validate)
            self.run()
        self.do("extract_constants_map", False)

    def update_inactive(self):
        self.do("update_constant_buffer", self.new_constants(2, -1), True, True)
        self.do("extract_constants_map", True)
        self.run()
        self.do("swap_constant_buffer")
        self.run()
        self.do("swap_constant_buffer")
        self.run()
        self.do("free_inactive_constant_buffer")
        self.run()

    def update_user_managed(self):
        self.kept = self.new_constants(1, 2)
        self.do("update_constant_buffer", self.kept, False, True, True)
        for tensor in self.kept.values():
            tensor.view(-1)[3] = 100
        self.run()

    def all(self):
        self.ask()
        self.run()
        for count in (0, 2):
            self.do("run", [self.input] * count)
        if self.runner.get_constant_names_to_dtypes():
            self.update_active()
            self.update_inactive()
            self.update_user_managed()
        return self.steps


@pytest.mark.parametrize("name", host_models.INPUT_SIZES)
def test_pytorchs_runner(paths, name):
    steps = Play(torch, host_models.c_library(name), host_models.INPUT_SIZES[name]).all()
    if name in paths:
        wanted = Play(torch, paths[name], host_models.INPUT_SIZES[name]).all()
        assert not differences((), [repr(step) for step in wanted], [repr(step) for step in steps])
    else:
        ran = steps[5][1][0]
        assert ran == (name != "failing"), steps[5]


@pytest.mark.parametrize("name", MODELS)
def test_pytorchs_runner_and_the_battery(paths, played, name):
    """The runner's first results are those of the series of calls."""
    steps, lines = Play(torch, paths[name], host_models.INPUT_SIZES[name]), played("pytorch", name)[1]
    steps.run()
    first = lines.index("run: status 0, message none")
    for i, (_, _, values) in enumerate(steps.steps[0][1][1]):
        shown = [float(word) for word in lines[first + 1 + i].split() if "/" not in word and word != "output"][1:]
        assert shown == torch.tensor(values).flatten().tolist(), f"output {i}"
