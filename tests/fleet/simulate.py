"""Simulates how a fleet of machines loads a Redis server or S3 when all of them want the same kernels (docs/fleet.md).

A discrete-event simulation of the protocol of cache/remote/. Each machine asks for keys one after the other, with the
requests, pauses, time limits and backoffs of miss.c, fetch.c, send.c, push.c, connection.c and the two modules. A machine
makes the remote requests of one cache directory; other processes of that machine wait for it locally. The servers, the
constants of the protocol and the inputs are in servers.py.

The server's state changes in the order in which requests are sent. All randomness comes from one seed, so a run can be
repeated to the last digit. tests/python/fleet/test_fleet_simulation.py compares small cases with real servers.

    python3 tests/fleet/simulate.py                               # one case, as JSON
    python3 tests/fleet/simulate.py --server s3 --state warm --machines 300
    python3 tests/fleet/simulate.py --table --plots docs/images   # all sizes: a table, and the plots of docs/fleet.md
"""
import argparse
import collections
import dataclasses
import json
import math
import os
import random
import sys

import lines
from servers import (ABSENT, DONE, FAILED, FIRST_REST, GRACE, JITTER, LEASE_SECONDS, LISTS, LOCKED, LONGEST_PAUSE,
                     LONGEST_REST, PAUSES_IN_A_WAIT, RENEW_SECONDS, S3, SENT_AT_ONCE, TOLD_PAUSE, TUNED, Counts, Loop,
                     Redis, Settings, Task)


