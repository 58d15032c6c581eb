"""Tests processes that compile the same graph concurrently: one compiles, the others wait for its record
(docs/torch-compile.md, *One compile among processes*). The test sends compile requests to three players that share a cache and
have their own directories. A player that is asked to hold stops inside Inductor, where it has its lease, until the next word
arrives."""
import contextlib
import json
import os
import select
import signal
import subprocess
import textwrap
import time

from compile_runs import FULL, PLAIN, copy_of, digests, filled, fresh, report, run, start
from test_compile_cache import logging_compiler
from torch_scenarios import environment, play, python

PLAYER = """
    import json, sys, time
    import torch, aoticache
    assert aoticache.install_compile_cache()
    from torch._dynamo.utils import counters
    from torch._inductor import codecache, compile_fx
    from aoticache._compile_cache import leases
    flights = next(iter(leases._flights))

    def say(word, **more):
        print(json.dumps({"word": word, **more}), flush=True)

    take, asked = leases.take, []
    def notes(path, seconds):
        asked.append(seconds)
        say("asks")
        return take(path, seconds)
    leases.take = notes

    compile_graph, make_key, told = compile_fx.fx_codegen_and_compile, codecache.compiled_fx_graph_hash, {}
    def holds(*arguments, **options):
        if told.get("hold"):
            say("compiles")
            if sys.stdin.readline().strip() == "fail":
                raise RuntimeError("told to fail")
        return compile_graph(*arguments, **options)
    def bypasses(*arguments, **options):
        if told.get("bypass"):
            raise codecache.BypassFxGraphCache("told to")
        return make_key(*arguments, **options)
    compile_fx.fx_codegen_and_compile, codecache.compiled_fx_graph_hash = holds, bypasses

    def work():
        number, has_gradient = told["number"], told.get("gradient")
        def function(x):
            return (torch.cos(x) * number - torch.abs(x)).sum()
        x = torch.linspace(0.1, 1, 50, requires_grad=bool(has_gradient))
        value = torch.compile(function)(x)
        same = torch.allclose(value, function(x))
        if has_gradient == "backward":
            value.backward()
            same = same and torch.allclose(x.grad, -torch.sin(x) * number - 1)
        return same

    say("ready")
    for line in iter(sys.stdin.readline, ""):
        told = json.loads(line)
        flights.limit = told.get("limit", leases.LIMIT)
        torch._dynamo.reset()
        counters.clear()
        asked.clear()
        begun, error, same = time.monotonic(), "", False
        try:
            same = work()
        except BaseException as one:
            error = f"{type(one).__name__}: {one}"
        inductor = counters["inductor"]
        say("done", error=error, same=same, lowered=inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_bypass"],
            hits=counters["aot_autograd"]["autograd_cache_hit"], asked=asked, seconds=time.monotonic() - begun,
            limit=flights.limit)
"""
TOO_LONG = 110  # seconds; less than a wait for a lease may last (120), and enough for a machine with much other work


