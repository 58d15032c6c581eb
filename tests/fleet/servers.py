"""The servers of the simulation of a fleet (simulate.py): the clock, the cost of a request for a Redis server or S3, and the
counts. The constants of the protocol and the inputs are here, too.

A Redis server is a queue for one thread, followed by a network that answers share. S3 has latencies and no queue, and refuses
requests beyond its rate.
"""
import collections
import dataclasses
import heapq
import itertools
import math
import random

# ---- the protocol: constants of the library ----

LEASE_SECONDS = 30.0       # LEASE_MS of miss.c
RENEW_SECONDS = 10.0       # RENEW_MS
TOLD_PAUSE = 1.0           # TOLD_PAUSE_MS: if the server notifies (Redis)
SHORTEST_PAUSE = 0.5       # SHORTEST_PAUSE_MS: if it does not (S3)
LONGEST_PAUSE = 2.0        # LONGEST_PAUSE_MS
GRACE = 5.0                # GRACE_MS: how long a waiting machine tolerates a server that does not answer
PAUSES_IN_A_WAIT = 8       # a pause is the time waited divided by this
JITTER = (0.75, 1.24)      # of a pause
CONNECT_TIMEOUT = 0.250    # connect-timeout=
REQUEST_TIMEOUT = 2.0      # timeout=
SECONDS_FOR_A_MIB = 1.0    # MS_FOR_A_MIB of connection.c
FIRST_RETRY = 0.1          # FIRST_RETRY_MS of modules/http_request.c
FIRST_REST = 1.0           # FIRST_BACKOFF_NS of health.c: pause after a remote's first failure, doubled after each further one
LONGEST_REST = 300.0
SENT_AT_ONCE = 8           # AOTICACHE_UNSENT_AT_ONCE of remote_internal.h: of the unsent kernels of earlier processes
LISTS = 256                # lists of keys that a pull reads

# ---- inputs: measured by tests/fleet/measure.py, or with their source in tests/fleet/README.md ----


@dataclasses.dataclass
class Settings:
    server: str = "redis"         # redis; redis-tuned: with enough slots for all connections (TUNED); s3
    state: str = "cold"           # cold: an empty server; warm: it has all kernels; prefetch: machines also pull first
    machines: int = 100
    keys: int = 20
    window: float = 10.0          # machines start within this many seconds
    canary: float = 0.0           # one machine starts this many seconds before all others
    order: str = "same"           # order of the keys; shuffled: each machine has its own
    is_process_per_key: bool = False  # a program ends after each kernel, and has then sent it
    first_compile: float = 3.4    # seconds: docs/performance.md, "What a miss costs"
    compile: float = 0.36
    compile_spread: float = 0.1   # sigma of the logarithm
    work: float = 0.0             # seconds between a kernel and the next miss
    local: float = 0.004          # unpack, verify, make durable, record
    object_bytes: int = 20_000    # size of a kernel as it is sent
    manifest_bytes: int = 750
    record_bytes: int = 450
    machine_bandwidth: float = 1.25e9 / 10  # bytes/s
    timeout: float = REQUEST_TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT
    seed: int = 1
    # Redis
    rtt: float = 0.00025
    bandwidth: float = 1.25e9     # the server's network: 10 Gbit/s
    command: float = 10e-6        # one script, without its bytes
    kilobyte: float = 1.65e-6     # more for each 1,000 bytes
    accept: float = 34e-6         # a connection, including its end
    tell: float = 10e-6           # notifying one listener of a release
    max_clients: int = 10_000
    backlog: int = 512            # tcp-backlog 511, and one
    # S3
    latency: float = 0.030        # median
    latency_spread: float = 0.5   # sigma of the logarithm: p99 is 3.2 times the median
    gets: float = 5500.0          # per second and partition
    puts: float = 3500.0
    partitions: int = 1
    # changes of the protocol, to see their effect
    first_pause: float = SHORTEST_PAUSE
    keeps_listening: bool = False  # one connection for listening, not one for each wait
    gives_up: bool = False         # at a 503; otherwise retries after FIRST_RETRY, doubled each time, within a request's limit


TUNED = {"max_clients": 65_000, "backlog": 65_535}
FAILED, ABSENT, LOCKED, DONE = "failed", "absent", "locked", "done"


class Loop:
    """Runs events in the order of their times."""

    def __init__(self):
        self.now, self.heap, self.ids = 0.0, [], itertools.count()

    def at(self, when, call, argument=None):
        heapq.heappush(self.heap, (when, next(self.ids), call, argument))

    def run(self):
        heap, pop = self.heap, heapq.heappop
        while heap:
            self.now, _, call, argument = pop(heap)
            call(argument)