class Machine:
    """One cache directory with its processes: its kernels, and the state of its remote."""

    def __init__(self, fleet, number):
        self.fleet, self.settings, self.server, self.loop = fleet, fleet.settings, fleet.server, fleet.loop
        self.random = random.Random(fleet.settings.seed * 1_000_003 + number)
        self.has, self.compiles, self.failures, self.rests_until = set(), 0, 0, 0.0
        self.is_connected, self.listens, self.is_probed, self.sender_connected = False, False, False, False
        self.queue, self.unsent, self.is_sending = collections.deque(), collections.deque(), False
        self.sent = None  # the task that waits until all is sent
        self.turns = 0    # how often it waited for a notification

    # ---- requests ----

    def is_awake(self):
        return self.loop.now >= self.rests_until

    def note(self, is_good):
        if is_good:
            self.failures = 0
            return
        self.rests_until = self.loop.now + min(LONGEST_REST, FIRST_REST * 2 ** min(self.failures, 9))
        self.failures += 1
        self.fleet.counts.failures["rests"] += self.failures == 1

    def ask(self, task, kind, value, size=0, sent=0, count=1, is_sender=False):
        """Generator for the answer. Makes a connection first if there is none."""
        name = "sender_connected" if is_sender else "is_connected"
        if not getattr(self, name):
            is_made = yield self.server.connect(task)
            if not is_made:
                self.note(False)
                return FAILED
            setattr(self, name, True)
        answer = yield self.server.ask(task, kind, value, size, sent, count)
        self.note(answer is not FAILED)
        if answer is FAILED and self.server.tells:
            setattr(self, name, False)  # a late answer must not be read as that of another request
            self.fleet.counts.connect(-1)
        return answer

    def pause(self, task, seconds):
        return self.loop.at(self.loop.now + seconds, task.resume)

    # ---- fetching (fetch.c) ----

    def fetch(self, task, key):
        """Returns whether the kernel was fetched."""
        if not self.is_awake():
            return False
        has = self.server.state.has(key)
        settings = self.settings
        answer = yield from self.ask(task, "record", DONE if has else ABSENT, settings.record_bytes if has else 60)
        if answer is not DONE:
            return False
        for kind, size in (("manifest", settings.manifest_bytes), ("file", settings.object_bytes)):
            answer = yield from self.ask(task, kind, DONE, size)
            if answer is not DONE:
                return False
        yield self.pause(task, settings.local)
        return True

    # ---- the lease (miss.c) ----

    def acquire(self, task, key):
        if self.server.tells:
            if not self.is_connected:
                answer = yield from self.ask(task, "lease", ABSENT)  # connects; then runs the script itself
                if answer is FAILED:
                    return FAILED
                self.fleet.counts.requests["lease"] -= 1
            answer = yield self.server.acquire(task, self, key)
            self.note(answer is not FAILED)
            return answer
        if not self.is_probed:
            for _ in range(2):
                if (yield from self.ask(task, "probe", DONE, sent=5)) is FAILED:
                    return FAILED
            self.is_probed = True
        seen = self.server.state.leases.get(key)
        if (yield from self.ask(task, "lease", DONE, 60)) is FAILED:
            return FAILED
        if seen is not None and seen[0] is not None and seen[1] > self.loop.now:
            return LOCKED
        is_won = self.server.state.leases.get(key) is seen
        if is_won:
            self.server.state.leases[key] = (self, self.loop.now + LEASE_SECONDS)
        return (yield from self.ask(task, "lease", DONE if is_won else LOCKED, sent=40))

    def release(self, task, key, is_sender):
        connected = "sender_connected" if is_sender else "is_connected"
        if self.server.tells:
            if not getattr(self, connected):
                if not (yield self.server.connect(task)):
                    self.note(False)
                    self.lapse(key)
                    return
                setattr(self, connected, True)
            yield self.server.release(self, key, task)
            return
        answer = yield from self.ask(task, "release", DONE, 60, is_sender=is_sender)
        if answer is DONE:
            if self.server.state.leases.get(key, (None,))[0] is self:
                self.server.state.leases[key] = (None, 0.0)
            answer = yield from self.ask(task, "release", DONE, sent=1, is_sender=is_sender)
        if answer is FAILED:
            self.lapse(key)

    def lapse(self, key):
        """A lease that is not released expires."""
        if self.server.state.leases.get(key, (None,))[0] is self:
            self.server.state.leases[key] = (self, self.loop.now + LEASE_SECONDS)

    def renew(self, key):
        owner, _ = self.server.state.leases.get(key, (None, 0.0))
        if owner is self:
            self.server.state.leases[key] = (self, math.inf)  # until release() or lapse()

    def wait(self, task, key):
        """Waits until the kernel was fetched (DONE), we have the lease (LOCKED), or both fail (FAILED)."""
        begun = self.loop.now
        can_hear = False
        if self.server.tells:
            can_hear = yield from self.listen(task)
        ticket = [None]
        if can_hear:
            self.hear(task, key, ticket)
        answer, answered = (yield from self.look(task, key, False)), self.loop.now
        while answer is None or (answer is FAILED and self.loop.now - answered < GRACE):
            was_told = yield from self.wait_a_while(task, key, ticket, begun, can_hear)
            answer = yield from self.look(task, key, was_told)
            answered = self.loop.now if answer is None else answered
        self.server.state.listeners[key].pop(self, None)
        if can_hear and not self.settings.keeps_listening:
            self.fleet.counts.connect(-1)
            self.listens = False
        return answer

    def listen(self, task):
        if not self.listens:
            is_made = yield self.server.connect(task)
            if not is_made:
                return False
            self.listens = True
        answer = yield self.server.ask(task, "subscribe", DONE)
        return answer is DONE

    def hear(self, task, key, ticket):
        """From now on a release wakes the task, or is recorded if the task is busy."""
        def wake(was_told):
            if ticket[0] == "waits":
                ticket[0] = None
                task.resume(was_told)
            elif was_told:
                ticket[0] = "told"
        ticket[0] = None
        self.server.state.listeners[key][self] = wake

    def wait_a_while(self, task, key, ticket, begun, can_hear):
        """Returns whether the server notified it."""
        settings = self.settings
        pause = min(max((self.loop.now - begun) / PAUSES_IN_A_WAIT, settings.first_pause), LONGEST_PAUSE)
        pause = (TOLD_PAUSE if can_hear else pause) * self.random.uniform(*JITTER)
        if not can_hear:
            yield self.pause(task, pause)
            return False
        was_told = ticket[0] == "told"
        if not was_told:
            turn = self.turns

            def end(_):
                if self.turns == turn:
                    ticket[0] = None
                    task.resume(False)
            ticket[0] = "waits"
            self.loop.at(self.loop.now + pause, end)
            was_told = yield
            self.turns += 1
        if was_told:
            self.hear(task, key, ticket)  # the notification removed it from the list of listeners
        return was_told

    def look(self, task, key, was_told):
        """Returns wait()'s result, or None to continue: fetches, and asks for the lease, in the order of
        wait_for_entry()."""
        if was_told and (yield from self.fetch(task, key)):
            return DONE
        answer = yield from self.acquire(task, key)
        if not was_told and (yield from self.fetch(task, key)):
            if answer is DONE:
                yield from self.release(task, key, False)
            return DONE
        return {LOCKED: None, DONE: LOCKED, FAILED: FAILED}[answer]

    # ---- a miss (get_or_compile.c) ----

    def miss(self, task, key):
        if (yield from self.fetch(task, key)):
            return
        has_lease = False
        if self.is_awake():
            answer = yield from self.acquire(task, key)
            if answer is DONE:
                has_lease = True
                if (yield from self.fetch(task, key)):
                    yield from self.release(task, key, False)
                    return
            elif answer is LOCKED:
                answer = yield from self.wait(task, key)
                if answer is DONE:
                    return
                has_lease = answer is LOCKED
        yield from self.compile(task, key, has_lease)

    def compile(self, task, key, has_lease):
        settings = self.settings
        seconds = settings.compile if self.compiles else settings.first_compile
        seconds *= math.exp(self.random.gauss(0, settings.compile_spread)) if settings.compile_spread else 1
        self.compiles += 1
        self.fleet.compiles[key] += 1
        if has_lease:
            self.renew(key)
            self.fleet.counts.requests["lease"] += int(seconds / RENEW_SECONDS)
        yield self.pause(task, seconds)
        self.queue.append((key, has_lease))
        if not self.is_sending:
            self.is_sending = True
            sender = Task(self.send_all(lambda: sender))
            self.loop.at(self.loop.now, sender.resume)
        if settings.is_process_per_key and self.is_sending:
            self.sent = task
            yield

    # ---- sending (sender.c, send.c, push.c) ----

    def send_all(self, get_task):
        task = get_task()
        while self.queue:
            key, has_lease = self.queue.popleft()
            is_sent = self.is_awake() and (yield from self.send(task, key))
            if not is_sent:
                self.unsent.append(key)
            if has_lease:
                yield from self.release(task, key, True)
            for _ in range(min(SENT_AT_ONCE, len(self.unsent)) if is_sent and not self.queue else 0):
                if not (yield from self.send(task, self.unsent[0])):
                    break
                self.unsent.popleft()
        self.is_sending = False
        if self.sent is not None:
            waiting, self.sent = self.sent, None
            waiting.resume()

    def send(self, task, key):
        settings = self.settings
        for size in (settings.object_bytes, settings.manifest_bytes):
            if (yield from self.ask(task, "exists", ABSENT, is_sender=True)) is FAILED:
                return False
            if (yield from self.ask(task, "put object", DONE, sent=size, is_sender=True)) is FAILED:
                return False
        for kind, size in (("record", settings.record_bytes), ("list", 94)):
            if (yield from self.ask(task, f"read {kind}", DONE, size, is_sender=True)) is FAILED:
                return False
            if (yield from self.ask(task, f"put {kind}", DONE, sent=size, is_sender=True)) is FAILED:
                return False
            if kind == "record":
                self.server.state.records.add(key)
            if not self.server.is_conditional:  # checks whether another has written meanwhile
                if (yield from self.ask(task, f"read {kind}", DONE, size, is_sender=True)) is FAILED:
                    return False
        return True

    # ---- the program ----

    def pull(self, task):
        """Runs aoticache pull --all, before the program starts. It ends with the first request that fails."""
        settings, together = self.settings, 1 if self.server.tells else 4  # lists of one event
        size = together * settings.keys * 90 // LISTS
        for _ in range(LISTS // together):
            if (yield from self.ask(task, "list", DONE, size, count=together)) is FAILED:
                return
        for key in range(settings.keys):
            if not (yield from self.fetch(task, key)):
                return
            self.has.add(key)

    def run(self, get_task):
        task, settings = get_task(), self.settings
        begun = self.loop.now
        if settings.state == "prefetch":
            yield from self.pull(task)
            self.fleet.pulls.append(self.loop.now - begun)
        keys = list(range(settings.keys))
        if settings.order == "shuffled":
            self.random.shuffle(keys)
        for key in keys:
            missed = self.loop.now
            if key not in self.has:
                yield from self.miss(task, key)
                self.has.add(key)
            self.fleet.waits.append(self.loop.now - missed)
            if settings.is_process_per_key and self.server.tells and self.is_connected:
                self.disconnect()
            if settings.work:
                yield self.pause(task, settings.work)
        self.fleet.ready.append(self.loop.now - begun)
        self.fleet.ends.append(self.loop.now)

    def disconnect(self):
        self.fleet.counts.connect(-1)
        self.is_connected = False
        if self.sender_connected:
            self.fleet.counts.connect(-1)
            self.sender_connected = False


class Fleet:
    def __init__(self, settings):
        if settings.server == "redis-tuned":
            settings = dataclasses.replace(settings, **TUNED)
        self.settings, self.loop, self.counts = settings, Loop(), Counts()
        self.server = (S3 if settings.server == "s3" else Redis)(settings, self.loop, self.counts)
        self.compiles = collections.Counter()
        self.waits, self.ready, self.ends, self.pulls = [], [], [], []
        self.machines = [Machine(self, number) for number in range(settings.machines)]

    def start(self):
        draw = random.Random(self.settings.seed)
        for number, machine in enumerate(self.machines):
            begin = 0.0 if self.settings.canary and number == 0 else (
                self.settings.canary + draw.random() * self.settings.window)
            task = Task(machine.run(lambda machine=machine: machine.task))
            machine.task = task
            self.loop.at(begin, task.resume)

    def run(self):
        self.start()
        self.loop.run()
        return self.result()

    def result(self):
        settings, counts = self.settings, self.counts
        requests = {kind: count for kind, count in sorted(counts.requests.items()) if count}
        total = sum(count for kind, count in requests.items() if kind not in ("told", "GET", "PUT"))
        return {
            "server": settings.server, "state": settings.state, "machines": settings.machines, "keys": settings.keys,
            "compiles_per_key": round(sum(self.compiles.values()) / settings.keys, 3),
            "most_compiles_of_a_key": max(self.compiles.values(), default=0),
            "wait_median": quantile(self.waits, 0.5), "wait_p99": quantile(self.waits, 0.99),
            "pull_median": quantile(self.pulls, 0.5), "pull_p99": quantile(self.pulls, 0.99),
            "ready_median": quantile(self.ready, 0.5), "ready_p99": quantile(self.ready, 0.99),
            "ended": round(max(self.ends, default=0), 2),
            "requests": total, "requests_by_kind": requests,
            "peak_requests": max(counts.per_second.values(), default=0),
            "bytes_out": round(counts.bytes_out), "bytes_in": counts.bytes_in,
            "peak_bytes": round(max(counts.bytes_per_second.values(), default=0)),
            "peak_busy": round(max(counts.busy_per_second.values(), default=0), 3),
            "peak_queued_bytes": round(counts.most_queued),
            "connections": counts.most_connections, "connects": counts.connects,
            "failures": dict(sorted(counts.failures.items())),
            "first_minute": {"requests": sum(n for second, n in counts.per_second.items() if second < 60),
                             "bytes": round(sum(n for second, n in counts.bytes_per_second.items() if second < 60)),
                             "ready": sum(end < 60 for end in self.ends)},
            "served": sum(len(machine.has) for machine in self.machines),
        }


def quantile(values, part):
    if not values:
        return 0.0
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)], 4)


