"""One battery of calls in three hosts, on libraries that PyTorch made and on their twins in C.

The hosts: a C program without PyTorch (loader and shim), this process (the loader with libtorch beside it), and
PyTorch's own runner. tests/helpers/host_battery.c plays the battery in the first two and writes down every status, kind
of message and result; both hosts, and both makers, must write the same. PyTorch's runner offers fewer calls to Python;
what it offers is played here, on both makers' libraries, and compared.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import host_models

PROGRAM = os.path.join(host_models.BUILD, "tests", "helpers", "host_battery")
failures = 0


def report(name, wrong):
    global failures
    print("not ok" if wrong else "ok", "-", name)
    failures += bool(wrong)
    for line in wrong[:12]:
        print(f"  {line}")


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
    return wrong + ([f"{len(one)} and {len(other)} lines"] if len(one) != len(other) else [])


def play_batteries(paths, folder):
    """Every library in both hosts; what the lines are, by (maker, name)."""
    battery = ctypes.CDLL(os.path.join(host_models.BUILD, "tests", "helpers", "libhost_battery.so"))
    lines = {}
    cases = [("pytorch", name, path) for name, path in paths.items()]
    cases += [("c", name, host_models.c_library(name)) for name in host_models.INPUT_SIZES]
    for maker, name, path in cases:
        sizes = host_models.INPUT_SIZES[name]
        alone, one = play_alone(path, sizes, os.path.join(folder, "alone"))
        beside, other = play_with_torch(battery, path, sizes, os.path.join(folder, "beside"))
        report(f"{maker}'s {name}: alone and beside libtorch", differences((alone, beside), one, other))
        lines[maker, name] = one
    return lines


def compare_makers(lines, names):
    """All alike but for one thing that is so on purpose: an update with a name that no constant has is ignored by
    PyTorch's library and refused, with nothing changed, by the one in C."""
    for name in names:
        one, other = lines["pytorch", name], lines["c", name]
        refused = [line for line in other if line.startswith("update an unknown one")]
        report(f"{name}: constants that no kernel has are refused by the one in C",
               [line for line in refused if "status 1, message some" not in line] if refused else ["never tried"])
        one, other = ([line for line in both if "unknown one" not in line] for both in (one, other))
        report(f"{name}: PyTorch's library and the one in C", differences((), one, other))


# ---- PyTorch's own runner ----

def attempt(call, *arguments):
    """Whether it is accepted, and its result."""
    try:
        return True, call(*arguments)
    except RuntimeError:
        return False, None


def plain(value):
    """Tensors as sizes, strides and values."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return (tuple(value.shape), value.stride(), value.tolist()) if hasattr(value, "stride") else value


class Play:
    """What a runner answered, step by step."""

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
        """By the library's names, without what tracing made."""
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


def compare_runners(torch, paths):
    for name, sizes in host_models.INPUT_SIZES.items():
        steps = Play(torch, host_models.c_library(name), sizes).all()
        if name in paths:
            wanted = Play(torch, paths[name], sizes).all()
            report(f"{name}: PyTorch's runner with both libraries",
                   differences((), [repr(step) for step in wanted], [repr(step) for step in steps]))
        elif name == "failing":
            report("failing: PyTorch's runner raises", ["it ran"] if steps[5][1][0] else [])
        else:
            report(f"{name}: PyTorch's runner runs it", [] if steps[5][1][0] else [repr(steps[5])])


def compare_with_battery(torch, lines, paths):
    """The runner's first results are the battery's."""
    for name, path in paths.items():
        steps = Play(torch, path, host_models.INPUT_SIZES[name])
        steps.run()
        outputs = steps.steps[0][1][1]
        first = lines["pytorch", name].index("run: status 0, message none")
        wrong = []
        for i, (_, _, values) in enumerate(outputs):
            shown = [float(word) for word in lines["pytorch", name][first + 1 + i].split() if "/" not in word and
                     word != "output"][1:]
            if shown != torch.tensor(values).flatten().tolist():
                wrong.append(f"output {i}: {shown} and {values}")
        report(f"{name}: PyTorch's runner and the battery", wrong)


def main():
    try:
        import torch
    except ImportError:
        print("skip - hosts: this Python has no PyTorch")
        return 77
    paths = host_models.torch_libraries(torch)
    with tempfile.TemporaryDirectory() as folder:
        lines = play_batteries(paths, folder)
    compare_makers(lines, paths)
    compare_runners(torch, paths)
    compare_with_battery(torch, lines, paths)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
