"""Whole programs in eager PyTorch compared with the same with enable("safe"): what a user gains by changing one line.

Two processes run a program, one with PyTorch alone, one with operators enabled. The second one's results must equal the
first one's within the program's tolerance, and all its kernels must be compiled and their trials finished. Then they
alternate, one series of steps each, so that both run under the same conditions. Each is what a user would start:
operators are not enabled and disabled repeatedly in one process, which would change the heap (malloc takes a quarter of
a small ResNet's time, and up to 4 % more or less depending on earlier frees). As processes differ by the addresses of
their tensors, there are several pairs of them.

Times are processor time of all threads, and elapsed time; a ratio is the median, over all rounds, of a series' time to
the mean of its two neighbours'. The share of served calls is hits by calls of operators that compute (views left out),
as a TorchDispatchMode counts them, or by calls of enabled operators, if these are more. A copy that another operator
makes, as addmm does of its bias, counts as neither.

Prints one JSON object per line, as scripts/bench collects them (with more members), and the table of docs/performance.md on
standard error. `make bench-models-eager`; it compiles for minutes the first time and is not part of `make bench`.

    bench_models_eager.py [--threads 1,2] [--pairs 3] [--rounds 7] [PART...]   only programs whose names contain one of PART

Environment: BUILD, the build directory.
"""
import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time

from asked_process import AskedProcess, answer

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY = os.path.join(BUILD, "bench-models-cache")
SERIES = 0.12  # seconds of one series
GOAL, LIMIT, LEAST_SHARE = 0.90, 1.02, 0.50
COPY, CLONE = "aten::copy_", "aten::clone"
COPIES = (COPY, CLONE, "aten::_to_copy", "aten::_reshape_copy")  # each makes one copy
#: Large tensors come from memory that the process keeps: otherwise they may or may not be new pages, by chance.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


# ---- one program, in one of two processes ----


def results_of(eager_models, name):
    """Returns the results of the fifth step."""
    program = eager_models.make(name)
    for _ in range(4):
        program.step()
    return [one.clone() for one in program.step()]