def simulate(**options):
    """Returns the result of one case, as a dictionary."""
    return Fleet(Settings(**options)).run()


# ---- many cases ----

SIZES = (10, 30, 100, 300, 1000, 3000, 10000)
STATES = ("cold", "warm", "prefetch")
CASES = (("redis", "cold"), ("redis-tuned", "cold"), ("redis", "warm"), ("redis", "prefetch"),
         *(("s3", state) for state in STATES))
COLUMNS = (("server", "{}"), ("state", "{}"), ("machines", "{:,}"), ("compiles_per_key", "{:.2f}"),
           ("wait_median", "{:.3f}"), ("wait_p99", "{:.3f}"), ("ready_median", "{:.1f}"), ("ready_p99", "{:.1f}"),
           ("requests", "{:,}"), ("peak_requests", "{:,}"), ("bytes_out", "{:,}"), ("peak_bytes", "{:,}"),
           ("connections", "{:,}"), ("peak_busy", "{:.2f}"))


def print_table(results):
    print("| " + " | ".join(name.replace("_", " ") for name, _ in COLUMNS) + " | failures |")
    print("| " + "--- | " * (len(COLUMNS) + 1))
    for result in results:
        failures = ", ".join(f"{count:,} {name}" for name, count in result["failures"].items())
        print("| " + " | ".join(form.format(result[name]) for name, form in COLUMNS) + f" | {failures or '-'} |")


