"""Checks whether two exports of a model have one key: for real models, in two processes, and in two versions of PyTorch.

A process exports each model, small and with random weights, and digests the text of its graph (graph.txt,
docs/models-cache.md); a second process does the same with other weights. Prints a table and the differences. Models of
transformers and torchvision are included if these are installed (pip install --target=DIR, PYTHONPATH=DIR). This is not a test:
it takes minutes. tests/python/models/test_model_keys.py tests the rules one by one.

usage: key_table.py [--other DIR] [MODEL...]     (--other: a directory with another PyTorch, which is put first in PYTHONPATH)
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def export_all(directory, names, seed):
    """Writes the text of each model's graph into the directory; prints one JSON object per model."""
    import torch
    sys.path[:0] = [os.path.join(TOP, "eager", "torch"), HERE]
    import real_models
    from aoticache._models import graphs

    for name in names or real_models.MODELS:
        torch.manual_seed(seed)
        told = {"name": name, "torch": torch.__version__}
        try:
            module, inputs = real_models.MODELS[name](torch)
            with torch.no_grad():
                program = torch.export.export(module.eval(), inputs, strict=False)
            text = graphs.describe(program)
            with open(os.path.join(directory, name), "w") as file:
                file.write(text)
            told.update(digest=graphs.digest(text), lines=text.count("\n"))
        except Exception as error:  # noqa: BLE001 - the table reports it
            told["error"] = f"{type(error).__name__}: {error}".split("\n")[0][:100]
        print(json.dumps(told), flush=True)


def run(directory, names, seed, other=None):
    os.makedirs(directory, exist_ok=True)
    path = os.pathsep.join(filter(None, [other, os.environ.get("PYTHONPATH")]))
    words = [sys.executable, "-W", "ignore", __file__, "--export", directory, "--seed", str(seed), *names]
    said = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True)
    return {told["name"]: told for told in map(json.loads, (line for line in said.stdout.splitlines() if line.startswith("{")))}


def difference(first, second, name):
    sys.path[:0] = [os.path.join(TOP, "eager", "torch")]
    from aoticache._models import graphs

    with open(os.path.join(first, name)) as a, open(os.path.join(second, name)) as b:
        return graphs.difference(a.read(), b.read())


def verdict(ours, theirs, directories, name):
    problem = ours.get("error") or theirs.get("error")
    if problem:
        return problem, ""
    same = ours["digest"] == theirs["digest"]
    return ("same" if same else "differs"), ("" if same else difference(*directories, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other")
    parser.add_argument("--export", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="MODEL")
    words = parser.parse_args()
    if words.export:
        return export_all(words.export, words.names, words.seed)
    with tempfile.TemporaryDirectory(prefix="aoticache-keys-") as base:
        directories = [os.path.join(base, one) for one in ("first", "second", "other")]
        first = run(directories[0], words.names, 1)
        runs = [("another process", run(directories[1], words.names, 2), directories[:2])]
        if words.other:
            other = run(directories[2], words.names, 1, words.other)
            version = next(iter(other.values()))["torch"] if other else "?"
            runs.append((f"PyTorch {version}", other, directories[::2]))
        print("| model | lines of graph.txt |", " | ".join(what for what, _, _ in runs), "|")
        print("| --- | --- |", " | ".join("---" for _ in runs), "|")
        counts, notes = [0] * len(runs), []
        for name, told in first.items():
            cells = []
            for i, (what, found, pair) in enumerate(runs):
                word, why = verdict(told, found.get(name, {"error": "not exported"}), pair, name)
                counts[i] += word == "same"
                cells.append(word)
                if why:
                    notes.append(f"{name}, {what}:\n{why}")
            print(f"| {name} | {told.get('lines', '')} | {' | '.join(cells)} |")
        for i, (what, _, _) in enumerate(runs):
            print(f"{what}: {counts[i]} of {len(first)} the same")
        print("\n".join(notes))
    return 0 if counts[0] == sum("digest" in told for told in first.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
