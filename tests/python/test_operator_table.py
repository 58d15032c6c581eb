"""The short form of operator_table.py: docs/operators.md says what was recorded, the record has the numbers that the
project promises, and a handful of operators give the recorded results. Environment: BUILD, the build folder.
"""
import json
import os
import sys
import tempfile

import operator_table as table

PROMISED = 100
HANDFUL = ["cumsum", "fft.rfft", "index_put", "scatter_reduce.sum"]


def load():
    with open(table.RESULTS) as file:
        return json.load(file)


def check_document(results):
    with open(table.TABLE) as file:
        assert file.read() == table.render(results), "docs/operators.md is not what operator_results.json makes of it"


def check_counts(results):
    counts = table.counts_of(results["linked"])
    ran = counts["equal"] + counts["within tolerance"]
    assert ran >= PROMISED, "%d operators run, %d are promised" % (ran, PROMISED)
    assert counts["differs"] == 0 and counts["failed"] == 0, "some differ or fail: %s" % dict(counts)
    for way in ("linked", "unlinked"):
        ran = [name for name, result in results[way].items() if result.startswith(("equal", "within"))]
        assert len(ran) >= 100, "%s: %d operators run and give PyTorch's results" % (way, len(ran))


def check_refusals(results):
    """The loader names what is missing, every time."""
    functions = table.missing_functions(results["linked"])
    assert functions and all(name.startswith(("aoti_torch_", "torch_")) for name in functions), list(functions)


def check_operator(info, name, recorded):
    with tempfile.TemporaryDirectory(prefix="aoticache-operators.") as directory:
        table.LIBRARIES = directory
        table.compile_operator(info, name, True)
        result = table.judge(name, info, True)
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
        failed += report(name, check_operator, operators[name], name, results["linked"].get(name))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
