#!/usr/bin/env bash
# Nothing is free on the disk, and no process has the index open, so that SQLite cannot make its -shm file: entries are
# still found, listed and verified, even if the last changes are only in the WAL. Runs on a small tmpfs, in its own mount
# namespace, which ends with the script.
DISK_TEST='no space' DISK_SIZE=8m
. tests/cli/disks/small_disk.sh
fill() { # until nothing is left
    cat /dev/zero >>"$disk/fill" 2>/dev/null
    [ "$(stat -f -c %a "$disk")" = 0 ] || not_ok 'set-up' "$(stat -f -c %a "$disk") blocks are free"
}
call() { aoticache run aten::abs --input "float32:$1=-2" "${@:2}"; }
count() { aoticache ls --json 2>/dev/null | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["entries"]))'; }
objects() { (cd "$AOTICACHE_DIR" && find objects -type f -exec sha256sum {} + | LC_ALL=C sort); }
die_with_changes() { # SQL: the process dies, and its changes are only in the WAL
    (python3 - "$AOTICACHE_DIR/index.sqlite3" "$1" <<'PYTHON'
import os, signal, sqlite3, sys
index = sqlite3.connect(sys.argv[1])
index.executescript(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
PYTHON
    true) 2>/dev/null
    rm -f "$AOTICACHE_DIR/index.sqlite3-shm"
}
everything_is_read() { # NAME
    fill
    try "$1: a hit" 0 call 2 --hook none --json
    member "$1: comes from the index" source index
    member "$1: is right" outputs.0.values '[2.0, 2.0]'
    is "$1: one line says that the cache is only read" 1 "$(grep -c 'opened for reading only' "$err")"
    says "$1: and why" 'the disk is full'
    fill
    is "$1: ls" 3 "$(count)"
    fill
    try "$1: stat" 0 aoticache-stat --json
    member "$1: with its numbers" entries 3
    fill
    try "$1: verify" 0 aoticache verify
    prints "$1: knows all entries" '^3 entries, 6 objects.*: all is well$'
    try "$1: verify --quick --json" 0 aoticache verify --quick --json
    member "$1: knows them too" entries 3
    is "$1: nothing is lost" "$before" "$(objects)"
}

for size in 2 3 4; do
    call $size --hook c --quiet >/dev/null || { not_ok 'set-up' 'the kernel does not compile' && finish; }
done
aoticache-gc --quiet >/dev/null 2>&1
before=$(objects)
holds 'set-up: the index is closed' [ ! -e "$AOTICACHE_DIR/index.sqlite3-shm" ]

# ---- all changes are in the database ----

everything_is_read 'no space'
try 'no space: a miss compiles' 0 call 8 --hook c --json
member 'no space: and is right' outputs.0.values '[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]'
run aoticache rm --all --yes
holds 'no space: rm is refused' [ "$status" = 1 ]
is 'no space: and takes nothing' "$before" "$(objects)"

# ---- a process that died has left its changes in the WAL ----

rm "$disk/fill"
die_with_changes 'UPDATE details SET uses = uses + 1000'
holds 'set-up: the WAL holds changes' [ -s "$AOTICACHE_DIR/index.sqlite3-wal" ]
fill
aoticache ls --json >"$out" 2>"$err"
is "a WAL: its changes are seen" True "$(python3 -c 'import json,sys; print(min(e["uses"] for e in json.load(sys.stdin)["entries"]) >= 1000)' <"$out")"
everything_is_read 'a WAL'

# ---- an unreadable index is reported as a problem ----

rm -f "$disk/fill"
cp "$AOTICACHE_DIR/index.sqlite3" "$work/index.sqlite3"
not_well() { # NAME STATUS
    fill
    try "$1: verify fails" "$2" aoticache verify
    prints_not "$1: not all is well" 'all is well'
    says_not "$1: no object is called unneeded" 'no entry names'
    is "$1: nothing is lost" "$before" "$(objects)"
    rm -f "$disk/fill" "$AOTICACHE_DIR"/index.sqlite3*
}
says_not() { if grep -Eq -- "$2" "$err"; then not_ok "$1" "a line on standard error matches: $2"; else ok "$1"; fi; }

die_with_changes 'UPDATE meta SET value = value; CREATE TABLE large(bytes); INSERT INTO large VALUES(zeroblob(300000))'
not_well 'a WAL that the database has no room for' 1
says 'a WAL that the database has no room for: it says so' '^aoticache verify: index .*-wal file holds changes, and the disk is full'
head -c 100 "$work/index.sqlite3" >"$AOTICACHE_DIR/index.sqlite3"
not_well 'an index that is cut off' 4
not_well 'no index' 4

# ---- free space again ----

mv "$work/index.sqlite3" "$AOTICACHE_DIR/index.sqlite3"
try 'room: a miss is stored' 0 call 8 --hook c --quiet
says_nothing 'room: without a word'
is 'room: and listed' 4 "$(count)"
try 'room: verify' 0 aoticache verify
finish
