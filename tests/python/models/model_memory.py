"""Runs a process without PyTorch that holds a stored model: it loads and runs the model, and waits. For each line of standard
input it prints its share of the memory of the model's weights. usage: model_memory.py CACHE NAME FEATURES"""
import ctypes
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
from package_host import Host


def weights_kb():
    """Returns the proportional set size of the mapped weight files: a page that eight processes share counts as one eighth in
    each."""
    total, is_weights = 0, False
    with open("/proc/self/smaps") as maps:
        for line in maps:
            if line.split(None, 1)[0][-1:] != ":":
                is_weights = "/objects/" in line or "weights-" in line
            elif is_weights and line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def main():
    directory, name, features = sys.argv[1], sys.argv[2], int(sys.argv[3])
    host, runner = Host(directory), ctypes.c_void_p()
    host.call("aoticache_model_open", host.cache, name.encode(), None, ctypes.byref(runner), None)
    data = (ctypes.c_float * features)(*([1.0] * features))
    output = host.run(runner, ctypes.addressof(data), [1, features])
    print(sum(output[0]), flush=True)
    for _ in sys.stdin:
        print(weights_kb(), flush=True)


if __name__ == "__main__":
    main()
