"""Tests the simulator of tests/fleet/ (docs/fleet.md): its parts against calculations by hand, small fleets against
real servers.

In a small fleet each machine is a cache directory, and `aoticache run` asks for one key after the other. A Redis
server's MONITOR, or the log of a server with S3's interface, shows the requests; the simulator must predict the same.
Reads and writes of objects, and writes of records and lists, must be equal. The number of requests of waiting machines
depends on the load of the test machine, and is bounded.

Environment: BUILD. Skipped if redis-server or a module is missing; the S3 part if moto is missing.
"""
import collections
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import xml.dom.minidom

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "fleet"))

import lines  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402
import simulate  # noqa: E402

COMPILE_SECONDS = 1.2  # seconds that the slow compiler of small fleets takes
TIMEOUT = 60
PATIENT = "unsigned=allow timeout=10s connect-timeout=5s"  # the machine may be busy


def report(name, wrong):
    """Reports. wrong: a list of failures; empty if all is well."""
    assert not wrong, f"{name}: {wrong}"


def equal(pairs):
    return [f"{name}: {actual!r}, expected {expected!r}" for name, actual, expected in pairs if actual != expected]


def close(pairs, part=0.01):
    return [f"{name}: {actual}, expected about {expected}" for name, actual, expected in pairs
            if abs(actual - expected) > part * abs(expected)]


# ---- the simulator's own parts ----

def fixed(**options):
    """Returns settings without randomness, in which only the given operations take time."""
    return simulate.Settings(**{**dict(window=0.0, compile_spread=0.0, local=0.0, rtt=0.0, command=0.0, kilobyte=0.0,
                                       accept=0.0, tell=0.0, max_clients=10**6, backlog=10**6), **options})


def run_fleet(**options):
    fleet = simulate.Fleet(fixed(**options))
    return fleet, fleet.run()


def test_queue():
    """Sixty machines ask for one kernel concurrently; a request takes 10 ms: the last has it after 180 requests."""
    _, result = run_fleet(state="warm", machines=60, keys=1, command=0.010)
    report("one server, known service times: who is last waits for all",
           close([("last", result["ended"], 1.8), ("median", result["wait_median"], 1.5)], 0.02)
           + equal([("requests", result["requests"], 180)]))


def test_link():
    """Eight answers of 1 MB share 1 MB/s: all end together after 8 s; two alone are limited by their machines."""
    _, together = run_fleet(state="warm", machines=8, keys=1, object_bytes=1_000_000, bandwidth=1e6, timeout=60.0)
    _, alone = run_fleet(state="warm", machines=2, keys=1, object_bytes=1_000_000, machine_bandwidth=1e5, timeout=60.0)
    _, late = run_fleet(state="warm", machines=8, keys=1, object_bytes=1_000_000, bandwidth=1e6)
    report("a network is shared fairly",
           close([("eight", together["wait_median"], 8), ("two", alone["wait_median"], 10)])
           + close([("peak", together["peak_bytes"], 1e6)]))
    report("an answer that takes too long is a failure, and the machine compiles",
           equal([("compiles", late["compiles_per_key"], 8.0), ("too slow", late["failures"].get("too slow"), 8)]))


def test_limits():
    """Five machines, but only three connections or queue slots."""
    _, clients = run_fleet(state="warm", machines=5, keys=1, max_clients=3)  # the other two try again when they send
    _, backlog = run_fleet(state="warm", machines=5, keys=1, backlog=3, accept=0.001)
    _, s3 = run_fleet(server="s3", state="warm", machines=5, keys=1, gets=3.0, latency=0.03, gives_up=True)
    for reason, result, refused in (("maxclients", clients, 4), ("backlog", backlog, 2)):
        report(f"{reason}: who is refused compiles", equal([("refused", result["failures"].get(reason), refused),
                                                            ("compiles", result["compiles_per_key"], 2.0)]))
    report("S3: what is over its rate is refused",
           [] if s3["failures"]["503"] >= 3 and s3["compiles_per_key"] >= 3 else [str(s3["failures"])])