def series(results, column):
    """Returns [(label, [(machines, value)])] for the plots."""
    names = {"redis": "Redis", "redis-tuned": "Redis, tuned", "s3": "S3"}
    found = []
    for each, state in CASES:
        points = [(r["machines"], r[column]) for r in results if (r["server"], r["state"]) == (each, state)]
        if points:
            found.append((f"{names[each]}, {state}", points))
    return found


PLOTS = {  # name: (title, unit, meaning of the line, meaning of the dashed line)
    "compiles": ("Compiles of each key", "compiles", "compiles_per_key", None),
    "requests": ("Most requests in a second", "requests/s", "peak_requests", None),
    "bytes": ("Bytes sent by the server", "bytes", "bytes_out", None),
    "ready": ("Time until a machine has all kernels: median, dashed p99", "seconds", "ready_median", "ready_p99"),
    "waiting": ("Time that a miss waits: median, dashed p99", "seconds", "wait_median", "wait_p99"),
}


def draw_plots(results, directory):
    os.makedirs(directory, exist_ok=True)
    for name, (title, unit, whole, dashed) in PLOTS.items():
        all_series = [(*one, False) for one in series(results, whole)]
        all_series += [(*one, True) for one in series(results, dashed)] if dashed else []
        with open(os.path.join(directory, f"fleet-{name}.svg"), "w") as file:
            file.write(lines.plot(title, "machines", unit, all_series))


