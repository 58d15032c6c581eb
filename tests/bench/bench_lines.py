"""What the benchmarks written in Python share: the short form, and reporting figures that were left out."""
import json
import os

#: Whether `make bench QUICK=1` wants the short form.
IS_QUICK = os.environ.get("BENCH_QUICK", "") not in ("", "0")


def left_out(what, why):
    """Reports to scripts/bench which figures this run does not have, and why."""
    print(json.dumps({"left_out": what, "why": why}), flush=True)
