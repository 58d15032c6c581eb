"""Tests one compile per fleet: many processes of several machines ask for the same kernels concurrently, with one real server.

A machine is a separate cache directory. Each process is `aoticache warm` with a list of all kernels, so each asks for all of
them. The compiler is slowed down and records what it compiles. Without --trouble there must be exactly one compile of each
kernel. With --trouble processes are killed and stopped, the server is restarted, and machines are cut off from it for a while
(by a proxy on the loopback); then each compile beyond the first must be explained by these actions, and at the end each machine
must have every kernel, no cache may be damaged, and hits must not need the server.

With --there the server has all kernels before the machines begin, so none of them may compile any of these. --new gives each
machine its own kernels, which it compiles and sends, so that it writes during the trouble. The trouble of these runs is on the
server: it is full, it refuses writes from this user, its secret changes (at the same moment the machines' file of the secret is
replaced and all connections are cut), or it is restarted. Only a restart may cost compiles: in programs that the server has not
answered yet, or whose requests end before it is back. With --after 3 --timeout 10 there are neither. Each kind of trouble must
happen while programs run, and requests must follow it.

python3 tests/fleet/trial.py --server redis|s3|web|nginx|s3-signed [--machines 8] [--processes 8] [--kernels 50] [--compile 0.5]
    [--there] [--new 1] [--delay 0.02] [--trouble [full,refuse,secret,restart,kill,stop,cut]] [--after 3] [--timeout 10]
    [--seed 1]

Prints one line of JSON and the errors found; exit status 1 if there are any.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", TOP / "build")).resolve()
VENV = os.environ.get("VENV", str(BUILD / "venv"))
LEASE_SECONDS = 30  # cache/remote/miss.c
JOBS = 2  # jobs of each process
SLOW_COMPILER = """#!/bin/sh
case "$*" in *.c*)
    echo "begin $AOTICACHE_DIR $PPID $(date +%s.%N)" >>"$COMPILES"
    sleep "$COMPILE_SECONDS" ;;
esac
exec cc "$@"
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, seconds=20):
    limit = time.monotonic() + seconds
    while not what():
        if time.monotonic() > limit:
            raise SystemExit(f"trial: waited {seconds} s in vain")
        time.sleep(0.02)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def example(name: str) -> str:
    """Returns the block of docs/remotes.md that follows its mark."""
    text = (TOP / "docs/remotes.md").read_text().partition(f"<!-- example: {name} -->")[2]
    return text.split("```")[1].lstrip("\n")


def find_program(name: str) -> str:
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        raise SystemExit(f"trial: there is no {name}")
    return found


class Server:
    """A server on a port of the loopback, which can be restarted. A subclass that keeps its data says so."""

    keeps = False
    user = None  # the user= of a remote; the secret is in a file that all machines share
    words = ""   # further words of a remote
    timeout = 0  # seconds: its timeout=, if not 0

    def __init__(self, directory: pathlib.Path):
        self.directory, self.port, self.process = directory, free_port(), None
        self.secret, self.changes, self.trouble = "secret-0", 0, ""
        self.secret_file = directory / "secret"
        self.write_secret()

    def command(self) -> list:
        raise NotImplementedError

    def start(self) -> None:
        log = open(self.directory / "server.log", "ab")
        self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        until(lambda: answers(self.port))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def write_secret(self) -> None:
        new = self.directory / "secret.new"
        new.write_text(self.secret + "\n")
        new.chmod(0o600)
        new.rename(self.secret_file)

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/kernels"

    def remote(self, port: int) -> str:
        secret = f" secret-file={self.secret_file}" if self.keeps else ""
        return self.url(port) + " unsigned=allow" + secret + (f" user={self.user}" if self.user else "") + \
            (f" timeout={self.timeout}s" if self.timeout else self.words)

    def apply(self) -> None:
        """Makes the running server behave as self.trouble ("", "full" or "refuse") and self.secret say."""
        raise NotImplementedError


