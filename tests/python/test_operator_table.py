"""The short form of operator_table.py: docs/operators.md says what was recorded, the record has the numbers that the
project promises, and a handful of operators give the recorded results. Environment: BUILD, the build folder.
"""
import json
import os
import sys
import tempfile

import operator_table as table

PROMISED = {"own": 600, "linked": 190, "unlinked": 190}
HANDFUL = ["cumsum", "histogramdd", "fft.rfft", "linalg.solve", "index_put", "scatter_reduce.sum"]


def load():
    with open(table.RESULTS) as file:
        return json.load(file)


def check_document(results):
    with open(table.TABLE) as file:
        assert file.read() == table.render(results), "docs/operators.md is not what operator_results.json makes of it"


def check_counts(results):
    for way in table.WAYS:
        counts = table.counts_of(results[way])
        ran = counts["equal"] + counts["within tolerance"]
        assert ran >= PROMISED[way], "%s: %d operators run, %d are promised" % (way, ran, PROMISED[way])
        assert counts["differs"] == 0 and counts["failed"] == 0, "%s: some differ or fail: %s" % (way, dict(counts))


def check_refusals(results):
    """The loader names what is missing, every time."""
    functions = table.missing_functions(results["own"])
    assert functions and all(name.startswith(("aoti_torch_", "torch_")) or "::" in name for name in functions), list(functions)


def check_operator(info, name, recorded, way):
    with tempfile.TemporaryDirectory(prefix="aoticache-operators.") as directory:
        table.LIBRARIES = directory
        table.compile_operator(info, name, way)
        result = table.judge(name, info, way)
    runs = ("equal", "within tolerance")
    assert result == recorded or (result in runs and recorded in runs), "%s, recorded: %s" % (result, recorded)


def report(name, check, *arguments):
    try:
        check(*arguments)
        print("ok - operator table: %s" % name, flush=True)
        return 0
    except Exception as error:
        print("not ok - operator table: %s: %s" % (name, " ".join(str(error).split())[:400]), flush=True)
        return 1


def main():
    results = load()
    failed = report("document", check_document, results)
    failed += report("counts", check_counts, results)
    failed += report("refusals", check_refusals, results)
    if not os.path.exists(table.HELPER):
        print("not ok - operator table: %s is not built" % table.HELPER)
        return 1
    if not table.load_torch():
        print("skip - operator table: this Python has no PyTorch")
        return 1 if failed else 77
    operators = table.database()
    for name in HANDFUL:
        failed += report(name, check_operator, operators[name], name, results["own"].get(name), "own")
    name = HANDFUL[-1]
    failed += report(name + ", PyTorch's build", check_operator, operators[name], name, results["linked"].get(name), "linked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
