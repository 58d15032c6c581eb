"""Which operators of PyTorch the binding can serve on the CPU, and why not the others: makes docs/torch-operators.md.

`make torch-operators` runs it. The verdicts are those of aoticache.explain(); the table is the same on every machine with
the same PyTorch. Not a test. With --check it writes nothing, and fails where the file is not up to date.

Environment: BUILD, the build folder.
"""
import collections
import io
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "..", "docs", "torch-operators.md")
os.environ.setdefault("AOTICACHE_HOME", os.path.abspath(os.environ.get("BUILD", "build")))
sys.path.insert(0, os.path.join(HERE, "..", "..", "eager", "torch"))
KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")


def has_kernel(torch, name):
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in KEYS)


def reason_of(explanation):
    """Without what differs from one operator to the next."""
    text = re.sub(r"argument '[^']*'", "argument", explanation.reason.partition(";")[0])
    return re.sub(r"value of type .*, and a", "value of another type, and a", text)


def verdicts(aoticache, torch):
    aoticache._operators.mkl_is_fast = lambda: False  # the table is for every processor
    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return [aoticache.explain(name) for name in names if has_kernel(torch, name)]


def grouped(names):
    """Overloads of one operator together: "`add` (Scalar, Tensor)"; one without a name is -."""
    groups = collections.defaultdict(list)
    for name in names:
        base, _, overload = name.removeprefix("aten::").partition(".")
        groups[base].append(overload or "-")
    return [f"`{base}`" + (f" ({', '.join(sorted(overloads))})" if overloads != ["-"] else "")
            for base, overloads in sorted(groups.items())]


def write_list(out, names):
    text = ", ".join(grouped(names))
    out.write(textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n")


def write_groups(out, level, groups):
    for reason, found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        out.write(f"\n{level} {reason[0].upper()}{reason[1:]} ({len(found)})\n\n")
        write_list(out, [one.operator for one in found])


def render(found, version, faster_by_mkl):
    out = io.StringIO()
    served = [one for one in found if one.served and not one.left_out]
    left, refused = collections.defaultdict(list), collections.defaultdict(list)
    for one in found:
        if one.left_out:
            left[reason_of(one)].append(one)
        elif not one.served:
            refused[reason_of(one)].append(one)
    mkl = ", ".join(f"`{name.removeprefix('aten::')}`" for name in sorted(faster_by_mkl))
    count = sum(map(len, left.values())), sum(map(len, refused.values()))
    out.write(f"""# Operators of PyTorch that the cache can serve

Made by `make torch-operators` (tests/python/torch_operator_table.py) from what `aoticache.explain()` says; not edited by
hand.

PyTorch {version}, CPU: every overload of the namespace `aten` that has a CPU kernel or is a composition of others,
{len(found)} in all. tests/python/test_torch_operators.py compares compiled kernels with PyTorch's.

| overloads | |
| --- | --- |
| {len(served)} | served |
| {count[0]} | served when named; patterns and presets leave them out |
| {count[1]} | not served |

On Intel's processors, where PyTorch has MKL, patterns and presets leave out these too: {mkl}.

| not served, because | overloads |
| --- | --- |
""")
    for reason, group in sorted(refused.items(), key=lambda item: (-len(item[1]), item[0])):
        out.write(f"| {reason} | {len(group)} |\n")
    out.write(f"\n## Served ({len(served)})\n\nAn operator's overloads are in parentheses; - is the one without a name.\n\n")
    write_list(out, [one.operator for one in served])
    out.write("\n## Served when named\n")
    write_groups(out, "###", left)
    write_parts(out, found)
    out.write("\n## Not served\n")
    write_groups(out, "###", refused)
    return out.getvalue()


def write_parts(out, found):
    parts = [one for one in found if one.decomposes_into]
    if not parts:
        return
    out.write("\n## Compositions, and what to enable instead\n\n| operator | calls |\n| --- | --- |\n")
    for one in parts:
        called = ", ".join(f"`{name.removeprefix('aten::')}`" for name in one.decomposes_into)
        out.write(f"| `{one.operator.removeprefix('aten::')}` | {called} |\n")


def main(*words):
    try:
        import torch
    except ImportError:
        print("torch_operator_table: this Python has no PyTorch", file=sys.stderr)
        return 1
    import aoticache
    text = render(verdicts(aoticache, torch), torch.__version__.partition("+")[0], aoticache._operators.FASTER_BY_MKL)
    if "--check" in words:
        with open(TABLE) as file:
            same = file.read() == text
        print("docs/torch-operators.md is " + ("up to date" if same else "not up to date: make torch-operators"))
        return 0 if same else 1
    with open(TABLE, "w") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
