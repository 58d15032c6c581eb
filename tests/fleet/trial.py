"""One compile per fleet, tried: many processes of several machines ask for the same kernels at once, by one real server.

A machine is a cache directory of its own. Each process is `aoticache warm` with a list of all kernels, so each asks for all
of them. The compiler is slowed down and writes down what it compiles. Without --trouble there must be exactly one compile of
each kernel. With --trouble processes are killed and stopped, the server is started anew, and machines are cut off from it
for a while (by a proxy on the loopback); then each compile beyond the first must have its reason in what was done, and
everything must be right at the end: each machine has every kernel, no cache is damaged, and nobody needs the server for a hit.

python3 tests/fleet/trial.py --server redis|s3|web [--machines 8] [--processes 8] [--kernels 50] [--compile 0.5] [--trouble] [--seed 1]

Prints one line of JSON and what is wrong; exit status 1 if anything is.
"""

import argparse
import collections
import json
import os
import pathlib
import random
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
LEASE_SECONDS = 30  # cache/remote/tier.c
JOBS = 2  # of each process
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


class Server:
    """A real server on a port of the loopback, which can be started anew. What Redis has is kept by its file."""

    def __init__(self, kind: str, folder: pathlib.Path):
        self.kind, self.folder, self.port, self.process = kind, folder, free_port(), None

    def start(self) -> None:
        log = open(self.folder / "server.log", "ab")
        if self.kind == "redis":
            command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                       "--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        elif self.kind == "s3":
            python = next((one for one in (VENV + "/bin/python", sys.executable) if os.access(one, os.X_OK) and
                           subprocess.run([one, "-c", "import moto.server"], capture_output=True).returncode == 0), None)
            if python is None:
                raise SystemExit("trial: there is no moto (pip install 'moto[s3,server]')")
            command = [python, str(TOP / "tests/helpers/moto_server.py"), "-H", "127.0.0.1", "-p", str(self.port)]
        else:
            command = [sys.executable, str(TOP / "tests/cli/storing_server.py"), "conditions", str(self.port)]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: answers(self.port))
        if self.kind == "s3":
            put = urllib.request.Request(f"http://127.0.0.1:{self.port}/kernels", method="PUT")
            urllib.request.urlopen(put).close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def remote(self, port: int) -> str:
        place = {"redis": f"redis://127.0.0.1:{port}", "web": f"http://127.0.0.1:{port}/kernels",
                 "s3": f"s3://kernels/fleet?endpoint=http://127.0.0.1:{port}"}[self.kind]
        return place + " unsigned=allow" + (" timeout=5s" if self.kind == "s3" else "")


class Proxy(threading.Thread):
    """Between one machine and the server. While it is cut, bytes of both sides wait, and nobody is told."""

    def __init__(self, target: int):
        super().__init__(daemon=True)
        self.target, self.is_cut = target, False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        pairs = {}
        while True:
            if self.is_cut:
                time.sleep(0.05)
                continue
            for one in select.select([self.listener, *pairs], [], [], 0.05)[0]:
                if one is self.listener:
                    near, _ = self.listener.accept()
                    try:
                        far = socket.create_connection(("127.0.0.1", self.target), 1)
                        pairs[near], pairs[far] = far, near
                    except OSError:
                        near.close()
                elif one in pairs and not self.pass_on(one, pairs[one]):
                    other = pairs.pop(one)
                    pairs.pop(other, None)
                    one.close()
                    other.close()

    @staticmethod
    def pass_on(source: socket.socket, target: socket.socket) -> bool:
        try:
            piece = source.recv(65536)
            target.sendall(piece)
            return bool(piece)
        except OSError:
            return False