def test_conservation():
    """In all cases each machine has each kernel in the end, and each compile is sent or recorded."""
    cases = [dict(server=server, state=state) for server, state in simulate.CASES]
    cases += [dict(order="shuffled"), dict(canary=5.0), dict(bandwidth=1e6), dict(max_clients=20), dict(backlog=5),
              dict(server="s3", gets=200.0, puts=100.0), dict(keeps_listening=True),
              dict(server="s3", gets=200.0, gives_up=True)]
    wrong = []
    for case in cases:
        options = {**dict(machines=40, keys=6, window=2.0), **case}
        fleet = simulate.Fleet(simulate.Settings(**options))
        result = fleet.run()
        unsent = sum(len(machine.unsent) for machine in fleet.machines)
        leases = [key for key, (owner, until) in fleet.server.state.leases.items() if owner is not None and until > 1e9]
        wrong += equal([(f"{case} kernels", result["served"], 240), (f"{case} waits", len(fleet.waits), 240),
                        (f"{case} queued", sum(len(machine.queue) for machine in fleet.machines), 0),
                        (f"{case} leases", leases, [])])
        if not unsent and result["state"] == "cold":
            wrong += equal([(f"{case} records", len(fleet.server.state.records), 6)])
        wrong += [f"{case}: negative {unsent}"] if fleet.counts.connections < 0 else []
    report("each machine gets each kernel, in every case", wrong)


def test_determinism():
    one, two, other = (simulate.simulate(machines=50, keys=5, seed=seed) for seed in (7, 7, 8))
    report("one seed, one result", equal([("again", one, two)]) + (["another seed, the same"] if one == other else []))


CONSTANTS = (  # file and name in cache/remote/, name here, how many units of the former make one of the latter
    ("miss.c", "LEASE_MS", "LEASE_SECONDS", 1000), ("miss.c", "RENEW_MS", "RENEW_SECONDS", 1000),
    ("miss.c", "TOLD_PAUSE_MS", "TOLD_PAUSE", 1000), ("miss.c", "SHORTEST_PAUSE_MS", "SHORTEST_PAUSE", 1000),
    ("miss.c", "LONGEST_PAUSE_MS", "LONGEST_PAUSE", 1000), ("miss.c", "GRACE_MS", "GRACE", 1000),
    ("miss.c", "PAUSES_IN_A_WAIT", "PAUSES_IN_A_WAIT", 1), ("health.c", "FIRST_BACKOFF_NS", "FIRST_REST", 1e9),
    ("connection.c", "MS_FOR_A_MIB", "SECONDS_FOR_A_MIB", 1000),
    ("remote_internal.h", "AOTICACHE_UNSENT_AT_ONCE", "SENT_AT_ONCE", 1),
    ("settings.c", "DEFAULT_CONNECT_MS", "CONNECT_TIMEOUT", 1000),
    ("settings.c", "DEFAULT_TIMEOUT_MS", "REQUEST_TIMEOUT", 1000),
    ("modules/http_request.c", "FIRST_RETRY_MS", "FIRST_RETRY", 1000), ("pull.c", "LISTS", "LISTS", 1))


def test_constants():
    wrong = []
    for name, theirs, ours, scale in CONSTANTS:
        with open(os.path.join(HERE, "..", "..", "..", "cache", "remote", name)) as file:
            found = re.search(rf"#define {theirs} (?:UINT64_C\()?(\d+)", file.read())
        wrong += equal([(theirs, float(found.group(1)) / scale if found else None, float(getattr(servers, ours)))])
    report("the constants are the library's", wrong)


def test_plot():
    text = lines.plot("A <title>", "machines", "seconds",
                      [("Redis", [(10, 0), (10000, 5)], False), ("Redis", [(10, 1)], True)])
    document = xml.dom.minidom.parseString(text)
    report("a plot is SVG, for light and dark pages",
           equal([("lines", len(document.getElementsByTagName("polyline")), 2),
                  ("dark", "prefers-color-scheme:dark" in text, True)]))


# ---- real servers ----

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server")


def has_module(name):
    return os.path.exists(os.path.join(BUILD, "lib", f"libaoticache_remote_{name}.so"))