CHANGES = ("--first-pause", "--keeps-listening", "--gives-up")


def read_arguments():
    parser = argparse.ArgumentParser(description="Simulates a fleet of machines and the server of its kernels.")
    changes = parser.add_argument_group("changes of the protocol, to see what they bring")
    for field in dataclasses.fields(Settings):
        name, kind = "--" + field.name.replace("_", "-"), type(field.default)
        group = changes if name in CHANGES else parser
        if kind is bool:
            group.add_argument(name, action="store_true")
        else:
            group.add_argument(name, type=kind, default=field.default, help=f"default {field.default}")
    parser.add_argument("--sizes", help="numbers of machines, separated by commas")
    parser.add_argument("--cases", help="SERVER:STATE, separated by commas; default those of the plots")
    parser.add_argument("--table", action="store_true", help="all sizes and cases, as a table")
    parser.add_argument("--plots", metavar="DIRECTORY", help="draws the plots of a table there")
    parser.add_argument("--save", metavar="FILE", help="writes the results as JSON")
    parser.add_argument("--load", metavar="FILE", nargs="*", help="takes results from files instead of simulating")
    return parser.parse_args()


def run_cases(arguments, options):
    sizes = [int(size) for size in arguments.sizes.split(",")] if arguments.sizes else SIZES
    cases = [tuple(case.split(":")) for case in arguments.cases.split(",")] if arguments.cases else CASES
    results = []
    for server, state in cases:
        for machines in sizes:
            print(f"{server} {state} {machines}", file=sys.stderr)
            results.append(simulate(**{**options, "server": server, "state": state, "machines": machines}))
    return results


def main():
    arguments = read_arguments()
    options = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Settings)}
    if arguments.load:
        results = [result for path in arguments.load for result in json.load(open(path))]
    elif arguments.table or arguments.plots or arguments.sizes or arguments.cases:
        results = run_cases(arguments, options)
    else:
        results = [simulate(**options)]
    if arguments.save:
        with open(arguments.save, "w") as file:
            json.dump(results, file, indent=1)
    if arguments.table:
        print_table(results)
    elif not arguments.save:
        print(json.dumps(results, indent=1))
    if arguments.plots:
        draw_plots(results, arguments.plots)


if __name__ == "__main__":
    main()