class Fleet:
    def __init__(self, options, folder: pathlib.Path):
        self.options, self.folder = options, folder
        self.server = Server(options.server, folder)
        self.server.start()
        self.proxies = [Proxy(self.server.port) for _ in range(options.machines)]
        for proxy in self.proxies:
            proxy.start()
        self.kernels = [16 + i for i in range(options.kernels)]
        self.list = folder / "list"
        self.list.write_text("".join(f"aten::abs(float32[{n}]) on cpu\n" for n in self.kernels))
        self.compiler = folder / "slow-cc"
        self.compiler.write_text(SLOW_COMPILER)
        self.compiler.chmod(0o755)
        (folder / "compiles").touch()
        self.processes, self.outputs, self.troubles = {}, [], collections.Counter()

    def environment(self, machine: int) -> dict:
        (self.folder / "home").mkdir(exist_ok=True)
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "AOTICACHE_HOME": str(BUILD),
                "AOTICACHE_DIR": str(self.folder / f"machine-{machine}"), "COMPILES": str(self.folder / "compiles"),
                "AOTICACHE_REMOTE": self.server.remote(self.proxies[machine].port), "AOTICACHE_COMPILE_TIMEOUT": "120", "COMPILE_SECONDS": str(self.options.compile),
                "AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret", "TMPDIR": str(self.folder)}

    def begin(self, machine: int) -> None:
        output = open(self.folder / f"output-{len(self.outputs)}", "w+")
        self.outputs.append(output)
        # Each process begins with another kernel, or all would ask for the same one at the same time and for no other.
        shuffled = self.folder / f"list-{len(self.outputs)}"
        lines = self.list.read_text().splitlines(True)
        random.Random(len(self.outputs)).shuffle(lines)
        shuffled.write_text("".join(lines))
        process = subprocess.Popen([str(BUILD / "bin/aoticache"), "warm", str(shuffled), "--hook", "c", "--cc", str(self.compiler),
                                    "--jobs", str(JOBS)], env=self.environment(machine), stdout=output, stderr=output)
        self.processes[process] = machine

    def compiles(self) -> list:
        return [line.split()[1:] for line in (self.folder / "compiles").read_text().splitlines()]

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
        if self.options.server != "redis":  # the others keep nothing, so everything would be compiled anew
            return
        self.server.stop()
        time.sleep(chance.uniform(0.1, 1.5))
        self.server.start()
        self.troubles["server restarts"] += 1

    def cut_off(self, chance: random.Random) -> None:
        proxy = chance.choice(self.proxies)
        if not proxy.is_cut:
            proxy.is_cut = True
            self.troubles["cut off"] += 1
            threading.Timer(self.options.cut, lambda: setattr(proxy, "is_cut", False)).start()

    def make_trouble(self, chance: random.Random) -> None:
        weights = {"kill": 6, "stop": 1, "restart": 1, "cut": 1}
        kinds = {"kill": self.kill_one, "stop": self.stop_one, "restart": self.restart_server, "cut": self.cut_off}
        names = [name for name in self.options.trouble.split(",") for _ in range(weights[name])]
        kinds[chance.choice(names)](chance)

    # ---- the trial ----

    def run(self) -> None:
        chance = random.Random(self.options.seed)
        for i in range(self.options.processes):
            for machine in range(self.options.machines):
                self.begin(machine)
        begun, last = time.monotonic(), time.monotonic()
        while any(one.poll() is None for one in self.processes):
            time.sleep(0.05)
            if time.monotonic() - begun > self.options.limit:
                raise SystemExit(f"trial: not done after {self.options.limit} s")
            if self.options.trouble and time.monotonic() - last > 1 and time.monotonic() - begun < self.options.limit / 3:
                last = time.monotonic()
                self.make_trouble(chance)
        self.seconds = time.monotonic() - begun
        for proxy in self.proxies:
            proxy.is_cut = False

    def check(self) -> list:
        wrong = []
        for process in self.processes:
            if process.returncode != 0:
                wrong.append(f"a process of machine {self.processes[process]} ended with {process.returncode}")
        self.server.stop()  # from here on nothing may need it
        for machine in range(self.options.machines):
            environment = self.environment(machine)
            for n in (self.kernels[0], self.kernels[-1]):
                ran = subprocess.run([str(BUILD / "bin/aoticache"), "run", "aten::abs", "--input", f"float32:{n}=-2", "--hook",
                                      "none", "--json"], env={**environment, "LD_DEBUG": "files"}, capture_output=True, text=True)
                if ran.returncode != 0 or json.loads(ran.stdout)["outputs"][0]["values"] != [2.0] * n:
                    wrong.append(f"machine {machine} has no right kernel for {n} elements")
                if "_remote_" in ran.stderr:
                    wrong.append(f"a hit of machine {machine} loads a module of remotes")
            listed = subprocess.run([str(BUILD / "bin/aoticache"), "ls", "--json"], env=environment, capture_output=True, text=True)
            keys = {line for line in listed.stdout.splitlines() if '"key"' in line}
            if len(keys) != len(self.kernels):
                wrong.append(f"machine {machine} has {len(keys)} kernels of {len(self.kernels)}")
            verified = subprocess.run([str(BUILD / "bin/aoticache"), "verify"], env=environment, capture_output=True, text=True)
            if verified.returncode != 0:
                wrong.append(f"machine {machine}: {verified.stdout}{verified.stderr}")
        more = len(self.compiles()) - len(self.kernels)
        # Who ends or hangs compiles JOBS kernels at most, and they are compiled again. A machine that is cut off compiles what
        # it needs meanwhile. While the server is gone, each process compiles what it asks for at that moment.
        allowed = JOBS * (self.troubles["killed"] + self.troubles["stopped"]) + len(self.kernels) * self.troubles["cut off"] + \
            JOBS * len(self.processes) * self.troubles["server restarts"]
        if not 0 <= more <= allowed:
            wrong.append(f"{more} compiles more than kernels, {allowed} are explained")
        return wrong

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        if self.server.process.poll() is None:
            self.server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=("redis", "s3", "web"), default="redis")
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--processes", type=int, default=8, help="of each machine")
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--trouble", nargs="?", const="kill,stop,restart,cut", default="", help="or some of these")
    parser.add_argument("--cut", type=float, default=30, help="for how many seconds a machine is cut off")
    parser.add_argument("--compile", type=float, default=0.5, help="how many seconds a compile takes at least")
    parser.add_argument("--limit", type=float, default=900, help="seconds for all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aoticache-fleet-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        fleet = Fleet(options, pathlib.Path(folder))
        try:
            fleet.run()
            wrong = fleet.check()
            if wrong:
                shutil.copytree(folder, "/tmp/aoticache-fleet-trial", dirs_exist_ok=True, ignore_dangling_symlinks=True)
        finally:
            fleet.end()
        print(json.dumps({"server": options.server, "machines": options.machines,
                          "processes": options.machines * options.processes, "kernels": options.kernels,
                          "compiles": len(fleet.compiles()), "seconds": round(fleet.seconds, 1), "wrong": len(wrong),
                          **fleet.troubles}))
        for one in wrong:
            print(one, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