class Task:
    """A generator that yields whenever another event must resume it."""

    def __init__(self, generator):
        self.send = generator.send

    def resume(self, value=None):
        try:
            self.send(value)
        except StopIteration:
            pass


class Counts:
    """The server's work: totals, and sums for each second."""

    def __init__(self):
        self.requests = collections.Counter()
        self.per_second = collections.Counter()
        self.bytes_per_second = collections.Counter()
        self.busy_per_second = collections.Counter()
        self.failures = collections.Counter()
        self.bytes_out = self.bytes_in = 0
        self.connections = self.most_connections = self.connects = 0
        self.most_queued = 0.0

    def request(self, now, kind, count=1):
        self.requests[kind] += count
        self.per_second[int(now)] += count

    def connect(self, change):
        self.connections += change
        self.connects += change > 0
        self.most_connections = max(self.most_connections, self.connections)

    def spread(self, table, begin, end, amount):
        """Distributes an amount over the seconds between two times."""
        while int(begin) < int(end):
            edge = int(begin) + 1
            part = amount * (edge - begin) / (end - begin)
            table[int(begin)] += part
            amount, begin = amount - part, float(edge)
        table[int(begin)] += amount


class Link:
    """A network that answers share: each gets an equal part of it, up to what a machine can receive.

    `virtual` is how many bytes each answer has received since the beginning; an answer ends when it has received its own size.
    """

    def __init__(self, loop, counts, rate, most):
        self.loop, self.counts, self.rate, self.most = loop, counts, rate, most
        self.virtual = self.last = 0.0
        self.active, self.heap, self.next, self.queued = 0, [], math.inf, 0.0

    def advance(self):
        now = self.loop.now
        if self.active and now > self.last:
            step = (now - self.last) * min(self.rate / self.active, self.most)
            self.virtual += step
            self.queued -= step * self.active
            self.counts.bytes_out += step * self.active
            self.counts.spread(self.counts.bytes_per_second, self.last, now, step * self.active)
        self.last = now

    def plan(self):
        while self.heap and self.heap[0][2] is None:
            heapq.heappop(self.heap)
        if self.heap:
            speed = min(self.rate / self.active, self.most)
            when = self.loop.now + max(0.0, self.heap[0][0] - self.virtual) / speed
            if when < self.next:
                self.next = when
                self.loop.at(when, self.tick)

    def start(self, flow):
        """flow: [bytes, resume, deadline]"""
        size, resume, deadline = flow
        self.advance()
        entry = [self.virtual + size, next(self.loop.ids), resume]
        heapq.heappush(self.heap, entry)
        self.active += 1
        self.queued += size
        self.counts.most_queued = max(self.counts.most_queued, self.queued)
        self.loop.at(deadline, self.expire, entry)
        self.plan()

    def tick(self, _):
        if self.loop.now < self.next:
            return  # another tick came first
        self.next = math.inf
        self.advance()
        while self.heap and (self.heap[0][2] is None or self.heap[0][0] <= self.virtual + 1e-3):
            resume = heapq.heappop(self.heap)[2]
            if resume is not None:
                self.active -= 1
                resume(DONE)
        self.plan()

    def expire(self, entry):
        resume, entry_end = entry[2], entry[0]
        if resume is None or entry_end <= self.virtual:
            return
        self.advance()
        if entry_end <= self.virtual + 1e-3:
            return
        entry[2] = None
        self.active -= 1
        self.queued -= entry_end - self.virtual
        self.counts.failures["too slow"] += 1
        resume(FAILED)
        self.plan()


class State:
    """The state of a server: records, leases, and listeners."""

    def __init__(self, is_full):
        self.is_full, self.records, self.leases, self.listeners = is_full, set(), {}, collections.defaultdict(dict)

    def has(self, key):
        return self.is_full or key in self.records


