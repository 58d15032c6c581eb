"""Makes recorded calls (holder_calls.py) on kernel holders in one process, with or without PyTorch.

    holder_player.py torch|alone CALLS RESULTS DIRECTORY MISS WORKERS

CALLS is a JSON file: {"calls": [...], "refused": [schemas]}. As each call ends, RESULTS gets one line of JSON:
[number, "ok", tensors] or [number, "refused", why]. Then follows one [schema, "refused" or "made", why] for each
schema of the second list, and last ["counts", the sums of all holders' counts].
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import holder_host


def play(host, tensors, call):
    try:
        results = host.holder(call["schema"])(tensors, call["arguments"])
    except holder_host.Refused as error:
        return ["refused", str(error)]
    described = [tensors.describe(one) for one in results]
    for one in results:
        tensors.free(one)
    return ["ok", described]


def make(host, schema):
    try:
        host.holder(schema)
    except holder_host.Refused as error:
        return ["refused", str(error)]
    return ["made", ""]


def main(kind, calls, results, directory, miss, workers):
    with open(calls) as file:
        task = json.load(file)
    host = holder_host.Host(directory, miss=miss, workers=int(workers))
    if kind == "torch":
        import tensor_file
        import torch
        torch.set_grad_enabled(False)
        tensors = holder_host.Tensors(host, torch, tensor_file)
    else:
        tensors = holder_host.Tensors(host)
    with open(results, "w") as file, ThreadPoolExecutor(int(workers)) as pool:
        def run(place):
            file.write(json.dumps([place, *play(host, tensors, task["calls"][place])]) + "\n")
            file.flush()

        list(pool.map(run, range(len(task["calls"]))))
        for schema in task["refused"]:
            file.write(json.dumps([schema, *make(host, schema)]) + "\n")
        counts = [holder.counts() for holder in host.holders.values()]
        sums = {name: sum(one[name] for one in counts) for name in (counts[0] if counts else ())}
        file.write(json.dumps(["counts", sums]) + "\n")
    host.close()
    if kind == "alone":
        with open("/proc/self/maps") as maps:
            assert "libtorch" not in maps.read(), "PyTorch is in this process"


if __name__ == "__main__":
    main(*sys.argv[1:])
