"""Finds out which operators of PyTorch the binding serves on the CPU, and why not the others: writes
docs/results/torch-operators.md.

`make torch-operators` runs it. aoticache.explain() gives the verdicts, which are the same on every machine with the same
PyTorch. The document has the counts. tests/python/operators/torch_operator_table.json has the overloads. This is not a test.
With --check it writes nothing and fails if one of the two files is not up to date.

Environment: BUILD, the build directory.
"""
import collections
import io
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "..", "..", "docs", "results", "torch-operators.md")
OVERLOADS = os.path.join(HERE, "torch_operator_table.json")
os.environ.setdefault("AOTICACHE_HOME", os.path.abspath(os.environ.get("BUILD", "build")))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "eager", "torch"))
KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")


def has_kernel(torch, name):
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in KEYS)


def reason_of(explanation):
    """Returns the reason without what differs from one operator to the next."""
    text = re.sub(r"argument '[^']*'", "argument", explanation.reason.partition(";")[0])
    return re.sub(r"value of type .*, and a", "value of another type, and a", text)


def verdicts(aoticache, torch):
    aoticache._operators.catalogue.mkl_is_fast = lambda: False  # the document is for every processor
    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return [aoticache.explain(name) for name in names if has_kernel(torch, name)]


def collect(found, version, faster_by_mkl):
    """Returns what the JSON file has: the names of the overloads by verdict and reason."""
    named, refused = collections.defaultdict(list), collections.defaultdict(list)
    for one in found:
        if one.left_out:
            named[reason_of(one)].append(one.operator)
        elif not one.served:
            refused[reason_of(one)].append(one.operator)
    return {"torch": version,
            "served": [one.operator for one in found if one.served and not one.left_out],
            "served when named": named, "not served": refused,
            "served when named, on Intel's processors with MKL": sorted(faster_by_mkl),
            "enable instead": {one.operator: list(one.decomposes_into) for one in found if one.decomposes_into}}


def count(groups):
    return sum(map(len, groups.values()))


HEAD = """# Operators of PyTorch that the cache can serve

Made by `make torch-operators` (tests/python/operators/torch_operator_table.py) from what `aoticache.explain()` says; not edited by
hand.

This covers every overload of the namespace `aten` that has a CPU kernel or is a composition of other operators: %(all)d in
PyTorch %(torch)s. tests/python/operators/test_torch_operators.py compares compiled kernels with PyTorch's.

| overloads | |
| --- | --- |
| %(served)d | served |
| %(named)d | served if enabled by name; patterns and presets leave them out |
| %(refused)d | not served |

- `aoticache.operators()` returns the names of all that can be served.
- `aoticache.explain(name)` says whether an overload is served and why not. For a composition it names the operators to enable
  instead, if they are known.
- `tests/python/operators/torch_operator_table.json` lists all overloads by verdict and reason.
"""


def render(collected):
    out, named, refused = io.StringIO(), collected["served when named"], collected["not served"]
    out.write(HEAD % {"all": len(collected["served"]) + count(named) + count(refused), "torch": collected["torch"],
                      "served": len(collected["served"]), "named": count(named), "refused": count(refused)})
    write_reasons(out, "Served when named", named)
    mkl = ", ".join(f"`{name.removeprefix('aten::')}`" for name in collected["served when named, on Intel's processors with MKL"])
    out.write(f"\nOn Intel's processors, if PyTorch has MKL, patterns and presets also leave out {mkl}.\n")
    write_reasons(out, "Not served", refused)
    return out.getvalue()


def write_reasons(out, title, groups):
    out.write(f"\n## {title}\n\n| reason | overloads |\n| --- | --- |\n")
    for reason, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        out.write(f"| {reason} | {len(names)} |\n")


def main(*words):
    try:
        import torch
    except ImportError:
        print("torch_operator_table: this Python has no PyTorch", file=sys.stderr)
        return 1
    import aoticache
    collected = collect(verdicts(aoticache, torch), torch.__version__.partition("+")[0], aoticache._operators.catalogue.FASTER_BY_MKL)
    texts = {TABLE: render(collected), OVERLOADS: json.dumps(collected, indent=1, sort_keys=True) + "\n"}
    if "--check" in words:
        same = all(read(path) == text for path, text in texts.items())
        print("docs/results/torch-operators.md is " + ("up to date" if same else "not up to date: make torch-operators"))
        return 0 if same else 1
    for path, text in texts.items():
        with open(path, "w") as file:
            file.write(text)
    return 0


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