class Redis:
    """One thread that processes requests one after the other, and a network."""

    tells, is_conditional = True, True

    def __init__(self, settings, loop, counts):
        self.settings, self.loop, self.counts = settings, loop, counts
        self.state = State(settings.state != "cold")
        self.free = 0.0
        self.accepts = collections.deque()
        self.link = Link(loop, counts, settings.bandwidth, settings.machine_bandwidth)

    def work(self, seconds):
        begin = max(self.free, self.loop.now + self.settings.rtt / 2)
        self.free = begin + seconds
        self.counts.spread(self.counts.busy_per_second, begin, self.free, seconds)
        return self.free

    def connect(self, task):
        """Resumes with whether there is a connection: the kernel accepts it, and the server takes it from the backlog later."""
        settings, now = self.settings, self.loop.now
        while self.accepts and self.accepts[0] <= now:
            self.accepts.popleft()
        if len(self.accepts) >= settings.backlog:
            self.counts.failures["backlog"] += 1
            self.loop.at(now + settings.connect_timeout, task.resume, False)
            return
        self.accepts.append(self.work(settings.accept))
        is_taken = self.counts.connections < settings.max_clients
        if is_taken:
            self.counts.connect(1)
        else:
            self.counts.failures["maxclients"] += 1
        self.loop.at(now + settings.rtt if is_taken else self.free + settings.rtt / 2, task.resume, is_taken)

    def ask(self, task, kind, value, size=0, sent=0, count=1):
        """Makes one request. Resumes with `value`, or FAILED; `size` bytes are received, `sent` bytes are sent."""
        settings, now = self.settings, self.loop.now
        self.counts.request(now, kind, count)
        self.counts.bytes_in += sent
        done = self.work(count * settings.command + (size + sent) / 1000 * settings.kilobyte)
        limit = now + settings.timeout + (size + sent) / 2**20 * SECONDS_FOR_A_MIB
        if done + settings.rtt / 2 > limit:
            self.counts.failures["too slow"] += 1
            self.loop.at(limit, task.resume, FAILED)
        elif size > 4096:
            self.loop.at(done + settings.rtt / 2, self.link.start,
                         (size, task.resume if value is DONE else lambda end: task.resume(end and value), limit))
        else:
            if size:
                self.counts.bytes_out += size
                self.counts.bytes_per_second[int(done)] += size
            self.loop.at(done + settings.rtt / 2 + sent / settings.machine_bandwidth, task.resume, value)

    def acquire(self, task, machine, key):
        owner, until = self.state.leases.get(key, (None, 0.0))
        is_free = owner is None or owner is machine or until <= self.loop.now
        if is_free:
            self.state.leases[key] = (machine, self.loop.now + LEASE_SECONDS)
        self.ask(task, "lease", DONE if is_free else LOCKED)

    def release(self, machine, key, task):
        """Makes one request; the server notifies the listeners of it, one after the other."""
        self.ask(task, "release", DONE)
        if self.state.leases.get(key, (None, 0.0))[0] is not machine:
            return
        del self.state.leases[key]
        listeners = list(self.state.listeners.pop(key, {}).values())
        when = self.free
        for wake in listeners:
            when += self.settings.tell
            self.loop.at(when + self.settings.rtt / 2, wake, True)
        if listeners:
            self.counts.spread(self.counts.busy_per_second, self.free, when, when - self.free)
            self.free = when
            self.counts.requests["told"] += len(listeners)


class S3:
    """Latencies without a queue, and a limit of requests per second; requests beyond it are refused (503)."""

    tells, is_conditional = False, False

    def __init__(self, settings, loop, counts):
        self.settings, self.loop, self.counts = settings, loop, counts
        self.state = State(settings.state != "cold")
        self.random = random.Random(settings.seed + 1)
        self.rates = {"get": settings.gets * settings.partitions, "put": settings.puts * settings.partitions}
        self.left, self.filled = dict(self.rates), 0.0

    def is_allowed(self, way, count):
        """Returns whether a second's requests are not used up: the allowance of one second fills at the rate."""
        passed, self.filled = self.loop.now - self.filled, self.loop.now
        for each, rate in self.rates.items():
            self.left[each] = min(rate, self.left[each] + passed * rate)
        if self.left[way] < count:
            return False
        self.left[way] -= count
        return True

    def delay(self):
        return self.settings.latency * math.exp(self.random.gauss(0, self.settings.latency_spread))

    def connect(self, task):
        self.counts.connect(1)
        self.loop.at(self.loop.now + self.settings.latency / 10, task.resume, True)

    def ask(self, task, kind, value, size=0, sent=0, count=1, attempt=0, begun=None):
        now, way = self.loop.now, "put" if sent else "get"
        begun = now if begun is None else begun
        self.counts.request(now, kind, count)
        self.counts.requests["PUT" if sent else "GET"] += count
        delay = sum(self.delay() for _ in range(count))
        if not self.is_allowed(way, count):
            self.counts.failures["503"] += 1
            pause = delay + FIRST_RETRY * 2**attempt * self.random.uniform(0.5, 1.5)
            if not self.settings.gives_up and now + pause < begun + self.settings.timeout:
                self.loop.at(now + pause, lambda _: self.ask(task, kind, value, size, sent, count, attempt + 1, begun))
            else:
                self.loop.at(now + delay, task.resume, FAILED)
            return
        limit = count * (self.settings.timeout + (size + sent) / 2**20 * SECONDS_FOR_A_MIB)
        if delay > limit:
            self.counts.failures["too slow"] += 1
            value, delay = FAILED, limit
        self.counts.bytes_in += sent
        self.counts.bytes_out += size
        done = now + delay + (size + sent) / self.settings.machine_bandwidth
        self.counts.bytes_per_second[int(done)] += size
        self.loop.at(done, task.resume, value)
