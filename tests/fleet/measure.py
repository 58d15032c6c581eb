"""Measures what the requests of cache/remote/modules/redis.c cost a Redis server: inputs of simulate.py
(tests/fleet/README.md).

Starts a redis-server on the loopback and sends it the same scripts over many connections. The times are the processor
time that the server itself has used (INFO cpu), so a busy machine changes them little; the latency is one client's.
Then it measures the limits: how many connections wait for a busy server, and how unread answers affect its kernels.

    python3 tests/fleet/measure.py [REQUESTS]
"""
import json
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CONNECTIONS, OBJECT, LARGE = 50, 20_000, 200_000
GET = "return redis.call('GET', KEYS[1])"
EXISTS = "return redis.call('EXISTS', KEYS[1])"
PUT = "redis.call('SET', KEYS[1], ARGV[1]) return 1"
ACQUIRE = ("local v = redis.call('GET', KEYS[1]) if v and v ~= ARGV[1] then return 0 end "
           "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1")


def command(*words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def script(text, name, first=b"", second=""):
    return command("EVAL", text, 1, "aoticache/" + name, first, second)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def read(self):
        """Reads one answer: a number, a line, bytes or None."""
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b":" else rest

    def ask(self, bytes_):
        self.socket.sendall(bytes_)
        return self.read()

    def info(self, section):
        pairs = (line.split(":", 1) for line in self.ask(command("INFO", section)).decode().splitlines() if ":" in line)
        return dict(pairs)

    def close(self):
        self.file.close()
        self.socket.close()


class Server:
    """Our own redis-server, on a free port."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.directory = tempfile.TemporaryDirectory(prefix="aoticache-redis-")
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--dir", self.directory.name, "--daemonize", "no"], stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                Client(self.port).close()
                return
            except OSError:
                time.sleep(0.05)
        self.close()
        raise RuntimeError("redis-server does not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.directory.cleanup()


def processor_seconds(client):
    info = client.info("cpu")
    return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])


def cost(client, clients, request, count):
    """Returns the server's processor seconds for one request, sent over all connections."""
    rounds = max(1, count // len(clients))
    before = processor_seconds(client)
    for _ in range(rounds):
        for each in clients:
            each.socket.sendall(request)
        for each in clients:
            each.read()
    return (processor_seconds(client) - before) / (rounds * len(clients))


def cost_of_connecting(client, port, count):
    before = processor_seconds(client)
    for _ in range(count):
        Client(port).close()
    time.sleep(0.1)
    return (processor_seconds(client) - before) / count


def cost_of_telling(client, port, listeners, count):
    """Returns the cost of notifying one listener, including its share of the PUBLISH."""
    heard = [Client(port) for _ in range(listeners)]
    for each in heard:
        each.ask(command("SUBSCRIBE", "aoticache/lease/x"))
    before = processor_seconds(client)
    for _ in range(count):
        client.ask(command("PUBLISH", "aoticache/lease/x", ""))
        for each in heard:
            each.read()
    spent = processor_seconds(client) - before
    for each in heard:
        each.close()
    return spent / count / listeners


def latency(client, request, count):
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        client.ask(request)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


# ---- limits ----

BUSY = ("local b = redis.call('TIME') local e = b[1] * 1000000 + b[2] + ARGV[1] * 1000 "
        "repeat local n = redis.call('TIME') until n[1] * 1000000 + n[2] > e return 1")


def queue_places(port, tries=1500, busy_ms=1500, limit=0.25):
    """Returns how many of this many connections are made within the limit while the server is busy."""
    client = Client(port)
    client.socket.sendall(script(BUSY, "busy", str(busy_ms)))
    time.sleep(0.1)
    sockets, made = [], set()
    for _ in range(tries):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        sockets.append(one)
    waiting = select.poll()
    for one in sockets:
        waiting.register(one, select.POLLOUT)
    end = time.monotonic() + limit
    while (left := end - time.monotonic()) > 0:
        for number, event in waiting.poll(1000 * left):
            waiting.unregister(number)
            if not event & (select.POLLERR | select.POLLHUP):
                made.add(number)
    for one in sockets:
        one.close()
    client.read()
    client.close()
    return len(made)


def kernels_left(port, readers=800, answers=4, kernels=50):
    """Returns how many of 50 kernels of 200 kB a server of 200 MB still has after clients have sent requests without
    reading."""
    client = Client(port)
    for option, value in (("maxmemory", "200mb"), ("maxmemory-policy", "allkeys-lru")):
        client.ask(command("CONFIG", "SET", option, value))
    for number in range(kernels):
        client.ask(script(PUT, f"cas/{number}", b"x" * LARGE))
    clients = [Client(port) for _ in range(readers)]
    for number, each in enumerate(clients):
        each.socket.sendall(script(GET, f"cas/{number % kernels}") * answers)
    deadline = time.monotonic() + 5
    while (left := client.ask(command("DBSIZE"))) == kernels and time.monotonic() < deadline:
        time.sleep(0.2)
    for each in clients + [client]:
        each.close()
    return left


def measure(count):
    with Server() as server:
        client = Client(server.port)
        clients = [Client(server.port) for _ in range(CONNECTIONS)]
        client.ask(script(PUT, "cas/object", b"x" * OBJECT))
        client.ask(script(PUT, "cas/large", b"x" * LARGE))
        client.ask(script(PUT, "ac/key", b"x" * 450))
        client.ask(script(ACQUIRE, "lease/key", b"somebody", 600000))
        requests = {
            "get a record that is not there": (script(GET, "ac/none"), count),
            "get a record": (script(GET, "ac/key"), count),
            "get an object of 20 kB": (script(GET, "cas/object"), count),
            "get an object of 200 kB": (script(GET, "cas/large"), count // 10),
            "ask for a lease that another has": (script(ACQUIRE, "lease/key", b"another", 30000), count),
            "ask whether an object is there": (script(EXISTS, "cas/object"), count),
            "put an object of 20 kB": (script(PUT, "cas/other", b"x" * OBJECT), count // 4),
        }
        found = {name: round(1e6 * cost(client, clients, *each), 2) for name, each in requests.items()}
        found["a connection and its end"] = round(1e6 * cost_of_connecting(client, server.port, count // 4), 2)
        telling = cost_of_telling(client, server.port, 500, max(2, count // 2000))
        found["telling one who listens"] = round(1e6 * telling, 2)
        found["latency of one client alone"] = round(1e6 * latency(client, script(GET, "ac/key"), count // 10), 2)
        for each in clients + [client]:
            each.close()
        return found


def main():
    found = {"microseconds": measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20000)}
    with Server() as server:
        found["of 1500 connections to a busy server"] = queue_places(server.port)
    with Server() as server:
        found["kernels left of 50"] = kernels_left(server.port)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