class Redis(Server):
    keeps, user = True, "fleet"

    def command(self) -> list:
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", "",
                "--appendonly", "yes", "--appendfsync", "no", "--user", *self.rights()]

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}"

    def rights(self) -> list:
        """Returns the words of the example's user who may write, or of the one who may only read."""
        name = "reader" if self.trouble == "refuse" else "writer"
        line = next(one for one in example("redis-users").splitlines() if f" {name} " in one).split()[3:]
        return ["fleet", "reset", *(f">{self.secret}" if word.startswith(">") else word for word in line)]

    def ask(self, *words: str) -> None:
        ran = subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True)
        if ran.returncode != 0 or not re.match(r"OK|\d+$", ran.stdout):
            raise SystemExit(f"trial: redis-cli {words}: {ran.stdout}{ran.stderr}")

    def apply(self) -> None:
        self.ask("config", "set", "maxmemory", "1" if self.trouble == "full" else "0")
        self.ask("acl", "setuser", *self.rights())


class Nginx(Server):
    """nginx as in docs/remotes.md, and only for clients with the token."""

    keeps = True

    def command(self) -> list:
        (self.directory / "data").mkdir(exist_ok=True)
        self.write_configuration()
        return [find_program("nginx"), "-e", str(self.directory / "nginx.log"), "-c", str(self.directory / "nginx.conf")]

    def write_configuration(self) -> None:
        text = example("nginx").replace("listen 8080", f"listen 127.0.0.1:{self.port} backlog=128")
        text = text.replace("/srv/kernels", str(self.directory / "data"))
        status = 401 if self.changes % 2 == 0 else 403  # servers refuse an old token with different statuses
        asked = f'if ($http_authorization != "Bearer {self.secret}") {{ return {status}; }}\n    '
        if self.trouble == "full":  # as nginx answers without space
            asked += "if ($request_method = PUT) { return 507; }\n    "
        text = text.replace("location / {", asked + "location / {")
        if self.trouble == "refuse":
            text = text.replace("dav_methods PUT;", "dav_methods PUT; limit_except GET { deny all; }")
        directories = " ".join(f"{kind}_temp_path {self.directory}/nginx-{kind};"
                           for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.getuid() == 0 else ""
        (self.directory / "nginx.conf").write_text(
            f"daemon off; pid {self.directory}/nginx.pid; error_log {self.directory}/nginx.log; worker_processes 1; {user}\n"
            f"events {{ worker_connections 1024; }} http {{ access_log off; {directories}\n{text}}}\n")

    def workers(self) -> set:
        pid = self.process.pid
        return set(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    def apply(self) -> None:
        self.write_configuration()
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.workers() and not self.workers() & before)  # the old worker ends when its requests have ended


class SignedS3(Server):
    keeps, user, words = True, "access-key", " timeout=5s"

    def command(self) -> list:
        self.apply()
        return [sys.executable, str(TOP / "tests/cli/remotes/s3_server.py"), self.user, "", "eu-west-1", str(self.port),
                str(self.directory / "s3")]

    def url(self, port: int) -> str:
        return f"s3://kernels/fleet?region=eu-west-1&endpoint=http://127.0.0.1:{port}"

    def apply(self) -> None:
        (self.directory / "s3").mkdir(exist_ok=True)
        refuses = {"": "", "full": "507 InsufficientStorage", "refuse": "403 AccessDenied"}[self.trouble]
        for name, text in (("secret", self.secret), ("refuses", refuses)):
            new = self.directory / f"{name}.s3"
            new.write_text(text)
            new.rename(self.directory / "s3" / name)


class Moto(Server):
    words = " timeout=5s"

    def command(self) -> list:
        python = next((one for one in (VENV + "/bin/python", sys.executable) if os.access(one, os.X_OK) and
                       subprocess.run([one, "-c", "import moto.server"], capture_output=True).returncode == 0), None)
        if python is None:
            raise SystemExit("trial: there is no moto (pip install 'moto[s3,server]')")
        return [python, str(TOP / "tests/helpers/moto_server.py"), "-H", "127.0.0.1", "-p", str(self.port)]

    def start(self) -> None:
        super().start()
        put = urllib.request.Request(f"http://127.0.0.1:{self.port}/kernels", method="PUT")
        urllib.request.urlopen(put).close()

    def url(self, port: int) -> str:
        return f"s3://kernels/fleet?endpoint=http://127.0.0.1:{port}"


class Web(Server):
    def command(self) -> list:
        return [sys.executable, str(TOP / "tests/cli/remotes/storing_server.py"), "conditions", str(self.port)]


SERVERS = {"redis": Redis, "s3": Moto, "web": Web, "nginx": Nginx, "s3-signed": SignedS3}


class Proxy(threading.Thread):
    """Connects one machine to the server. While it is cut, bytes of both sides wait, and neither side is notified. Each piece
    is forwarded after `delay` seconds. While another thread holds `gate`, nothing is forwarded."""

    def __init__(self, target: int, delay: float):
        super().__init__(daemon=True)
        self.target, self.delay, self.is_cut = target, delay, False
        self.gate, self.pieces = threading.Lock(), 0  # pieces: number of those from the machine to the server
        self.pairs, self.near, self.waiting = {}, set(), collections.deque()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        while True:
            if self.is_cut:
                time.sleep(0.05)
                continue
            pause = min(0.05, max(0.0, self.waiting[0][0] - time.monotonic())) if self.waiting else 0.05
            try:
                ready = select.select([self.listener, *self.pairs], [], [], pause)[0]
            except (OSError, ValueError):  # drop() has closed one
                continue
            with self.gate:
                for one in ready:
                    if one is self.listener:
                        self.accept()
                    elif one in self.pairs:
                        self.take(one)
                while self.waiting and self.waiting[0][0] <= time.monotonic():
                    self.pass_on(*self.waiting.popleft()[1:])

    def accept(self) -> None:
        near, _ = self.listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self.target), 1)
        except OSError:
            near.close()
            return
        self.pairs[near], self.pairs[far] = far, near
        self.near.add(near)

    def take(self, source: socket.socket) -> None:
        try:
            piece = source.recv(65536)
        except OSError:
            piece = b""
        self.waiting.append((time.monotonic() + self.delay, source, self.pairs[source], piece))
        if source in self.near and piece:
            self.pieces += 1
        if not piece:  # that side sends no more; waiting pieces are still forwarded
            del self.pairs[source]

    def pass_on(self, source: socket.socket, target: socket.socket, piece: bytes) -> None:
        try:
            target.sendall(piece)
        except OSError:
            piece = b""
        if not piece:
            for one in (source, target):
                self.pairs.pop(one, None)
                self.near.discard(one)
                one.close()

    def drop(self) -> None:
        """Cuts all connections. The caller holds `gate`."""
        for one in {*self.pairs, *(one for entry in self.waiting for one in entry[1:3])}:
            one.close()
        self.pairs.clear()
        self.near.clear()
        self.waiting.clear()


