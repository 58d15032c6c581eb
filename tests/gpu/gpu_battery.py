"""What runs on a GPU, in a process with PyTorch for CUDA: kernel libraries in CUDA C++, and PyTorch's own.

    gpu_battery.py [--device cuda:0] [--kernels DIRECTORY] [--work DIRECTORY]

DIRECTORY has what run_gpu_tests.sh compiled of tests/gpu/kernels/add.cu: own.so for this GPU alone, ptx.so with nothing but
PTX of its architecture, several.so for it and others, other.so for one on which this GPU runs nothing. Results are
compared with PyTorch's: its own runner for its own libraries. With --device cpu the parts that need no GPU are played, to
try this file itself. Prints "ok - NAME", "not ok - NAME", "skip - NAME: REASON".
"""
import argparse
import os
import shutil
import sys
import tempfile
import threading
import traceback
import zipfile

import torch

from gpu_host import Loader, Refused, Runner

tests = []


def test(needs_gpu):
    def add(function):
        tests.append((function, needs_gpu))
        return function
    return add


class Context:
    def __init__(self, device, kernels, work):
        self.device, self.kernels, self.work, self.loader = device, kernels, work, Loader(torch)
        self.models = None

    def kernel(self, name, **options):
        return Runner(self.loader, os.path.join(self.kernels, name), self.device, **options)

    def random(self, *sizes, dtype=torch.float32):
        generator = torch.Generator().manual_seed(sum(sizes) + 1)
        return torch.randn(*sizes, generator=generator).to(self.device, dtype)


def equal(ours, theirs):
    """To the last bit."""
    assert len(ours) == len(theirs), f"{len(ours)} outputs, not {len(theirs)}"
    for i, (one, other) in enumerate(zip(ours, theirs)):
        looks = [(each.dtype, each.shape, each.stride(), each.device) for each in (one, other)]
        assert looks[0] == looks[1], f"output {i}: {looks[0]}, not {looks[1]}"
        assert torch.equal(one, other), f"output {i} differs by {(one.double() - other.double()).abs().max()}"