class Player:
    """A process that compiles on request."""

    def __init__(self, cache):
        variables = environment(AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), AOTICACHE_CONFIG="", **PLAIN)
        self.process = subprocess.Popen(python("-c", textwrap.dedent(PLAYER)), env=variables, text=False,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = b""

    def tell(self, word=None, **more):
        self.process.stdin.write(((word or json.dumps(more)) + "\n").encode())
        self.process.stdin.flush()

    def next(self, seconds):
        """Returns its next message, or None if none arrives within this many seconds."""
        while b"\n" not in self.said:
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                return None
            part = os.read(self.process.stdout.fileno(), 65536)
            assert part, "the player has ended"
            self.said += part
        line, _, self.said = self.said.partition(b"\n")
        return json.loads(line)

    def wait_for(self, word):
        while True:
            found = self.next(2 * TOO_LONG)
            assert found is not None, f"{word} was not said"
            if found["word"] == word:
                return found
            assert found["word"] != "done", found

    def close(self):
        self.process.stdin.close()
        self.process.wait(TOO_LONG)


@contextlib.contextmanager
def players(count=3):
    cache = copy_of(FULL) if filled() else None
    with contextlib.ExitStack() as stack:
        made = [Player(cache) for _ in range(count)]
        for one in made:
            stack.callback(one.close)
            one.wait_for("ready")
        yield cache, made


def is_right(found, lowered, hits=None):
    assert not found["error"] and found["same"] and found["lowered"] == lowered, found
    assert hits is None or found["hits"] == hits, found
    assert found["seconds"] < TOO_LONG, found


def holding(first, others, **more):
    """Makes `first` compile and hold, and the others ask for its lease."""
    first.tell(hold=True, **more)
    first.wait_for("compiles")
    for one in others:
        one.tell(**{**more, "bypass": False})
        one.wait_for("asks")
        assert one.next(0.3) is None


def go_on(others):
    """Waits until each has traced by itself; Inductor's graph in it has another key, and one of them compiles that."""
    found = [one.wait_for("done") for one in others]
    assert all(one["same"] and not one["error"] and one["hits"] == 0 and one["seconds"] < TOO_LONG for one in found), found
    assert sum(one["lowered"] for one in found) == 1, found


def leases(cache):
    return os.listdir(os.path.join(cache, "leases"))


def test_who_waits_takes_what_was_compiled():
    with players() as (cache, (first, *others)):
        holding(first, others, number=31)
        first.tell("go")
        is_right(first.wait_for("done"), 1, 0)
        for one in others:
            is_right(one.wait_for("done"), 0, 1)
        assert leases(cache) == []

        # Forward and backward pass: the result is stored after the backward pass, which takes longer than a process waits for
        # it.
        holding(first, others, number=32, gradient="backward")
        first.tell("go")
        first.wait_for("compiles")
        time.sleep(2.5)
        first.tell("go")
        is_right(first.wait_for("done"), 2, 0)
        for one in others:
            is_right(one.wait_for("done"), 0, 1)
        assert leases(cache) == []


def test_who_waits_compiles_if_there_will_be_no_record():
    with players() as (cache, (first, *others)):
        holding(first, others, number=41)
        first.tell("fail")
        assert "told to fail" in first.wait_for("done")["error"]
        go_on(others)

        holding(first, others, number=42)
        first.process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in first.wait_for("done")["error"]
        go_on(others)

        # No backward pass follows: the forward pass is stored as a record, AOTAutograd's result is not.
        first.tell(number=43, gradient="forward")
        is_right(first.wait_for("done"), 1, 0)
        assert len(leases(cache)) == 1
        for one in others:
            one.tell(number=43, gradient="forward")
        for one in others:
            is_right(one.wait_for("done"), 0, 0)
        time.sleep(2.5)
        assert leases(cache) == []


def test_graphs_that_cannot_be_cached_delay_nobody():
    with players() as (cache, (first, *others)):
        first.tell(number=51, hold=True, bypass=True)
        first.wait_for("compiles")
        assert leases(cache) == []
        for one in others:
            one.tell(number=51, bypass=True)
        for one in others:
            is_right(one.wait_for("done"), 1, 0)
        first.tell("go")
        is_right(first.wait_for("done"), 1, 0)


def test_a_wait_has_a_limit():
    """A process whose wait timed out does not wait for any process again, and asks for no lease."""
    with players() as (_, (first, second, third)):
        holding(first, [], number=61)
        second.tell(number=61, limit=1)
        found = second.wait_for("done")
        is_right(found, 1, 0)
        assert found["asked"] == [1] and found["limit"] == 0, found
        third.tell(number=61, limit=0)
        found = third.wait_for("done")
        assert found["same"] and found["asked"] == [], found
        first.tell("go")
        is_right(first.wait_for("done"), 1, 0)


def test_who_holds_is_killed():
    with players() as (cache, (first, *others)):
        holding(first, others, number=71)
        first.process.kill()
        found = [one.wait_for("done") for one in others]
        assert sorted(one["lowered"] for one in found) == [0, 1] and all(one["same"] for one in found), found
        assert leases(cache) == []


def test_processes_at_once_lower_each_graph_once():
    """Four processes start with an empty cache. The compiler is slow, so that all of them ask while the first one compiles."""
    cache, directory = copy_of(FULL) if filled() else None, logging_compiler("sleep 1")
    variables = {"PATH": f"{directory}:{os.environ['PATH']}", **PLAIN}
    names = ("named", "embedding_training")
    alone = run(copy_of(FULL), *names, compiler=True, **PLAIN)
    found = [report(one) for one in [start(cache, *names, compiler=True, **variables) for _ in range(4)]]
    assert all(digests(one) == digests(alone) and not one["warnings"] for one in found), found
    for name in names:
        lowered = [one["programs"][name]["lowered"] for one in found]
        assert sum(lowered) == alone["programs"][name]["lowered"] > 0, (name, lowered)
    for kind in ("inductor-graph", "aotautograd"):
        counts = [one["counts"][kind] for one in found]
        assert sum(one["misses"] for one in counts) == alone["counts"][kind]["misses"], (kind, counts)
        assert sum(one["stored"] for one in counts) == alone["counts"][kind]["stored"], (kind, counts)


RANK = """
    import os, sys, torch, torch.distributed as dist
    import aoticache
    assert aoticache.install_compile_cache(cache_dir=sys.argv[2])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=int(sys.argv[1]), world_size=2)
    from torch._inductor import compile_fx
    compile_graph = compile_fx.fx_codegen_and_compile
    def meets(*arguments, **options):
        dist.barrier()
        return compile_graph(*arguments, **options)
    compile_fx.fx_codegen_and_compile = meets
    x = torch.linspace(0, 1, 70)
    assert torch.allclose(torch.compile(lambda x: torch.cos(x) * 81)(x), torch.cos(x) * 81)
    assert aoticache.stats().compile["inductor-graph"].misses == 1
    dist.barrier()
    print("done", flush=True)
    os._exit(0)  # gloo's threads may outlive the group, and PyTorch then ends the process in their way ("terminate called")
"""


def test_ranks_do_not_wait_for_each_other():
    """Both miss the same graph and meet inside its compile: if one waited for the other's record, neither would continue."""
    cache, meeting = copy_of(FULL) if filled() else None, os.path.join(fresh("meeting"), "file")
    begun = time.monotonic()
    processes = [subprocess.Popen(python("-c", textwrap.dedent(RANK), str(rank), cache, meeting),
                                  env=environment(TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), AOTICACHE_CONFIG="", **PLAIN),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert all("done" in one for one in said), said
    assert time.monotonic() - begun < TOO_LONG


def test_leases_by_themselves():
    """Two holders that want each other's lease; a forked child; a directory without leases; launchers of ranks."""
    play("""
        import os, signal, sys, time, types
        import aoticache
        from aoticache._compile_cache import leases as flight
        from aoticache._core.records import Question
        directory = sys.argv[1]
        cache = types.SimpleNamespace(directory=directory, read_only=False)
        counts = {"inductor-graph": types.SimpleNamespace(refused=0), "aotautograd": types.SimpleNamespace(refused=0)}
        state = types.SimpleNamespace(records=types.SimpleNamespace(cache=cache), counts=counts)
        one, other = flight.Flights(state), flight.Flights(state)
        kind, begun = "inductor-graph", time.monotonic()
        def question(key):
            return Question(kind, {"key": key}, {"framework": "none"})
        assert not one.begin(kind, "a", question) and not os.listdir(directory)  # outside of a compile
        with one.compiling(False), other.compiling(False):
            assert one.begin(kind, "a", question) and other.begin(kind, "b", question)
            assert not one.begin(kind, "b", question) and not other.begin(kind, "a", question)
            assert not one.begin(kind, "a", question)  # its own
            for name in flight.LAUNCHERS:
                os.environ[name] = "2"
                assert not one.begin(kind, "c", question)
                os.environ[name] = "1"
            assert one.begin(kind, "c", question) and one.limit == other.limit == flight.LIMIT
            one.end(kind, "a")
            assert other.begin(kind, "a", question)
        assert time.monotonic() - begun < 5 and os.listdir(directory + "/leases") == []

        # The parent dies, its child lives on.
        path, (reader, writer) = directory + "/leases/x", os.pipe()
        parent = os.fork()
        if parent == 0:
            lease, is_in_vain = flight.take(path, 0)
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            os.write(writer, f"{lease is not None} {child}".encode())
            os._exit(0)
        os.waitpid(parent, 0)
        was_taken, child = os.read(reader, 100).split()
        lease, is_in_vain = flight.take(path, 10)
        os.kill(int(child), signal.SIGKILL)
        assert was_taken == b"True" and lease is not None and not is_in_vain
        assert flight.take(path, 0.1) == (None, True)
        lease.release()
        assert flight.take(path, 10)[0] is not None

        one.state.records.cache.directory = directory + "/none"
        with one.compiling(False):
            assert not one.begin(kind, "a", question) and one.limit == 0
        assert [flight.limit_of(text) for text in ("", "x", "0", "-1", "2.5")] == [flight.LIMIT, flight.LIMIT, 0, 0, 2.5]
        print("done")
    """, [fresh("leases")])
