"""Whole programs in eager PyTorch against the same with enable("safe"): what a user gains who changes one line.

A program has a process of its own. It computes its results with PyTorch alone; then operators are enabled until all kernels
are compiled and judged, and the results must be equal within the program's tolerance. After that a series of steps with
operators disabled and one with operators enabled take turns, so that both meet the same machine and the same memory. (Two
processes differ by up to 8 % by where their tensors lie.) Times are of the processor, of all threads, and of the clock; a
ratio is the median over the turns of a series' time to the mean of its two neighbours'. The share of served calls is hits by
calls of operators that compute (views left out), as a TorchDispatchMode counts them, or by those that came to enabled
operators, if these are more. A copy that another operator makes, as addmm does of its bias, counts as neither.

Prints one JSON object per line, as scripts/bench collects them (with more members), and the table of docs/pytorch.md on
standard error. `make bench-models-eager`; it compiles for minutes the first time and is not part of `make bench`.

    bench_models_eager.py [--threads 1,2] [--rounds 15] [PART...]   only programs whose names contain one of these

Environment: BUILD, the build folder.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
FOLDER = os.path.join(BUILD, "bench-models-cache")
SERIES = 0.12  # seconds of one series
GOAL, LIMIT, LEAST_SHARE = 0.90, 1.02, 0.50
COPY, CLONE = "aten::copy_", "aten::clone"
COPIES = (COPY, CLONE, "aten::_to_copy", "aten::_reshape_copy")  # each makes one
#: Large tensors come from memory that the process keeps: else they may be new pages, or not, by chance.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


# ---- one program, in a process of its own ----


def results_of(eager_models, name):
    """Of the fifth step."""
    program = eager_models.make(name)
    for _ in range(4):
        program.step()
    return [one.clone() for one in program.step()]


def settle(aoticache, step):
    """
    Steps until everything is compiled and judged; the number of steps. What is called in a first step alone stays on trial.
    """
    quiet, steps, before = 0, 0, None
    while steps < 20000 and quiet < (3 if before is None or before[2] == 0 else 40):
        for _ in range(12):
            step()
        steps += 12
        aoticache.wait(60)
        found = aoticache.stats()
        now = (found.total("queued"), found.total("judged"), found.total("on_trial"))
        quiet = quiet + 1 if now == before else 0
        before = now
    return steps


def count_calls(torch, step):
    """Calls of operators in a step that compute something, and how many of these are copies."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        calls = copies = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
            Counter.calls += not is_view
            Counter.copies += func._schema.name in COPIES
            return func(*args, **(kwargs or {}))

    with Counter():
        step()
    return Counter.calls, Counter.copies


def time_series(step, steps):
    """Seconds of a step: (of the processor, of the clock)."""
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - cpu) / steps, (time.perf_counter() - clock) / steps


def count_served(aoticache, step, copies):
    """copies: how many the program itself makes in a step."""
    before = aoticache.stats()
    step()
    after = aoticache.stats()
    def count(name, what):
        return getattr(after.operators[name], what) - getattr(before.operators[name], what)

    own = max(0, copies - count(CLONE, "hits"))  # a clone that is served calls no copy
    inside = max(0, count(COPY, "calls") - own)
    found = {one: after.total(one) - before.total(one) for one in ("hits", "calls", "lost")}
    hits = count(COPY, "hits")
    return {**found, "hits": found["hits"] - min(hits, inside), "calls": found["calls"] - inside,
            **{one: after.total(one) for one in ("judged", "slower")}}


def play(name, threads, rounds):
    import torch
    sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "eager", "torch")]
    import aoticache
    import eager_models
    torch.set_num_threads(threads)
    expected = results_of(eager_models, name)
    program = eager_models.make(name)
    step = program.step
    calls, copies = count_calls(torch, step)
    seconds = min(time_series(step, 1)[1] for _ in range(5))
    steps = max(1, round(SERIES / seconds))

    aoticache.enable("safe", cache_dir=FOLDER, workers=2)
    aoticache.wait()
    settled = settle(aoticache, step)
    found = results_of(eager_models, name)
    aoticache.wait()
    aoticache.disable()
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=program.tolerance, atol=program.tolerance)

    plain, ours, served = [time_series(step, steps)], [], {}
    for turn in range(rounds):
        # What was compiled is there; what was not would be compiled while something is timed.
        aoticache.enable("safe", cache_dir=FOLDER, workers=2, mode="never")
        for _ in range(8):
            step()
        ours.append(time_series(step, steps))
        served = served or count_served(aoticache, step, copies)
        aoticache.disable()
        step()
        plain.append(time_series(step, steps))

    def ratio(clock):
        return statistics.median(2 * one[clock] / (plain[turn][clock] + plain[turn + 1][clock])
                                 for turn, one in enumerate(ours))

    # Operators that are one to the mode may call ours inside (the encoder's fast path does).
    share = served["hits"] / max(calls, served["calls"])
    is_good = ratio(0) <= LIMIT and (share >= LEAST_SHARE or "training" not in name)
    print(json.dumps({
        "name": f"{name}, {threads} thread{'s' if threads > 1 else ''}",
        "value": statistics.median(one[0] for one in ours) * 1e3, "unit": "ms", "peer": "plain PyTorch", "peer_value": statistics.median(one[0] for one in plain) * 1e3,
        "ratio": ratio(0), "target": LIMIT, "met": is_good, "wall_ratio": ratio(1), "share": share, "calls": calls,
        "step_hits": served["hits"], "step_calls": served["calls"], "step_lost": served["lost"],
        "judged": served["judged"], "slower": served["slower"], "settled_after": settled}))


# ---- all of them ----


def measure(name, threads, rounds):
    variables = {**os.environ, **MEMORY, "BUILD": BUILD, "AOTICACHE_HOME": BUILD, "OMP_NUM_THREADS": str(threads)}
    words = ["--play", "--threads", str(threads), "--rounds", str(rounds), name]
    done = subprocess.run([sys.executable, "-W", "ignore", os.path.abspath(__file__), *words], env=variables,
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments):
    if arguments.play:
        play(arguments.parts[0], int(arguments.threads), arguments.rounds)
        return
    sys.path.insert(0, HERE)
    try:
        import eager_models
    except ImportError as error:
        print(f"bench_models_eager: nothing to measure: {error}", file=sys.stderr)
        return
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    rows = []
    print("| program | threads | plain, ms | time of the processor | of the clock | served | lost |\n"
          "| --- | --- | --- | --- | --- | --- | --- |", file=sys.stderr)
    for name in eager_models.NAMES:
        if arguments.parts and not any(part in name for part in arguments.parts):
            continue
        for threads in map(int, arguments.threads.split(",")):
            row = measure(name, threads, arguments.rounds)
            rows.append(row)
            print(json.dumps(row), flush=True)
            print(f"| {name} | {threads} | {row['peer_value']:.2f} | {row['ratio']:.2f} | {row['wall_ratio']:.2f} | "
                  f"{row['share'] * 100:.0f} % | {row['step_lost'] / max(row['calls'], row['step_calls']) * 100:.0f} % |",
                  file=sys.stderr, flush=True)
    if rows:
        mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
        print(json.dumps({"name": "whole programs, geometric mean", "value": mean, "unit": "", "peer": "plain PyTorch",
                          "peer_value": 1.0, "ratio": mean, "target": GOAL, "met": mean <= GOAL}))
        print(f"geometric mean {mean:.3f}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("parts", nargs="*")
    main(parser.parse_args())