def refused(words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Refused as error:
        for word in words:
            assert word in str(error), f"the message is: {error}"
        return
    raise AssertionError("it is not refused")


# ---- the machine ----

@test(True)
def the_driver_is_read_as_pytorch_reads_it(context):
    cuda, devices = context.loader.cuda()
    assert cuda.device_count == torch.cuda.device_count()
    needed = [int(part) for part in torch.version.cuda.split(".")]
    assert cuda.driver_version // 1000 >= needed[0], f"{cuda.driver_version} and {torch.version.cuda}"
    for i, device in enumerate(devices):
        theirs = torch.cuda.get_device_properties(i)
        assert device.name.decode() == theirs.name
        assert (device.major, device.minor) == torch.cuda.get_device_capability(i)
        assert device.arch.decode() == f"sm_{device.major}{device.minor}"
        assert device.memory_bytes == theirs.total_memory, f"{device.memory_bytes} and {theirs.total_memory}"


# ---- kernel libraries in CUDA C++ ----

def plays_add(context, name):
    runner = context.kernel(name)
    for count in (1, 255, 256, 257, 1000003):
        a, b = context.random(count), context.random(count) + 1
        equal(runner.run([a, b]), [a + b + 0.5])
    empty = torch.empty(0, device=context.device)
    assert runner.run([empty, empty])[0].shape == (0,)
    runner.close()


@test(True)
def a_kernel_library_runs(context):
    plays_add(context, "own.so")


@test(True)
def one_with_ptx_alone_runs(context):
    plays_add(context, "ptx.so")


@test(True)
def one_for_several_architectures_runs(context):
    plays_add(context, "several.so")


@test(True)
def one_for_another_architecture_is_refused(context):
    _, devices = context.loader.cuda()
    refused([f"({devices[0].name.decode()}, {devices[0].arch.decode()}): it has device code for sm_",
             f"compile it for {devices[0].arch.decode()}"], context.kernel, "other.so")


@test(True)
def a_device_that_is_not_there_is_refused(context):
    refused(["there is no CUDA device 99"], Runner, context.loader, os.path.join(context.kernels, "own.so"), "cuda:99")


@test(True)
def a_kernel_says_what_is_wrong_with_its_inputs(context):
    runner = context.kernel("own.so")
    a = context.random(8)
    refused(["not two float32 vectors of the same size"], runner.run, [a, a.double()])
    refused(["not two float32 vectors of the same size"], runner.run, [a, context.random(9)])
    equal(runner.run([a, a]), [a + a + 0.5])
    runner.close()


@test(True)
def constants_in_device_memory_change(context):
    runner = context.kernel("own.so", num_models=2)
    a = context.random(1000)
    runner.update({"offset": torch.tensor([2.0], device=context.device)})
    equal(runner.run([a, a]), [a + a + 2])
    runner.update({"offset": torch.tensor([3.0])}, from_cpu=True)
    equal(runner.run([a, a]), [a + a + 3])
    runner.update({"offset": torch.tensor([4.0], device=context.device)}, inactive=True)
    equal(runner.run([a, a]), [a + a + 3])
    runner.swap()
    equal(runner.run([a, a]), [a + a + 4])
    mine = torch.tensor([5.0], device=context.device)
    runner.update({"offset": mine}, user_managed=True)
    equal(runner.run([a, a]), [a + a + 5])
    mine += 1
    equal(runner.run([a, a]), [a + a + 6])
    runner.close()


# ---- streams ----

def on_stream(context, stream, run):
    """Runs after half a second of waiting on the stream and after the input is made there. On any other stream the run
    would see the old input."""
    a = torch.zeros(1 << 20, device=context.device)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
        a.add_(1)
    output = run(a)
    pending = not stream.query()
    torch.cuda.synchronize()
    assert pending, "the run waited for the stream"
    equal(output, [torch.full_like(a, 2.5)])


@test(True)
def a_run_goes_to_the_stream_it_names(context):
    runner, stream = context.kernel("own.so", num_models=2), torch.cuda.Stream()
    warm = torch.zeros(4, device=context.device)
    runner.run([warm, warm])
    on_stream(context, stream, lambda a: runner.run([a, a], stream.cuda_stream))
    torch.cuda.synchronize()
    runner.close()


@test(True)
def a_run_without_one_goes_to_the_current_stream(context):
    runner, stream = context.kernel("own.so", num_models=2), torch.cuda.Stream()
    warm = torch.zeros(4, device=context.device)
    runner.run([warm, warm])

    def run(a):
        with torch.cuda.stream(stream):
            return runner.run([a, a])
    on_stream(context, stream, run)
    runner.close()


@test(True)
def many_threads_each_with_a_stream(context):
    runner, wrong = context.kernel("own.so", num_models=4), []

    def play(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            a = torch.full((100003,), float(number), device=context.device)
            for _ in range(200):
                if not torch.equal(runner.run([a, a])[0], a + a + 0.5):
                    wrong.append(number)
    threads = [threading.Thread(target=play, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.close()
    assert not wrong, f"{len(wrong)} wrong results"


@test(True)
def loading_and_unloading_takes_no_device_memory(context):
    def play(count):
        a = context.random(1000)
        for _ in range(count):
            runner = context.kernel("own.so")
            runner.run([a, a])
            torch.cuda.synchronize()
            runner.close()
        return torch.cuda.mem_get_info()[0]
    taken = []
    for _ in range(3):  # what is free is the device's, and others may use it too
        before = play(5)
        taken.append(before - play(100))
        if taken[-1] < 8 << 20:
            return
    raise AssertionError(f"{taken} bytes less are free")


# ---- PyTorch's libraries ----

class Pointwise(torch.nn.Module):
    def forward(self, x, y):
        return torch.sin(x) * y + x, (x * y).sum(-1)


class Weights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 96)
        self.register_buffer("scale", torch.arange(96.0) / 7)

    def forward(self, x):
        return torch.relu(self.fc(x)) * self.scale


class Halves(torch.nn.Module):
    def forward(self, x, y):
        return x * 2 + y.to(x.dtype), y - 1, x > 0


MODELS = {
    "pointwise": (Pointwise, lambda c: [c.random(33, 130), c.random(33, 130)], False),
    "weights": (Weights, lambda c: [c.random(17, 64)], False),
    "dynamic": (Weights, lambda c: [c.random(17, 64)], True),
    "halves": (Halves, lambda c: [c.random(1000, dtype=torch.float16), c.random(1000, dtype=torch.bfloat16)], False),
}


class Compiled:
    """A library by AOTInductor, with its cubins next to it in a separate directory, as in a .pt2 package."""

    def __init__(self, context, name):
        module, inputs, dynamic = MODELS[name]
        torch.manual_seed(1)
        self.inputs = inputs(context)
        shapes = ({0: torch.export.Dim("rows", min=2, max=512)},) if dynamic else None
        exported = torch.export.export(module().eval().to(context.device), tuple(self.inputs), dynamic_shapes=shapes)
        package = os.path.join(context.work, name + ".pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=package)
        directory = os.path.join(context.work, name)
        with zipfile.ZipFile(package) as archive:
            archive.extractall(directory)
        files = [os.path.join(path, file) for path, _, names in os.walk(directory) for file in names]
        found = [file for file in files if file.endswith(".so")]
        assert len(found) == 1, found
        self.path, self.directory = found[0], os.path.dirname(found[0])
        if context.device == "cpu":
            self.theirs = torch._C._aoti.AOTIModelContainerRunnerCpu(self.path, 1)
        else:
            self.theirs = torch._C._aoti.AOTIModelContainerRunnerCuda(self.path, 1, context.device, self.directory)


def compiled(context):
    if context.models is None:
        context.models = {name: Compiled(context, name) for name in MODELS}
    return context.models


def our_runner(context, model, **options):
    return Runner(context.loader, model.path, context.device, directory=model.directory, **options)


@test(False)
def pytorchs_libraries_give_what_its_own_runner_gives(context):
    for name, model in compiled(context).items():
        runner = our_runner(context, model)
        for _ in range(3):
            equal(runner.run(model.inputs), model.theirs.run(model.inputs))
        runner.close()


@test(False)
def sizes_that_are_free_change(context):
    model = compiled(context)["dynamic"]
    runner = our_runner(context, model)
    for rows in (2, 3, 64, 511):
        x = context.random(rows, 64)
        equal(runner.run([x]), model.theirs.run([x]))
    runner.close()


@test(False)
def their_constants_change_alike(context):
    model = compiled(context)["weights"]
    runner, fqns = our_runner(context, model), model.theirs.get_constant_names_to_original_fqns()
    names = {fqn: name for name, fqn in fqns.items()}
    held = model.theirs.extract_constants_map(False)
    new = {names[fqn]: (tensor * 2 + 1).contiguous() for fqn, tensor in held.items()}
    for inactive in (False, True):
        runner.update(new, inactive=inactive)
        model.theirs.update_constant_buffer(new, inactive, True)
        if inactive:
            runner.swap()
            model.theirs.swap_constant_buffer()
        equal(runner.run(model.inputs), model.theirs.run(model.inputs))
        new = {name: tensor - 3 for name, tensor in new.items()}
    runner.close()


@test(True)
def cubins_for_another_architecture_are_refused_before_anything_is_created(context):
    model = compiled(context)["pointwise"]
    cubins = [file for file in os.listdir(model.directory) if file.endswith((".cubin", ".fatbin"))]
    assert cubins, "PyTorch put no .cubin beside the library"
    directory = os.path.join(context.work, "wrong")
    shutil.copytree(model.directory, directory)
    path = os.path.join(directory, cubins[0])
    with open(path, "r+b") as file:
        header = bytearray(file.read(64))
        header[49 if header[8] >= 8 else 48] = 61  # the architecture in the flags
        file.seek(0)
        file.write(header)
    refused([f"its file {cubins[0]} has device code for sm_61"], Runner, context.loader, model.path, context.device,
            directory=directory)


@test(True)
def their_runs_go_to_the_current_stream(context):
    model, stream = compiled(context)["pointwise"], torch.cuda.Stream()
    runner = our_runner(context, model)
    expected = model.theirs.run(model.inputs)
    runner.run(model.inputs)
    x, y = [torch.zeros_like(one) for one in model.inputs]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(500_000_000)
        x.copy_(model.inputs[0])
        y.copy_(model.inputs[1])
        outputs = runner.run([x, y])
    torch.cuda.synchronize()
    equal(outputs, expected)
    runner.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--work")
    options = parser.parse_args()
    gpu = options.device != "cpu"
    if gpu and not torch.cuda.is_available():
        print("skip - the battery: no CUDA device, or a PyTorch without CUDA")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(dir=options.work) as work, torch.no_grad():
        context = Context(options.device, options.kernels, work)
        for function, needs_gpu in tests:
            name = function.__name__.replace("_", " ")
            if needs_gpu and not gpu:
                print(f"skip - {name}: played on the CPU", flush=True)
                continue
            try:
                function(context)
                print(f"ok - {name}", flush=True)
            except Exception:
                failed += 1
                print(f"not ok - {name}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