def settle(aoticache, step):
    """
    Runs steps until everything is compiled and all trials are finished; returns the number of steps. Kernels that are
    called only in the first step stay on trial.
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
    """Returns the calls of operators in a step that compute something, and how many of these are copies."""
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
    """Returns the seconds of a step: (processor time, elapsed time)."""
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - cpu) / steps, (time.perf_counter() - clock) / steps


def count_served(aoticache, step, copies):
    """Returns the share of served calls. copies: the number that the program itself makes in a step."""
    before = aoticache.stats()
    step()
    after = aoticache.stats()
    def count(name, what):
        return getattr(after.operators[name], what) - getattr(before.operators[name], what)

    own = max(0, copies - count(CLONE, "hits"))  # a served clone does not call copy
    inside = max(0, count(COPY, "calls") - own)
    found = {one: after.total(one) - before.total(one) for one in ("hits", "calls", "calls_lost")}
    hits = count(COPY, "hits")
    return {"lost": found["calls_lost"], "hits": found["hits"] - min(hits, inside), "served_calls": found["calls"] - inside,
            **{one: after.total(one) for one in ("judged", "judged_slower")}}


def play_plain(name, threads, path):
    """Writes its results to a file; then runs series of steps, as standard input requests them."""
    import torch
    sys.path.insert(0, HERE)
    import eager_models
    torch.set_num_threads(threads)
    torch.save(results_of(eager_models, name), path)
    step = eager_models.make(name).step
    calls, copies = count_calls(torch, step)
    seconds = min(time_series(step, 1)[1] for _ in range(5))
    answer({"calls": calls, "copies": copies, "steps": max(1, round(SERIES / seconds))})
    serve_series(step)


def play_ours(name, threads, path, copies):
    """Compares its results with those in the file; then does the same."""
    import torch
    sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "eager", "torch")]
    import aoticache
    import eager_models
    torch.set_num_threads(threads)
    aoticache.enable("safe", cache_dir=DIRECTORY, workers=2)
    aoticache.wait()
    program = eager_models.make(name)
    settled = settle(aoticache, program.step)
    for a, b in zip(results_of(eager_models, name), torch.load(path), strict=True):
        torch.testing.assert_close(a, b, rtol=program.tolerance, atol=program.tolerance)
    aoticache.wait()
    answer({"settled_after": settled, **count_served(aoticache, program.step, copies)})
    serve_series(program.step)


def serve_series(step):
    for line in sys.stdin:
        for _ in range(8):
            step()
        answer(time_series(step, int(line)))


# ---- all of them ----


def start(name, threads, *words):
    variables = {**os.environ, **MEMORY, "BUILD": BUILD, "AOTICACHE_HOME": BUILD, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--threads", str(threads), *words, name]
    return AskedProcess(command, env=variables)


def measure_pair(name, threads, rounds, path):
    """Returns (series of PyTorch alone, series of ours: one less, the reports of the processes)."""
    first = start(name, threads, "--plain", path)
    second = start(name, threads, "--ours", path, "--copies", str(first.first["copies"]))
    steps = first.first["steps"]
    plain, ours = [first.ask(steps)], []
    for _ in range(rounds):
        ours.append(second.ask(steps))
        plain.append(first.ask(steps))
    for one in (first, second):
        one.close()
    return plain, ours, {**first.first, **second.first}


def measure(name, threads, arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "results")
        pairs = [measure_pair(name, threads, arguments.rounds, path) for _ in range(arguments.pairs)]

    def ratio(clock):
        return statistics.median(2 * one[clock] / (plain[turn][clock] + plain[turn + 1][clock])
                                 for plain, ours, _ in pairs for turn, one in enumerate(ours))

    def milliseconds(which):
        return statistics.median(one[0] for pair in pairs for one in pair[which]) * 1e3

    said = pairs[-1][2]
    # Operators that the mode counts once may call enabled ones inside (the encoder's fast path does).
    share = said["hits"] / max(said["calls"], said["served_calls"])
    is_good = ratio(0) <= LIMIT and (share >= LEAST_SHARE or "training" not in name)
    return {
        "name": f"{name}, {threads} thread{'s' if threads > 1 else ''}", "value": milliseconds(1), "unit": "ms",
        "peer": "plain PyTorch", "peer_value": milliseconds(0), "ratio": ratio(0), "target": LIMIT, "met": is_good,
        "wall_ratio": ratio(1), "share": share, "calls": said["calls"], "step_hits": said["hits"],
        "step_calls": said["served_calls"], "step_lost": said["lost"], "judged": said["judged"], "slower": said["judged_slower"],
        "settled_after": pairs[0][2]["settled_after"]}


def main(arguments):
    if arguments.plain:
        play_plain(arguments.parts[0], int(arguments.threads), arguments.plain)
        return
    if arguments.ours:
        play_ours(arguments.parts[0], int(arguments.threads), arguments.ours, arguments.copies)
        return
    sys.path.insert(0, HERE)
    try:
        import eager_models
    except ImportError as error:
        print(f"bench_models_eager: nothing to measure: {error}", file=sys.stderr)
        return
    os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)
    rows = []
    print("| program | threads | plain, ms | time of the processor | of the clock | served | lost |\n"
          "| --- | --- | --- | --- | --- | --- | --- |", file=sys.stderr)
    for name in eager_models.NAMES:
        if arguments.parts and not any(part in name for part in arguments.parts):
            continue
        for threads in map(int, arguments.threads.split(",")):
            row = measure(name, threads, arguments)
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
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    for word in ("--plain", "--ours"):
        parser.add_argument(word, help=argparse.SUPPRESS)
    parser.add_argument("--copies", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("parts", nargs="*")
    main(parser.parse_args())
