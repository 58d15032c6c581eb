"""Kills processes that run PyTorch's operators with the cache at random instants, sometimes with their workers: the cache
stays sound, the next process has the right results, and no worker outlives its host.

KILLS and SECONDS are the long form; SEED chooses the instants and shapes. Environment: BUILD.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
from torch_scenarios import bring_bridge  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
KILLS, SEED = int(os.environ.get("KILLS", "2")), int(os.environ.get("SEED", "1"))
LATEST = float(os.environ.get("SECONDS", "6"))  # a kill comes at most this many seconds after the first call
END_SECONDS, LAST_CALLS = 120, 3
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "eager", "torch"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
OPERATORS = ("aten::abs", "aten::exp", "aten::add.Tensor", "aten::sigmoid")


# ---- in a separate process ----

def calls(torch, draw, count):
    """Yields (function, its tensors) of small shapes: a kernel that one process compiles may be used by another."""
    for _ in range(count):
        x = torch.randn(draw.randrange(2, 8), 3)
        yield draw.choice([(torch.abs, (x,)), (torch.exp, (x,)), (torch.add, (x, x)), (torch.sigmoid, (x,))])


def play(cache, seed, mode, count):
    """Calls until it is killed, or `count` times; the results are checked against the earlier ones."""
    import torch
    import aoticache
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    drawn = list(calls(torch, random.Random(int(seed)), 40 if int(count) == 0 else int(count)))
    expected = [function(*tensors) for function, tensors in drawn]
    enabled = aoticache.enable(*OPERATORS, mode=mode, cache_dir=cache, workers=2, judge=False)
    print("enabled", len(enabled.operators) + len(enabled.pending), flush=True)
    results = []
    while True:
        results = [function(*tensors) for function, tensors in drawn]
        if int(count):
            break
        time.sleep(0.01)
    aoticache.wait()
    stats = aoticache.stats()
    print("# " + str(stats).replace("\n", "\n# "), flush=True)
    aoticache.disable()
    wrong = sum(not torch.allclose(*pair) for pair in zip(results, expected))
    print(json.dumps({"wrong": wrong, "hits": stats.total("hits"), "compiles": stats.total("compiles"),
                      "served": stats.total("calls") - stats.total("fallbacks") - stats.total("refused")}))


# ---- the test ----

def start(cache, seed, mode="background", count=0):
    quiet = ["-W", "ignore"] if count == 0 else []  # the log shows warnings only of a process that is not killed
    command = [sys.executable, *quiet, os.path.abspath(__file__), "play", cache, str(seed), mode, str(count)]
    # A killed worker counts as a failed compile, which would be remembered for ten minutes.
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "AOTICACHE_FAILURE_TTL": "0"})


def parent_of(process):
    """Returns (parent, name, start), or None if there is no such process, or it has ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    return None if fields[0] in "ZX" else (int(fields[1]), head.partition("(")[2], fields[19])


def descendants(process):
    """Returns {number: when it was started} of all processes below one."""
    every = {int(name): parent_of(name) for name in os.listdir("/proc") if name.isdigit()}
    found, todo = {}, [process]
    while todo:
        parent = todo.pop()
        for number, stat in every.items():
            if stat is not None and stat[0] == parent and number not in found:
                found[number] = stat[2]
                todo.append(number)
    return found


def alive(started):
    return [number for number, when in started.items() if (parent_of(number) or (0, 0, None))[2] == when]


def wait_for_end(started):
    """Waits until workers have ended with their host: they may take some time, since they may be busy."""
    until = time.monotonic() + END_SECONDS
    while alive(started) and time.monotonic() < until:
        time.sleep(0.1)
    return alive(started)


def kill(number):
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_once(cache, draw, seed):
    """Starts two processes on one cache and kills one of them or both, sometimes a worker first."""
    hosts = [start(cache, seed + i) for i in range(2)]
    try:
        for host in hosts:
            assert host.stdout.readline().startswith("enabled"), "a process ended early"
        time.sleep(draw.uniform(0.5, LATEST))
        started = {host.pid: descendants(host.pid) for host in hosts}
        below = sorted(number for one in started.values() for number in one)
        if below and draw.random() < 0.5:
            kill(draw.choice(below))
            time.sleep(draw.uniform(0, 1))
            for host in hosts:
                assert host.poll() is None, f"a process ended with {host.returncode} when its worker was killed"
                started[host.pid].update(descendants(host.pid))
    finally:
        for host in hosts:
            host.kill()
            host.wait()
            host.stdout.close()
    every = {number: when for one in started.values() for number, when in one.items()}
    left = wait_for_end(every)
    for number in left:
        kill(number)
    assert not left, f"{len(left)} of {len(every)} processes outlive their host by {END_SECONDS} s"
    return len(every)


def verify(cache):
    tool = os.path.join(BUILD, "bin", "aoticache")
    done = subprocess.run([tool, "verify", "--cache-dir", cache], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"aoticache verify ends with {done.returncode}: {(done.stdout + done.stderr)[:300]}"


def finish(cache, seed, mode, count):
    host = start(cache, seed, mode, count)
    output, _ = host.communicate(timeout=900)
    print("\n".join(line for line in output.splitlines() if line.startswith("#")), flush=True)
    assert host.returncode == 0, f"the process afterwards ends with {host.returncode}"
    return json.loads(output.splitlines()[-1])


def test_processes_that_are_killed(tmp_path):
    """The cache is sound and no worker is left; then a process has the right results, and the next one compiles nothing."""
    draw, cache = random.Random(SEED), str(tmp_path / "cache")
    bring_bridge(cache)
    for turn in range(KILLS):
        below = kill_once(cache, draw, 100 + turn % 3)
        verify(cache)
        print(f"# turn {turn}: {below} processes below the killed ones, all ended; the cache is sound", flush=True)
    found = finish(cache, 100, "wait", LAST_CALLS)
    print(f"# afterwards: {found}")
    assert found["wrong"] == 0 and found["served"] == LAST_CALLS, f"{found}"
    again = finish(cache, 100, "wait", LAST_CALLS)
    assert again["wrong"] == 0 and again["compiles"] == 0 and again["hits"] == LAST_CALLS, f"{again}"
    verify(cache)


if __name__ == "__main__":  # started by start()
    play(*sys.argv[2:])
