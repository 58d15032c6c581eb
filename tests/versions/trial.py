"""Tests two versions at the same time: an older version of the project and this one use the same cache, in every order.

tests/versions/list names the versions. Each is taken from git and built (library and tools, without optimisation) in
BUILD/versions, once. tests/versions/player.c, compiled in the sources of each, uses the cache as a program does. Entries
that were reported as stored must be found with their bytes, whichever version stored them; if a version cannot do something,
it must refuse with a message that says what to do; and this version's `verify` must find nothing wrong at the end.

python3 tests/versions/trial.py [--short] [--only TEXT] [--seconds 10] [--seed 1]

--short: only versions that are marked for it. --only: only versions whose line contains this. --seconds: how long processes
of two versions use one cache and are killed. Prints "ok - ", "not ok - ", "skip - " lines, and "# " lines with observations.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", TOP / "build")).resolve()
ENTRIES = range(1, 21)
RECORDS = range(1, 21, 4)  # those whose file is in their manifest, if the version that puts them can do that
SIDE_BY_SIDE = 4  # processes of each version
# Migrations of earlier indexes remove tables. A process that has one open then rebuilds it, and its collections do not know
# what others have stored (docs/store.md): such losses are printed, and are not failures of this version.
FIRST_ADDED_TO = 3
failed = 0


def check(name: str, is_right: bool, detail: object = "") -> bool:
    global failed
    print(f"ok - {name}" if is_right else f"not ok - {name}: {detail}", flush=True)
    failed += not is_right
    return is_right


def skip(name: str, why: str) -> None:
    print(f"skip - {name}: {why}", flush=True)


def note(text: str) -> None:
    print(f"# {text}", flush=True)


def run(*command: object, env: dict[str, str] | None = None, cwd: pathlib.Path = TOP) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=600)


# ---- versions ----


@dataclasses.dataclass
class Version:
    """A build of the project, and the player that was compiled in its sources."""
    name: str
    index: int
    build: pathlib.Path
    player: pathlib.Path
    has_records: bool
    commands: frozenset[str] = frozenset()

    def learn(self) -> None:
        text = run(self.build / "bin/aoticache", "--help", "all", env={"AOTICACHE_CONFIG": "", "PATH": os.environ["PATH"]}).stdout
        self.commands = frozenset(re.findall(r"^  ([a-z-]+) ", text, re.M))


def has_records(sources: pathlib.Path) -> bool:
    return "in_manifest" in (sources / "cache/cache.h").read_text()


def compile_player(sources: pathlib.Path, build: pathlib.Path, player: pathlib.Path) -> None:
    flags = run("pkg-config", "--cflags", "--libs", "sqlite3", "libcrypto", "jansson").stdout.split()
    flags += ["-DHAS_IN_MANIFEST"] * has_records(sources)
    made = run(os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-I.", TOP / "tests/versions/player.c",
               build / "lib/libaoticache.a", *flags, "-ldl", "-lpthread", "-lm", "-o", player, cwd=sources)
    if made.returncode != 0:
        raise SystemExit(f"trial: the player does not compile in {sources}:\n{made.stderr}")


def build_version(commit: str) -> pathlib.Path:
    """Returns the built sources of a commit; builds them again if a build was not completed."""
    directory = BUILD / "versions" / commit[:12]
    if (directory / "is-built").exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(TOP), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(directory)], input=archive, check=True)
    targets = ["lib/libaoticache.a", "lib/libaoticache.so.0", "bin/aoticache", "bin/aoticache-gc"]
    if "libaoticache_remote_" in (directory / "Makefile").read_text():
        targets += [f"lib/{one.name}" for one in (BUILD / "lib").glob("libaoticache_remote_*.so")]
    env = {name: value for name, value in os.environ.items() if name not in ("BUILD", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    made = run("make", "-j2", "OPTIMISE=-O0", "WARN=", "HARDEN=", *(f"build/{target}" for target in targets), env=env, cwd=directory)
    if made.returncode != 0:
        raise SystemExit(f"trial: {commit} does not build:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
    (directory / "is-built").touch()
    return directory


def read_list(is_short: bool, only: str) -> list[Version]:
    versions = []
    for line in (TOP / "tests/versions/list").read_text().splitlines():
        if not line or line.startswith("#") or only not in line:
            continue
        which, index, form, what = line.split(None, 3)
        if is_short and form != "short":
            continue
        name = f"{which[:12]} (index {index})"
        found = run("git", "rev-parse", "--verify", "--quiet", which + "^{commit}")
        if found.returncode != 0:
            skip(name, "this clone does not have it (a shallow clone, or no clone)")
            continue
        begun = time.monotonic()
        directory = build_version(found.stdout.strip())
        player = directory / "player"
        compile_player(directory, directory / "build", player)
        version = Version(name, int(index), directory / "build", player, has_records(directory))
        version.learn()
        versions.append(version)
        note(f"{name}: {what}; there after {time.monotonic() - begun:.0f} s")
    return versions


# ---- a cache and its users ----


class Place:
    """A directory with caches, keys and the files of players, removed at the end."""

    def __init__(self, root: pathlib.Path, name: str):
        self.root = root / re.sub("[^a-z0-9]+", "-", name)
        self.root.mkdir(mode=0o700)
        self.cache = self.root / "cache"
        self.players: list[Player] = []

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        for player in self.players:
            player.kill()
            player.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def env(self, cache: pathlib.Path | None = None, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.root), "LC_ALL": "C", "TERM": "dumb", "AOTICACHE_CONFIG": "",
                "AOTICACHE_KEYS": str(self.root / "keys"), "AOTICACHE_DIR": str(cache or self.cache), **more}

    def tool(self, version: Version, *words: object, cache: pathlib.Path | None = None,
             program: str = "aoticache", **more: str) -> subprocess.CompletedProcess:
        return run(version.build / "bin" / program, *words, env=self.env(cache, **more))

    def player(self, version: Version, cache: pathlib.Path | None = None, *more: object) -> "Player":
        one = Player(version, cache or self.cache, self, more)
        self.players.append(one)
        return one

    def index_version(self) -> int:
        with sqlite3.connect(f"file:{self.cache}/index.sqlite3?mode=ro", uri=True) as index:
            return index.execute("PRAGMA user_version").fetchone()[0]

    def index_inode(self) -> int:
        return (self.cache / "index.sqlite3").stat().st_ino

    def set_aside(self) -> list[str]:
        directory = self.cache / "quarantine"
        return sorted(one.name for one in directory.iterdir()) if directory.exists() else []

    def signatures(self) -> dict[str, bytes]:
        directory = self.cache / "signatures"
        return {one.name: one.read_bytes() for one in directory.iterdir()} if directory.exists() else {}


class Player:
    def __init__(self, version: Version, cache: pathlib.Path, place: Place, more: tuple[object, ...] = ()):
        self.version = version
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(version.player), str(cache), str(place.root / f"files{len(place.players)}"),
                                         *map(str, more)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=place.env())

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline().rstrip("\n")

    def hears_within(self, seconds: float) -> bool:
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def does(self, line: str) -> bool:
        return self.ask(line).startswith("OK")

    def log(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def uses(self) -> dict[str, str]:
        """Returns for each key: how often and when it was used."""
        words = self.ask("list").split()
        return dict(word.split("/", 1) for word in words if "/" in word)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def close(self) -> None:
        """Closes the files. All output has been read by now, and there may be hundreds of players."""
        for one in (self.process.stdin, self.process.stdout, self.errors):
            try:
                one.close()
            except BrokenPipeError:
                pass


def lacking(player: Player, numbers) -> list[str]:
    answers = {number: player.ask(f"get {number}") for number in numbers}
    return [f"{number}: {answer}" for number, answer in answers.items() if not answer.startswith("OK")]


def entries_for(maker: Version, taker: Version) -> list[int]:
    """Returns the entries of `maker` that `taker` can accept. It refuses the others, and reports that by its status."""
    is_refused = maker.has_records and not taker.has_records
    return [number for number in ENTRIES if not is_refused or number not in RECORDS]


def fill(place: Place, version: Version, cache: pathlib.Path | None = None) -> None:
    """Stores entries with and without side files, uses, a failure, pins, tags, signatures, and leaves a killed compile."""
    killed = place.player(version, cache)
    if not killed.does("open") or killed.ask("hold 90") != "compiling":
        raise SystemExit(f"trial: {version.name} cannot use a new cache")
    killed.kill()
    player = place.player(version, cache)
    wrong = [f"{line}" for line in ("open", *(f"put {number}" for number in ENTRIES), *("get 1", "get 2", "get 3") * 3)
             if not player.does(line)]
    player.ask("fail 100")
    if "pin" in version.commands:
        wrong += [line for line in ("pin 3", "tag 4 night") if not player.does(line)]
    player.ask("flush")
    player.ask("close")
    player.end()
    if "key" in version.commands:
        signed = place.tool(version, "key", "sign", "--all", cache=cache)
        wrong += [signed.stderr] * (signed.returncode != 0)
    if wrong:
        raise SystemExit(f"trial: {version.name} cannot fill a cache: {wrong}")


def check_sound(name: str, place: Place, current: Version, numbers, cache: pathlib.Path | None = None) -> None:
    """Checks that this version, in a new process, finds all entries with their bytes, and no errors."""
    player = place.player(current, cache)
    opened = player.ask("open")
    check(f"{name}: all is found, with its bytes", opened.startswith("OK") and not (lost := lacking(player, numbers)),
          opened if not opened.startswith("OK") else lost)
    player.end()
    verified = place.tool(current, "verify", cache=cache)
    check(f"{name}: verify finds nothing wrong", verified.returncode == 0, verified.stdout[-600:] + verified.stderr[-300:])


# ---- one after the other ----


def try_migration(root: pathlib.Path, old: Version, current: Version) -> None:
    name = f"{old.name}, then this version"
    with Place(root, f"migrate {old.name}") as place:
        fill(place, old)
        player = place.player(old)
        player.ask("open")
        uses = player.uses()
        player.end()
        signatures = place.signatures()
        run("cp", "-a", place.cache, place.root / "copy")  # with its hard links
        player = place.player(current)
        check(f"{name}: it opens", (said := player.ask("open")).startswith("OK"), said)
        check(f"{name}: uses are kept", len(uses) == len(ENTRIES) and player.uses() == uses, (uses, player.uses()))
        said = player.ask("compile 100")
        check(f"{name}: a failure is remembered", said == "COMPILE_FAILED entry 100 cannot be compiled", said)
        said = player.ask("compile 90")
        check(f"{name}: what a killed compile had leased is free", said == "OK compiled", said)
        keys = {number: player.ask(f"key {number}").split()[-1] for number in (3, 4)}
        player.end()
        check(f"{name}: the index has this version", place.index_version() == current.index, place.index_version())
        if "pin" in old.commands:
            said = place.tool(current, "pin", "--list").stdout
            check(f"{name}: pins are kept", keys[3][:12] in said and keys[4][:12] not in said, said)
            said = place.tool(current, "tag", "--list", keys[4]).stdout
            check(f"{name}: tags are kept", "night" in said, said)
        else:
            skip(f"{name}: pins and tags", "it has none")
        if "key" in old.commands:
            check(f"{name}: signatures are kept", len(signatures) == len(ENTRIES) and place.signatures() == signatures)
            said = place.tool(current, "key", "verify")
            check(f"{name}: signatures are right", said.returncode == 0, said.stdout + said.stderr)
        else:
            skip(f"{name}: signatures", "it has none")
        check_sound(name, place, current, [*ENTRIES, 90])
        check(f"{name}: nothing was set aside", not place.set_aside(), place.set_aside())
        place.cache = place.root / "copy"  # as the older version left it
        player = place.player(current)
        player.ask("open")
        said = player.ask("collect 8")
        lost, left = lacking(player, [1, 2, 3]), len(player.uses())
        check(f"{name}: a collection takes what was used the longest ago", said.startswith("OK") and not lost and left <= 9,
              (said, lost, left))
        player.end()
        check_sound(f"{name}, collected", place, current, [1, 2, 3, 20])


def is_refusal(text: str, old: Version, current: Version) -> bool:
    return f"version {current.index}" in text and str(old.index) in text and "newer" in text


def try_return(root: pathlib.Path, old: Version, current: Version) -> None:
    name = f"{old.name} after this version"
    with Place(root, f"return {old.name}") as place:
        fill(place, old)
        player = place.player(current)
        player.ask("open")
        player.ask("put 30")
        player.end()
        inode = place.index_inode()
        player = place.player(old)
        said = player.ask("open")
        if old.index == current.index:
            check(f"{name}: it works", said.startswith("OK") and not lacking(player, [*ENTRIES, 30]) and player.does("put 31"),
                  said)
            player.end()
        else:
            check(f"{name}: it refuses, says why and what to do", said.startswith("UNSUPPORTED") and
                  is_refusal(said, old, current), said)
            player.end()
            for program, words in (("aoticache", ["ls"]), ("aoticache", ["verify", "--repair"]),
                                   ("aoticache", ["rm", "--all", "--yes"]), ("aoticache-gc", ["--max-size", "1B"])):
                done = place.tool(old, *words, program=program)
                check(f"{name}: {program} {words[0]} refuses too", done.returncode != 0 and
                      is_refusal(done.stderr, old, current), (done.returncode, done.stdout[-300:], done.stderr[-300:]))
        check(f"{name}: the index stays", place.index_inode() == inode and place.index_version() == current.index)
        check(f"{name}: nothing was set aside", not place.set_aside(), place.set_aside())
        check_sound(name, place, current, [*ENTRIES, 30] + [31] * (old.index == current.index))


# ---- concurrently ----


def try_at_once(root: pathlib.Path, old: Version, current: Version) -> None:
    name = f"{old.name} has it open while this version comes"
    with Place(root, f"at once {old.name}") as place:
        fill(place, old)
        stored = [*ENTRIES]
        theirs, ours = place.player(old), place.player(current)

        def put(player: Player, number: int) -> str:
            said = player.ask(f"put {number}")
            if said.startswith("OK"):
                stored.append(number)
            return said

        theirs.ask("open")
        theirs.ask("get 1")
        put(theirs, 40)
        inode = place.index_inode()
        check(f"{name}: this version opens it", (said := ours.ask("open")).startswith("OK"), said)
        check(f"{name}: this version finds what came before", (said := ours.ask("get 40")).startswith("OK"), said)
        put(ours, 50)
        if old.index >= FIRST_ADDED_TO:  # an index that an older version rebuilds lacks it
            put(ours, 53)
        answers = {"get 2": theirs.ask("get 2"), "put 42": put(theirs, 42), "get 50": theirs.ask("get 50"),
                   "fail 101": theirs.ask("fail 101"), "pin 5": theirs.ask("pin 5"), "collect": theirs.ask("collect 0"),
                   "compile 43": theirs.ask("compile 43"), "flush": theirs.ask("flush")}
        is_new = place.index_inode() != inode
        note(f"{name}: the open one says {'; '.join(f'{what}: {said[:60].strip()}' for what, said in answers.items())}")
        note(f"{name}: the index is {'one that the older built anew' if is_new else 'the same file'}, "
             f"version {place.index_version()}")
        put(ours, 51)
        answers |= {"get 51": theirs.ask("get 51"), "put 44": put(theirs, 44)}
        put(ours, 52)
        allowed = ("OK", "UNSUPPORTED", "NOT_FOUND", "COMPILE_FAILED", "IO")
        check(f"{name}: the open one goes on, or says that it cannot", all(said.startswith(allowed) and "WRONG" not in said
                                                                         for said in answers.values()), answers)
        check(f"{name}: this version finds what the open one stores", not (lost := lacking(ours, stored)), lost)
        theirs.end()
        ours.end()
        check_sound(name, place, current, stored)
        check(f"{name}: the index has this version at the end", place.index_version() == current.index)
        check(f"{name}: no object and no manifest was set aside", not (sound := [one for one in place.set_aside() if
              not one.startswith("index.sqlite3")]), sound)
        said = place.player(old).ask("open")
        check(f"{name}: then opened anew, the older {'works' if old.index == current.index else 'refuses'}",
              said.startswith("OK") if old.index == current.index else is_refusal(said, old, current), said)


def try_leases(root: pathlib.Path, old: Version, current: Version) -> None:
    for holder, waiter, number in ((old, current, 60), (current, old, 61)):
        name = f"{old.name}: {'this version' if holder is old else 'it'} waits for a compile of the other"
        with Place(root, f"lease {number} {old.name}") as place:
            fill(place, old)
            players = {version.name: place.player(version) for version in (old, current)}
            for player in players.values():  # the older one first
                player.ask("open")
            holding, waiting = players[holder.name], players[waiter.name]
            check(f"{name}: the compile begins", (said := holding.ask(f"hold {number}")) == "compiling", said)
            waiting.say(f"compile {number}")
            is_waiting = not waiting.hears_within(0.4)
            holding.say("go")
            said, heard = holding.hear(), waiting.hear()
            check(f"{name}: it waits, and both have the kernel", is_waiting and said.startswith("OK") and heard.startswith("OK"),
                  (is_waiting, said, heard))
            note(f"{name}: {said}; {heard}")
            for player in players.values():
                player.end()
            check_sound(name, place, current, [*ENTRIES] + [number] * (said == "OK compiled"))


# ---- exchanged entries ----


def try_transfer(root: pathlib.Path, old: Version, current: Version) -> None:
    name = f"{old.name}: archives"
    if "export" not in old.commands:
        return skip(name, "it has none")
    with Place(root, f"transfer {old.name}") as place:
        for maker, taker, way in ((old, current, "of the older, by this version"),
                                  (current, old, "of this version, by the older")):
            directory = place.root / f"from {maker.name}"
            directory.mkdir(mode=0o700)
            source, target, archive = directory / "source", directory / "target", directory / "archive"
            fill(place, maker, source)
            made = place.tool(maker, "export", archive, "--marks", cache=source)
            is_signed = "key" in maker.commands
            words = [] if is_signed or taker is old else ["--allow-unsigned"]
            taken = place.tool(taker, "import", archive, "--marks", *words, cache=target)
            # A version that knows no signatures, or no manifest with its file, refuses them by name, imports the rest, and
            # reports that by its status.
            entries = entries_for(maker, taker)
            expected = 1 if (is_signed and "key" not in taker.commands) or len(entries) < len(ENTRIES) else 0
            check(f"{name} {way}", made.returncode == 0 and taken.returncode == expected,
                  (made.returncode, made.stderr[-300:], taken.returncode, taken.stdout[-300:], taken.stderr[-600:]))
            player = place.player(taker, target)
            player.ask("open")
            check(f"{name} {way}: all that it knows comes", not (lost := lacking(player, entries)), lost)
            key = player.ask("key 3").split()[-1]
            player.end()
            said = place.tool(taker, "pin", "--list", cache=target).stdout
            check(f"{name} {way}: pins come too", key[:12] in said, said)
            check_sound(f"{name} {way}", place, current, entries, target)


def try_merge(root: pathlib.Path, old: Version, current: Version) -> None:
    name = f"{old.name}: merging"
    with Place(root, f"merge {old.name}") as place:
        place.cache = source = place.root / "source"
        target = place.root / "target"
        fill(place, old)
        inode = place.index_inode()
        done = place.tool(current, "merge", source, cache=target)
        note(f"{name} into this version's: status {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}")
        is_done = done.returncode == 0
        says = f"version {old.index} must be migrated to {current.index}: open it once for writing" in done.stderr
        check(f"{name} into this version's: all comes, or it is refused with what to do", is_done or says, done.stderr[-600:])
        check(f"{name} into this version's: the source stays", place.index_inode() == inode and place.index_version() == old.index)
        if is_done:
            check_sound(f"{name} into this version's", place, current, ENTRIES, target)
        else:
            place.tool(current, "ls", cache=source)
            done = place.tool(current, "merge", source, cache=target)
            check(f"{name} into this version's: once it was opened, all comes", done.returncode == 0, done.stderr[-600:])
            check_sound(f"{name} into this version's, opened", place, current, ENTRIES, target)
    if "merge" not in old.commands:
        return skip(f"{name} into the older's", "it cannot")
    with Place(root, f"merge back {old.name}") as place:
        fill(place, current)
        inode = place.index_inode()
        target = place.root / "target"
        done = place.tool(old, "merge", place.cache, cache=target)
        if old.index == current.index:
            check(f"{name} into the older's: all comes", done.returncode == 0, done.stderr[-600:])
            check_sound(f"{name} into the older's", place, current, ENTRIES, target)
        else:
            check(f"{name} into the older's: it is refused with what to do", done.returncode != 0 and
                  is_refusal(done.stderr, old, current), done.stderr[-600:])
        check(f"{name} into the older's: the source stays", place.index_inode() == inode)
        check_sound(f"{name} into the older's, the source", place, current, ENTRIES)


def start_server(kind: str, place: Place) -> tuple[subprocess.Popen, str]:
    """Returns a server, and its URL."""
    if kind == "http":
        command = [sys.executable, TOP / "tests/cli/storing_server.py", "conditions"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return server, f"http://127.0.0.1:{server.stdout.readline().split()[-1]}/kernels"
    # By a port: a socket's path may have at most 107 bytes, and a test's directory may need most of them.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", place.root],
                              stdout=subprocess.DEVNULL)
    while server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return server, f"redis://127.0.0.1:{port}"
        time.sleep(0.02)
    raise RuntimeError(f"redis-server ended with {server.returncode}")


def try_remote(root: pathlib.Path, old: Version, current: Version, kind: str) -> None:
    name = f"{old.name}: a remote ({kind})"
    module = f"lib/libaoticache_remote_{kind}.so"
    if "push" not in old.commands:
        return skip(name, "it has none")
    if not all((version.build / module).exists() for version in (old, current)):
        return skip(name, "its module is not built, for lack of a library")
    if kind == "redis" and shutil.which("redis-server") is None:
        return skip(name, "there is no redis-server")
    for maker, taker, way in ((old, current, "what the older sends, this version has"),
                              (current, old, "what this version sends, the older has")):
        with Place(root, f"remote {kind} {maker.name}") as place:
            server, remote = start_server(kind, place)
            target = place.root / "target"
            try:
                fill(place, maker)
                sent = place.tool(maker, "push", "--all", AOTICACHE_REMOTE=remote)
                taken = place.tool(taker, "pull", "--all", cache=target, AOTICACHE_REMOTE=remote)
            finally:
                server.kill()
                server.wait()
            entries = entries_for(maker, taker)
            check(f"{name}: {way}", sent.returncode == 0 and taken.returncode == (len(entries) < len(ENTRIES)),
                  (sent.returncode, sent.stderr[-300:], taken.returncode, taken.stdout[-300:], taken.stderr[-300:]))
            player = place.player(taker, target)
            player.ask("open")
            check(f"{name}: {way}, all that it knows", not (lost := lacking(player, entries)), lost)
            player.end()
            check_sound(f"{name}: {way}", place, current, entries, target)


def try_configuration(root: pathlib.Path, old: Version, current: Version) -> None:
    name = f"{old.name}: this version's configuration"
    if "config" not in old.commands:
        return skip(name, "it has none")
    with Place(root, f"config {old.name}") as place:
        fill(place, old)
        settings = re.findall(r"^([a-z_]+) +(\S+) ", place.tool(current, "config").stdout, re.M)
        file = place.root / "conf"
        lines = [f"{what} = {value}" for what, value in settings if value != "-" and what not in ("directory", "keys")]
        file.write_text("\n".join([*lines, "keys = ~/keys", "a_setting_to_come = 1", ""]))
        done = place.tool(old, "ls", AOTICACHE_CONFIG=str(file))
        check(f"{name}: it works with it, and names what it does not know", done.returncode == 0 and
              "a_setting_to_come" in done.stderr, (done.returncode, done.stderr[-600:]))
        again = place.tool(current, "ls", AOTICACHE_CONFIG=str(file))
        check(f"{name}: so does this one", again.returncode == 0 and "a_setting_to_come" in again.stderr, again.stderr[-600:])


# ---- many, with kills ----


def try_mix(root: pathlib.Path, old: Version, current: Version, seconds: float) -> None:
    name = f"{old.name} and this version, {SIDE_BY_SIDE} processes each"
    with Place(root, f"mix {old.name}") as place:
        fill(place, old)
        left = 20 if "pin" in old.commands else 0  # without pins, kept entries could not be distinguished from the rest
        seeds = kills = 0
        refusals: dict[str, list[str]] = {}  # by version: messages of processes that ended by themselves
        done = {old.name: 0, current.name: 0}
        kept: list[int] = []
        rebuilds = 0
        running: list[Player] = []

        def start(version: Version) -> None:
            nonlocal seeds
            seeds += 1
            running.append(place.player(version, None, seeds, left))

        def listen(player: Player) -> bool:
            """Reads its messages. Returns false if it has ended."""
            while player.hears_within(0):
                word, _, rest = player.hear().partition(" ")
                if word == "kept":
                    kept.append(int(rest))
                elif word == "done":
                    done[player.version.name] += int(rest)
                elif word == "refused":
                    refusals.setdefault(player.version.name, []).append(rest)
                    return False
                elif not word:
                    return False
            return True

        def part_with(player: Player) -> None:
            nonlocal rebuilds
            player.kill()
            listen(player)
            rebuilds += any(word in player.log() for word in ("built anew", "rebuilt from"))
            player.close()
            running.remove(player)

        for _ in range(SIDE_BY_SIDE):
            start(old)
        time.sleep(0.3)
        for _ in range(SIDE_BY_SIDE):
            start(current)
        end = time.monotonic() + seconds
        while time.monotonic() < end and running:
            time.sleep(random.uniform(0.02, 0.15))
            for player in [player for player in running if not listen(player)]:
                part_with(player)
            if not running:
                break
            victim = random.choice(running)
            part_with(victim)
            kills += 1
            if victim.version is current or old.index == current.index:
                start(victim.version)
        for player in list(running):
            part_with(player)
        wrong = refusals.get(current.name, []) + [text for text in refusals.get(old.name, []) if "WRONG" in text or
                                                  old.index == current.index]
        check(f"{name}: this version never fails, and nobody gets other bytes", not wrong, wrong)
        note(f"{name}, {seconds:.0f} s: {kills} killed, the older did about {done[old.name]} things, this one "
             f"{done[current.name]}; {len(kept)} entries reported as stored for good; "
             f"{len(refusals.get(old.name, []))} of the older ended by themselves")
        for text in sorted({text.split(": ", 1)[-1] for text in refusals.get(old.name, [])}):
            note(f"{name}: the older ended with: {text}")
        player = place.player(current)
        player.ask("open")
        lost = lacking(player, kept)
        if old.index >= FIRST_ADDED_TO:
            check(f"{name}: all {len(kept)} entries that were reported as stored are there", kept and not lost, lost)
        else:
            note(f"{name}: {len(lost)} of {len(kept)} entries that were reported as stored are lost")
        player.end()
        # A killed put may leave objects without an entry, and a manifest, which a repair puts into the index.
        verified = place.tool(current, "verify", "--repair")
        found = re.search(r"\d+ damaged, \d+ missing, \d+ foreign", verified.stdout)
        said = found[0] if found is not None else "0 damaged, 0 missing, 0 foreign"  # "all is well"
        if old.index >= FIRST_ADDED_TO:
            check(f"{name}: nothing is damaged, missing or foreign", said == "0 damaged, 0 missing, 0 foreign",
                  verified.stdout[-600:] + verified.stderr[-300:])
        else:
            note(f"{name}: verify finds {said}")
        verified = place.tool(current, "verify")
        check(f"{name}: verify finds nothing wrong after a repair", verified.returncode == 0, verified.stdout[-600:])
        aside = [one for one in place.set_aside() if not one.startswith("index.sqlite3") and
                 not (place.cache / "quarantine" / one).is_dir()]
        check(f"{name}: nothing sound was set aside", not aside, aside)
        if rebuilds:
            note(f"{name}: {rebuilds} processes built the index anew")


# ---- a future version ----


def try_later(root: pathlib.Path, current: Version) -> None:
    """Simulates a newer version by SQL: its migration renames a column."""
    name = "a later version migrates while this one has it open"
    with Place(root, "later") as place:
        fill(place, current)
        player = place.player(current)
        for line in ("open", "get 1", "put 40", "get 2"):
            player.ask(line)
        later, back = current.index + 1, current.index
        inode = place.index_inode()
        with sqlite3.connect(place.cache / "index.sqlite3", isolation_level=None) as index:
            index.executescript(f"BEGIN IMMEDIATE; ALTER TABLE entries RENAME COLUMN library TO code;"
                                f"PRAGMA user_version={later}; COMMIT")
        says = f"version {later}, this library knows up to {back}: use a newer library or another cache directory"
        for line in ("get 1", "get 1", "put 41", "pin 5", "collect 4", "flush", "get 9", "put 40"):
            said = player.ask(line)
            check(f"{name}: {line} is refused, with what to do", said.startswith("UNSUPPORTED") and says in said, said)
        said = player.ask("compile 42")
        check(f"{name}: a compile goes on, and is not stored", said == "OK unstored", said)
        check(f"{name}: so does a fetch of what is there", (said := player.ask("compile 3")) == "OK unstored", said)
        done = place.tool(current, "verify", "--repair")
        check(f"{name}: a tool refuses", done.returncode != 0 and says in done.stderr, (done.returncode, done.stderr))
        check(f"{name}: the later index stays", place.index_inode() == inode and place.index_version() == later)
        check(f"{name}: nothing was set aside", not place.set_aside(), place.set_aside())
        player.end()
        with sqlite3.connect(place.cache / "index.sqlite3", isolation_level=None) as index:
            index.executescript(f"BEGIN IMMEDIATE; ALTER TABLE entries RENAME COLUMN code TO library;"
                                f"PRAGMA user_version={back}; COMMIT")
        # A refused put cannot find out whether an entry needs what it wrote, and leaves it.
        done = place.tool(current, program="aoticache-gc")
        check(f"{name}: a collection takes what is left over", done.returncode == 0, (done.stdout[-300:], done.stderr[-300:]))
        check_sound(name, place, current, [*ENTRIES, 40])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root = pathlib.Path(tempfile.mkdtemp(prefix="aoticache-versions."))
    try:
        text = (TOP / "index/index.h").read_text()
        current = Version("this version", int(re.search(r"AOTICACHE_INDEX_VERSION (\d+)", text)[1]), BUILD, root / "player", True)
        compile_player(TOP, BUILD, current.player)
        current.learn()
        try_later(root, current)
        for old in read_list(options.short, options.only):
            begun = time.monotonic()
            for trial in (try_migration, try_return, try_at_once, try_leases, try_transfer, try_merge, try_configuration):
                trial(root, old, current)
            for kind in ("http", "redis"):
                try_remote(root, old, current, kind)
            try_mix(root, old, current, options.seconds)
            note(f"{old.name}: {time.monotonic() - begun:.0f} s")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