class Fleet:
    def __init__(self, options, directory: pathlib.Path):
        self.options, self.directory = options, directory
        self.server = SERVERS[options.server](directory)
        self.server.timeout = options.timeout
        self.server.start()
        self.proxies = [Proxy(self.server.port, options.delay) for _ in range(options.machines)]
        for proxy in self.proxies:
            proxy.start()
        self.kernels = [16 + i for i in range(options.kernels)]
        self.compiler = directory / "slow-cc"
        self.compiler.write_text(SLOW_COMPILER)
        self.compiler.chmod(0o755)
        (directory / "compiles").touch()
        self.processes, self.outputs, self.troubles = {}, [], collections.Counter()
        self.first_trouble = {}  # for each kind: how many pieces the machines had sent when it first came
        if options.there:
            self.fill_server()

    def environment(self, machine: int) -> dict:
        (self.directory / "home").mkdir(exist_ok=True)
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory / "home"), "AOTICACHE_HOME": str(BUILD),
                "AOTICACHE_DIR": str(self.directory / f"machine-{machine}"), "COMPILES": str(self.directory / "compiles"),
                "AOTICACHE_REMOTE": self.server.remote(self.proxies[machine].port), "AOTICACHE_COMPILE_TIMEOUT": "120", "COMPILE_SECONDS": str(self.options.compile),
                "AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret", "TMPDIR": str(self.directory)}

    def kernels_of(self, machine: int) -> list:
        return self.kernels + [400 + machine * self.options.new + i for i in range(self.options.new)]

    @staticmethod
    def lines(kernels: list) -> list:
        return [f"aten::abs(float32[{n}]) on cpu\n" for n in kernels]

    def fill_server(self) -> None:
        """Lets a machine outside the fleet compile all kernels and send them."""
        listed = self.directory / "list-there"
        listed.write_text("".join(self.lines(self.kernels)))
        aoticache = str(BUILD / "bin/aoticache")
        environment = {**self.environment(0), "AOTICACHE_DIR": str(self.directory / "there"), "COMPILES": "/dev/null", "COMPILE_SECONDS": "0"}
        for command, remote in (["warm", str(listed), "--hook", "c", "--cc", str(self.compiler)], ""), \
                (["push", "--all"], self.server.remote(self.server.port)):
            ran = subprocess.run([aoticache, *command], env={**environment, "AOTICACHE_REMOTE": remote}, capture_output=True, text=True)
            if ran.returncode != 0:
                raise SystemExit(f"trial: the server is not filled: {ran.stdout}{ran.stderr}")

    def begin(self, machine: int) -> None:
        output = open(self.directory / f"output-{len(self.outputs)}", "w+")
        self.outputs.append(output)
        # Each process begins with another kernel; otherwise all would ask for the same kernels at the same times.
        shuffled = self.directory / f"list-{len(self.outputs)}"
        lines = self.lines(self.kernels_of(machine))
        random.Random(len(self.outputs)).shuffle(lines)
        shuffled.write_text("".join(lines))
        process = subprocess.Popen([str(BUILD / "bin/aoticache"), "warm", str(shuffled), "--hook", "c", "--cc", str(self.compiler),
                                    "--jobs", str(JOBS)], env=self.environment(machine), stdout=output, stderr=output)
        self.processes[process] = machine

    def compiles(self) -> list:
        return [line.split()[1:] for line in (self.directory / "compiles").read_text().splitlines()]

    # ---- trouble ----

    def kill_one(self, chance: random.Random) -> None:
        running = [one for one in self.processes if one.poll() is None]
        if running:
            victim = chance.choice(running)
            victim.kill()
            victim.wait()
            machine = self.processes.pop(victim)
            self.troubles["killed"] += 1
            self.begin(machine)

    def stop_one(self, chance: random.Random) -> None:
        running = [one for one in self.processes if one.poll() is None]
        if running:
            victim = chance.choice(running)
            victim.send_signal(signal.SIGSTOP)
            self.troubles["stopped"] += 1
            threading.Timer(LEASE_SECONDS + 10, lambda: victim.poll() is None and victim.send_signal(signal.SIGCONT)).start()

    def restart_server(self, chance: random.Random) -> None:
        if not self.server.keeps:  # everything would be compiled again
            return
        self.server.stop()
        time.sleep(chance.uniform(0.1, 1.5))
        self.server.trouble = ""
        self.server.start()
        self.troubles["server restarts"] += 1

    def cut_off(self, chance: random.Random) -> None:
        proxy = chance.choice(self.proxies)
        if not proxy.is_cut:
            proxy.is_cut = True
            self.troubles["cut off"] += 1
            threading.Timer(self.options.cut, lambda: setattr(proxy, "is_cut", False)).start()

    def fill_up(self, _: random.Random) -> None:
        self.server.trouble = "full"
        self.server.apply()
        self.troubles["server full"] += 1

    def refuse_writes(self, _: random.Random) -> None:
        self.server.trouble = "refuse"
        self.server.apply()
        self.troubles["writes refused"] += 1

    def change_secret(self, _: random.Random) -> None:
        """Changes it at one moment for all machines: nothing is forwarded meanwhile, and all connections are cut."""
        for proxy in self.proxies:
            proxy.gate.acquire()
        for proxy in self.proxies:
            proxy.drop()
        self.server.trouble = ""
        self.server.changes += 1
        self.server.secret = f"secret-{self.server.changes}"
        self.server.apply()
        self.server.write_secret()
        for proxy in self.proxies:
            proxy.gate.release()
        self.troubles["secret changed"] += 1

    def make_trouble(self, chance: random.Random) -> None:
        """Makes trouble of one kind. With --there each kind comes once before any comes again. "full" and "refuse" last until
        another kind comes."""
        weights = {"kill": 6, "stop": 1, "restart": 1, "cut": 1, "full": 1, "refuse": 1, "secret": 1}
        kinds = {"kill": self.kill_one, "stop": self.stop_one, "restart": self.restart_server, "cut": self.cut_off,
                 "full": self.fill_up, "refuse": self.refuse_writes, "secret": self.change_secret}
        names = [name for name in self.options.trouble.split(",") for _ in range(weights[name])]
        left = [name for name in names if name not in self.first_trouble] if self.options.there else []
        name = chance.choice(left or names)
        kinds[name](chance)
        self.first_trouble.setdefault(name, self.sent_pieces())

    def sent_pieces(self) -> int:
        return sum(proxy.pieces for proxy in self.proxies)

    # ---- the trial ----

    def run(self) -> None:
        chance = random.Random(self.options.seed)
        for i in range(self.options.processes):
            for machine in range(self.options.machines):
                self.begin(machine)
        begun, last = time.monotonic(), time.monotonic()
        pause = self.options.after or (0.3 if self.options.there else 1)
        while any(one.poll() is None for one in self.processes):
            time.sleep(0.05)
            if time.monotonic() - begun > self.options.limit:
                raise SystemExit(f"trial: not done after {self.options.limit} s")
            if self.options.trouble and time.monotonic() - last > pause and time.monotonic() - begun < self.options.limit / 3:
                self.make_trouble(chance)
                last, pause = time.monotonic(), self.options.every or pause
        self.seconds = time.monotonic() - begun
        for proxy in self.proxies:
            proxy.is_cut = False

    def check(self) -> list:
        wrong = []
        for process in self.processes:
            if process.returncode != 0:
                wrong.append(f"a process of machine {self.processes[process]} ended with {process.returncode}")
        self.server.stop()  # from here on nothing may need the server
        for machine in range(self.options.machines):
            environment = self.environment(machine)
            kernels = self.kernels_of(machine)
            for n in (kernels[0], kernels[-1]):
                ran = subprocess.run([str(BUILD / "bin/aoticache"), "run", "aten::abs", "--input", f"float32:{n}=-2", "--hook",
                                      "none", "--json"], env={**environment, "LD_DEBUG": "files"}, capture_output=True, text=True)
                if ran.returncode != 0 or json.loads(ran.stdout)["outputs"][0]["values"] != [2.0] * n:
                    wrong.append(f"machine {machine} has no right kernel for {n} elements")
                if "_remote_" in ran.stderr:
                    wrong.append(f"a hit of machine {machine} loads a module of remotes")
            listed = subprocess.run([str(BUILD / "bin/aoticache"), "ls", "--json"], env=environment, capture_output=True, text=True)
            keys = {line for line in listed.stdout.splitlines() if '"key"' in line}
            if len(keys) != len(kernels):
                wrong.append(f"machine {machine} has {len(keys)} kernels of {len(kernels)}")
            verified = subprocess.run([str(BUILD / "bin/aoticache"), "verify"], env=environment, capture_output=True, text=True)
            if verified.returncode != 0:
                wrong.append(f"machine {machine}: {verified.stdout}{verified.stderr}")
        for name in self.options.trouble.split(",") if self.options.there and self.options.trouble else ():
            if name not in self.first_trouble:
                wrong.append(f"no trouble of the kind {name} came while programs ran")
            elif self.sent_pieces() == self.first_trouble[name]:
                wrong.append(f"no request followed the trouble {name}")
        more = len(self.compiles()) - self.expected_compiles()
        # A process that ends or hangs is compiling JOBS kernels at most, and they are compiled again. A machine that is cut off
        # compiles the kernels that it needs meanwhile. While the server is down, each process compiles the kernels that it asks
        # for at that moment, unless the server has answered it earlier (--after) and the request may wait for longer than the
        # restart takes (--timeout).
        restarts = 0 if self.options.after and self.options.timeout >= 5 else self.troubles["server restarts"]
        allowed = JOBS * (self.troubles["killed"] + self.troubles["stopped"]) + len(self.kernels) * self.troubles["cut off"] + \
            JOBS * len(self.processes) * restarts
        if not 0 <= more <= allowed:
            wrong.append(f"{more} compiles more than kernels, {allowed} are explained")
        return wrong

    def expected_compiles(self) -> int:
        return (0 if self.options.there else len(self.kernels)) + self.options.machines * self.options.new

    def failed_writers(self) -> int:
        """How many processes said that the server took no kernel from them."""
        return sum("it is not written to" in pathlib.Path(output.name).read_text() for output in self.outputs)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        if self.server.process.poll() is None:
            self.server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=SERVERS, default="redis")
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--processes", type=int, default=8, help="of each machine")
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--there", action="store_true", help="the server has all kernels beforehand")
    parser.add_argument("--new", type=int, default=0, help="kernels of each machine that no other asks for")
    parser.add_argument("--delay", type=float, default=0, help="for how many seconds each piece is on its way to or from the server")
    parser.add_argument("--trouble", nargs="?", const="kill,stop,restart,cut", default="", help="or some of these")
    parser.add_argument("--every", type=float, help="seconds between one trouble and the next: 1, with --there 0.3")
    parser.add_argument("--cut", type=float, default=30, help="for how many seconds a machine is cut off")
    parser.add_argument("--compile", type=float, default=0.5, help="how many seconds a compile takes at least")
    parser.add_argument("--after", type=float, default=0, help="seconds before the first trouble: 1, with --there 0.3")
    parser.add_argument("--timeout", type=int, default=0, help="seconds of each request, if not those of the server's kind")
    parser.add_argument("--limit", type=float, default=900, help="seconds for all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if {"full", "refuse", "secret"} & set(options.trouble.split(",")) and not SERVERS[options.server].keeps:
        parser.error(f"--server {options.server} cannot be full, refuse writes, or have a secret")
    with tempfile.TemporaryDirectory(prefix="aoticache-fleet-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        fleet = Fleet(options, pathlib.Path(directory))
        try:
            fleet.run()
            wrong = fleet.check()
            if wrong:
                shutil.copytree(directory, "/tmp/aoticache-fleet-trial", dirs_exist_ok=True, ignore_dangling_symlinks=True)
        finally:
            fleet.end()
        print(json.dumps({"server": options.server, "machines": options.machines,
                          "processes": options.machines * options.processes, "kernels": options.kernels,
                          **({"there": True, "new": options.new, "failed writers": fleet.failed_writers()} if options.there else {}),
                          "compiles": len(fleet.compiles()), "seconds": round(fleet.seconds, 1), "wrong": len(wrong),
                          **fleet.troubles}))
        for one in wrong:
            print(one, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
