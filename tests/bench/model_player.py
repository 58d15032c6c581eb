"""One of the three runtimes that model_times.py measures, in a separate process: our runtime, PyTorch's loader, or ONNX
Runtime.

    model_player.py ours|torch|onnxruntime DIRECTORY THREADS OUTPUTS PACKAGE...

Loads the files PACKAGE... of DIRECTORY, each with a first run on the inputs input*.npy, and writes the outputs to OUTPUTS
(empty: nowhere). Prints one line of JSON: the time of the first output (seconds of the monotonic clock), the time of
the imports, the peak of resident memory until then. Then it responds to each line "PACKAGE SECONDS" of its input with
the times of some runs.
"""
import glob
import json
import os
import sys
import time

LEAST_RUNS = 3


def open_ours(threads):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "eager", "torch"))
    import aoticache.runtime
    assert "torch" not in sys.modules

    def load(path):
        model = aoticache.runtime.load(path, cache_dir=os.path.join(os.path.dirname(path), "cache"))
        return lambda inputs: model(*inputs)
    return load, lambda array: array


def open_torch(threads):
    import torch
    import torch._inductor.package

    def load(path):
        model = torch._inductor.aoti_load_package(path)
        return lambda inputs: model(*inputs)
    return load, torch.from_numpy


def open_onnxruntime(threads):
    import onnxruntime

    def load(path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        return lambda inputs: session.run(None, dict(zip(names, inputs)))
    return load, lambda array: array


OPEN = {"ours": open_ours, "torch": open_torch, "onnxruntime": open_onnxruntime}


def resident_peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def main():
    kind, directory, threads, outputs, *packages = sys.argv[1:]
    begun = time.monotonic()
    import numpy
    load, convert = OPEN[kind](int(threads))
    imported = time.monotonic() - begun
    inputs = [convert(numpy.load(os.path.join(directory, "input%d.npy" % i)))
              for i in range(len(glob.glob(os.path.join(directory, "input*.npy"))))]
    first, runs = None, {}
    for package in packages:
        runs[package] = load(os.path.join(directory, package))
        results = runs[package](inputs)
        results = [numpy.asarray(one) for one in (results if isinstance(results, (list, tuple)) else [results])]
        first = first or {"at": time.monotonic(), "import": imported, "memory": resident_peak()}
        for i, one in enumerate(results if outputs else []):
            numpy.save(os.path.join(outputs, "%s-%s-%d.npy" % (kind, package, i)), one)
        del results
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        package, seconds = line.split()
        run, times, end = runs[package], [], time.perf_counter() + float(seconds)
        run(inputs)  # others ran in between: its memory is no longer in the processor's caches
        while len(times) < LEAST_RUNS or time.perf_counter() < end:
            begun = time.perf_counter()
            run(inputs)
            times.append(time.perf_counter() - begun)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
