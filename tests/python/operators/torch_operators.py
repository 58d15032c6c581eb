"""Runs samples of PyTorch's operator database (torch_samples.py) in one process, with every operator enabled that the
binding accepts.

    torch_operators.py draw SEED COUNT NAMES RESULTS CACHE PASS...  draws the samples, and runs them
    torch_operators.py play NAMES RESULTS CACHE PASS...             runs them, once in each pass

PASS is the mode, "wait", "background" or "never". NAMES and RESULTS are JSON files. RESULTS: {"samples": one dictionary
for each sample, "passes": the findings of each pass}. Expected results come from the same process before anything is
enabled. Environment: WORKERS.
"""
import json
import logging
import os
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "eager", "torch"))

import operator_table  # noqa: E402

COUNTS = ("calls", "hits", "fallbacks", "refused", "misses", "loads", "compiles", "compile_failures")


class Lines(logging.Handler):
    """Collects the library's log messages, to report why PyTorch's kernel answered."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        message = record.getMessage()
        if ": miss: " not in message and ": compiled in " not in message:
            self.lines.append(message)


def counts_of(aoticache):
    return {name: [getattr(one, count) for count in COUNTS] for name, one in aoticache.stats().operators.items()}


def difference(before, after):
    """Returns by operator that was called: {count: by how much it changed}."""
    found = {}
    for name, counts in after.items():
        moved = {count: now - then for count, now, then in zip(COUNTS, counts, before.get(name, [0] * len(COUNTS)))}
        if any(moved.values()):
            found[name] = moved
    return found


def served_of(moved):
    """Returns the number of calls that a compiled kernel answered."""
    return sum(one["calls"] - one["fallbacks"] - one["refused"] for one in moved.values())


class Player:
    """Samples with eager PyTorch's results, and copies of their inputs for each pass."""

    def __init__(self, names, passes):
        import torch_samples
        self.module = torch_samples
        operators = operator_table.database()
        self.samples = [torch_samples.Sample(name, operators[name.operator]) for name in names]
        self.expected = [torch_samples.expected_outcome(sample) for sample in self.samples]
        self.copies = [[sample.fresh() for sample in self.samples] for _ in range(passes)]
        self.results = [{"name": str(sample.name), "passes": []} for sample in self.samples]

    def play(self, aoticache, place, mode, lines):
        """Makes only the samples' calls, since all operators are enabled."""
        outcomes, before = [], counts_of(aoticache)
        for sample, (_, cotangents), leaves in zip(self.samples, self.expected, self.copies[place]):
            del lines[:]
            began = time.monotonic()
            outcomes.append(self.module.run(sample, leaves, cotangents))
            seconds = time.monotonic() - began
            after = counts_of(aoticache)
            result = self.results[len(outcomes) - 1]
            result["passes"].append({"mode": mode, "operators": difference(before, after), "seconds": round(seconds, 2),
                                     "log": [line[:600] for line in lines]})
            before = after
        return outcomes

    def judge(self, place, outcomes):
        for sample, (expected, cotangents), got, result in zip(self.samples, self.expected, outcomes, self.results):
            one = result["passes"][place]
            verdict = self.module.judge(got, expected)
            if verdict.startswith("wrong") and served_of(one["operators"]) and self.module.as_compiled(
                    sample, cotangents, set(one["operators"]), got):
                verdict = verdict.replace("wrong", "as PyTorch compiles it", 1)
            if verdict in ("equal", "within tolerance") and not served_of(one["operators"]):
                verdict = "PyTorch's kernel: " + reason_of(one)
            one["verdict"] = verdict
            one["same_message"] = got.message == expected.message


def reason_of(one):
    """Returns why nothing was served, as far as counts and the log show it."""
    counts = {count: sum(moved[count] for moved in one["operators"].values()) for count in COUNTS}
    if one["log"]:
        return " ".join(one["log"][0].split())[:300]
    if counts["refused"]:
        return "numbers wrapped as tensors, conjugated tensors, or recursion"
    return "no kernel in the cache" if counts["fallbacks"] else "no operator that is enabled was called"


def enable_all(aoticache, names, mode):
    enabled = aoticache.enable(*names, mode=mode)
    if enabled.pending:  # until the bridge is compiled
        aoticache.wait()
        enabled = aoticache.enable(*names, mode=mode)
    return enabled


def accepted_by_binding(aoticache):
    """Returns operators that can be enabled, and the reply of enable() for those that only explain() accepts."""
    names, refused = aoticache.operators(), {}
    try:
        aoticache.enable(*names, mode="wait")
    except aoticache.OperatorRefusedError:
        for name in names:
            try:
                aoticache.enable(name, mode="wait")
            except aoticache.OperatorRefusedError as error:
                refused[name] = str(error)
    aoticache.disable()
    return [name for name in names if name not in refused], refused


def configure(aoticache, cache):
    workers = int(os.environ.get("WORKERS", "2"))
    aoticache.configure(cache_dir=cache, workers=workers, compile_timeout=600, judge=False)


def totals_of(stats, before):
    return {count: stats.total(count) - before.get(count, 0) for count in COUNTS}


def play(names_path, results_path, cache, *passes):
    import aoticache
    from torch_samples import Name
    with open(names_path) as file:
        task = json.load(file)
    names = [Name(**one) for one in task["names"]]
    configure(aoticache, cache)
    handler = Lines()
    logging.getLogger("aoticache").addHandler(handler)
    logging.getLogger("aoticache").setLevel(logging.INFO)
    began = time.monotonic()
    player = Player(names, len(passes))
    found = {"samples": player.results, "passes": [], "seconds": {"eager": round(time.monotonic() - began, 1)}}
    for place, mode in enumerate(passes):
        began, before = time.monotonic(), totals_of(aoticache.stats(), {})
        enabled = enable_all(aoticache, task["accepted"], mode)
        assert enabled.operators, f"{enabled}"
        outcomes = player.play(aoticache, place, mode, handler.lines)
        aoticache.wait()
        stats = aoticache.stats()
        aoticache.disable()
        player.judge(place, outcomes)
        found["passes"].append({"enabled": len(enabled.operators), "skipped": len(enabled.skipped),
                                "interface": stats.interface, "totals": totals_of(stats, before)})
        found["seconds"][f"{place} {mode}"] = round(time.monotonic() - began, 1)
    with open(results_path, "w") as file:
        json.dump(found, file, indent=1)


def draw(seed, count, names_path, results_path, cache, *passes):
    import aoticache
    from torch_samples import draw_names
    began = time.monotonic()
    configure(aoticache, cache)
    accepted, disagreeing = accepted_by_binding(aoticache)
    names, left = draw_names(int(seed), int(count), set(accepted))
    with open(names_path, "w") as file:
        json.dump({"names": [vars(name) for name in names], "left": left, "accepted": accepted,
                   "disagreeing": disagreeing, "seconds": round(time.monotonic() - began, 1)}, file)
    play(names_path, results_path, cache, *passes)


def main(what, *words):
    operator_table.load_torch()
    import torch
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    {"draw": draw, "play": play}[what](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