@needs_redis
def test_backlog():
    """While a Redis server is busy, the kernel accepts this many connections for it, and no more."""
    with open("/proc/sys/net/core/somaxconn") as file:
        most = int(file.read())
    with measure.Server() as server:
        made = measure.queue_places(server.port)
    expected = min(most, simulate.Settings().backlog - 1) + 1
    report("as many connections wait for a busy Redis server as the simulator says",
           equal([("connections", made, expected)]))


def write_compiler(path):
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\ncase "$*" in *.c*) sleep {COMPILE_SECONDS} ;; esac\nexec cc "$@"\n')
    os.chmod(path, 0o755)


def play(directory, remote, machines, keys, environment=None):
    """Runs machines that want the same keys in the same order, all concurrently. Returns where kernels came from,
    counted."""
    compiler = os.path.join(directory, "slow-cc")
    write_compiler(compiler)
    program = os.path.join(BUILD, "bin", "aoticache")
    sources, lock = collections.Counter(), threading.Lock()

    def machine(number):
        own = {**os.environ, "AOTICACHE_DIR": os.path.join(directory, f"machine-{number}"), "AOTICACHE_HOME": BUILD,
               "AOTICACHE_CONFIG": "", "AOTICACHE_REMOTE": remote, **(environment or {})}
        for key in range(keys):
            done = subprocess.run([program, "run", "aten::abs", "--input", f"float32:{key + 4}=-2", "--hook", "c",
                                   "--cc", compiler, "--json"], env=own, capture_output=True, text=True,
                                  timeout=TIMEOUT)
            source = json.loads(done.stdout)["source"] if done.returncode == 0 else done.stderr
            with lock:
                sources[source] += 1

    threads = [threading.Thread(target=machine, args=(number,)) for number in range(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sources


def predict(server, machines, keys, latency=0.01):
    return simulate.simulate(server=server, machines=machines, keys=keys, window=0.1, is_process_per_key=True,
                             first_compile=COMPILE_SECONDS + 0.1, compile=COMPILE_SECONDS + 0.1, compile_spread=0.0,
                             latency=latency, local=0.01)


def compare(name, machines, keys, sources, asked, predicted):
    """Compares. asked: {(what, where): count} of the real server. Uploads and downloads of kernels must be equal."""
    kinds = collections.Counter(predicted["requests_by_kind"])
    compiles = predicted["compiles_per_key"] * keys
    read = kinds["record"] + kinds["read record"]
    kernels = sources["compiled"] + sources["waited"] + sources["fetched"]
    report(f"{name}: one compile for each key",
           equal([("real", sources["compiled"], keys), ("simulated", compiles, keys),
                  ("kernels", kernels, machines * keys)]))
    report(f"{name}: as many objects are fetched, asked for and sent, and records written", equal([
        ("objects fetched", asked["get", "cas"], kinds["manifest"] + kinds["file"]),
        ("objects asked for", asked["exists", "cas"], kinds["exists"]),
        ("objects sent", asked["put", "cas"], kinds["put object"]),
        ("records sent", asked["put", "ac"], kinds["put record"]),
        ("lists read", asked["get", "keys"], kinds["read list"]),
        ("lists sent", asked["put", "keys"], kinds["put list"])]))
    print(f"# {name}: records read {asked['get', 'ac']}, simulated {read}; lease {asked['any', 'lease']}, simulated "
          f"{kinds['lease'] + kinds['release'] + kinds['probe']}")
    return read, kinds["lease"] + kinds["release"] + kinds["probe"]


class Monitor(threading.Thread):
    """Records what a Redis server reports that it does: commands of clients, and those that scripts issue for them."""

    LINE = re.compile(rb'^\+?[\d.]+ \[\d+ [^\]]*\] "(\w+)"(?: "aoticache/([a-z]+)/)?')

    def __init__(self, port):
        super().__init__(daemon=True)
        self.client, self.asked = measure.Client(port), collections.Counter()
        self.client.ask(measure.command("MONITOR"))
        self.start()

    def run(self):
        names = {"GET": "get", "SET": "put", "EXISTS": "exists", "SUBSCRIBE": "subscribe", "DEL": "del"}
        try:
            for line in self.client.file:
                found = self.LINE.match(line)
                if found is None:
                    continue
                word, where = found.group(1).decode().upper(), (found.group(2) or b"").decode()
                if word in names and where:
                    self.asked[names[word], where] += 1
                if word == "EVAL" and b'"aoticache/lease/' in line:
                    self.asked["any", "lease"] += 1
                if word == "ECHO":
                    return
        except (OSError, ValueError):
            pass


@needs_redis
@pytest.mark.skipif(not has_module("redis"), reason="the module for Redis is not built")
@pytest.mark.parametrize("machines, keys", [(4, 3), (8, 2)])
def test_redis(machines, keys):
    name = f"{machines} machines, {keys} keys, Redis"
    with tempfile.TemporaryDirectory(prefix="aoticache-fleet-") as directory, measure.Server() as server:
        monitor = Monitor(server.port)
        begun = time.monotonic()
        sources = play(directory, f"redis://127.0.0.1:{server.port} {PATIENT}", machines, keys)
        print(f"# {name}: {time.monotonic() - begun:.1f} s")
        asker = measure.Client(server.port)
        asker.ask(measure.command("ECHO", "end"))
        monitor.join(TIMEOUT)
        asker.close()
        monitor.client.close()
    predicted = predict("redis", machines, keys)
    read, lease = compare(name, machines, keys, sources, monitor.asked, predicted)
    really_read, really_asked = monitor.asked["get", "ac"], monitor.asked["any", "lease"]
    # A machine that comes late asks once for an existing record; each second of waiting adds one request.
    slack = 2 * machines * keys
    report(f"{name}: records are read as often, within two for each machine and key",
           [] if abs(really_read - read) <= slack else [f"{really_read} and {read}"])
    report(f"{name}: the lease is asked for as often, within three for each machine and key",
           [] if abs(really_asked - lease) <= 1.5 * slack else [f"{really_asked} and {lease}"])


def start_moto(directory):
    """Returns (process, URL, log), or None without moto."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        return None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = os.path.join(directory, "s3.log")
    with open(log, "w") as file:
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                                   stdout=file, stderr=subprocess.STDOUT)
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/kernels", method="PUT"))
            return process, f"http://127.0.0.1:{port}", log
        except OSError:
            time.sleep(0.05)
    process.terminate()
    process.wait()
    return None


def answer_seconds(url):
    """Returns how long the server takes for a small answer."""
    times = []
    for _ in range(20):
        begun = time.monotonic()
        urllib.request.urlopen(url + "/kernels?max-keys=1").read()
        times.append(time.monotonic() - begun)
    return sorted(times)[len(times) // 2]


def read_log(path):
    asked, names = collections.Counter(), {"GET": "get", "PUT": "put", "HEAD": "exists"}
    for line in open(path, errors="replace"):
        found = re.search(r'(GET|PUT|HEAD) /kernels/fleet/([a-z]+)/', line)
        if found:
            asked[names[found.group(1)], found.group(2)] += 1
            asked["any", found.group(2)] += 1
    return asked


@pytest.mark.skipif(not has_module("http"), reason="the module for HTTP is not built: no libcurl4-openssl-dev")
@pytest.mark.parametrize("machines, keys", [(4, 2)])
def test_s3(machines, keys):
    name = f"{machines} machines, {keys} keys, S3"
    with tempfile.TemporaryDirectory(prefix="aoticache-fleet-") as directory:
        server = start_moto(directory)
        if server is None:
            pytest.skip("there is no moto (pip install \"moto[s3,server]\")")
        process, url, log = server
        try:
            latency = answer_seconds(url)
            sources = play(directory, f"s3://kernels/fleet?endpoint={url} {PATIENT}", machines, keys,
                           {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "fishsword"})
        finally:
            process.terminate()
            process.wait()
        asked = read_log(log)
    predicted = predict("s3", machines, keys, latency)
    read, lease = compare(name, machines, keys, sources, asked, predicted)
    report(f"{name}: those who wait ask as often, within a factor of three",
           [f"{what}: {real} and {simulated}" for what, real, simulated in
            (("records", asked["get", "ac"], read), ("lease", asked["any", "lease"], lease))
            if not simulated / 3 <= real <= simulated * 3])
