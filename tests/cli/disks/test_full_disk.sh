#!/usr/bin/env bash
# A disk that is completely full, and one that is mounted read-only: programs continue, tools report what is wrong, nothing
# is lost. Runs on a small tmpfs, in its own mount namespace, which ends with the script.
DISK_TEST='a full disk' DISK_SIZE=40m
. tests/cli/disks/small_disk.sh
free_bytes() { echo $(($(stat -f -c '%a * %S' "$disk"))); }
fill() { # until nothing is left, twice, as files that programs have open are freed
    cat /dev/zero >>"$disk/fill" 2>/dev/null
    sync -f "$disk"
    cat /dev/zero >>"$disk/fill" 2>/dev/null
    [ "$(free_bytes)" = 0 ] || not_ok 'set-up' "$(free_bytes) bytes are free"
}
room() { truncate -s "-${1}K" "$disk/fill"; } # KIB: frees this much
call() { aoticache run aten::abs --input "float32:$1=-2" "${@:2}"; }
count() { aoticache ls --json 2>/dev/null | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["entries"]))'; }
objects() { (cd "$AOTICACHE_DIR" && find objects -type f -exec sha256sum {} + | LC_ALL=C sort); }

for size in 2 3 4 5 6 7; do
    call $size --hook c --quiet >/dev/null || { not_ok 'set-up' 'the kernel does not compile' && finish; }
done
archive=$work/all.tar.zst
run aoticache export "$archive"
has_archive=$((status == 0))
aoticache-gc --quiet --prometheus "$disk/gc.prom" 2>/dev/null
cp "$disk/gc.prom" "$work/gc.prom"
before=$(objects)

# ---- kernels do not fit any more, but the files that SQLite needs for reading do ----

fill
room 36
try 'full: a hit' 0 call 2 --hook none --json
member 'full: comes from the index' source index
member 'full: is right' outputs.0.values '[2.0, 2.0]'
try 'full: a miss compiles' 0 call 8 --hook c --json
member 'full: and is right' outputs.0.values '[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]'
is 'full: one line says that it is not stored' 1 "$(grep -c 'warning' "$err")"
says 'full: and why' 'is not stored: .*No space left on device'
try 'full: compile' 0 aoticache compile aten::abs --input float32:9 --hook c
says 'full: says so too' 'is not stored: .*No space left on device'
is 'full: nothing half-made is left' "$before" "$(objects)"
is 'full: nor in tmp/' 0 "$(find "$AOTICACHE_DIR/tmp" -mindepth 1 | wc -l)"
try 'full: ls' 0 aoticache ls
try 'full: verify' 0 aoticache verify
prints 'full: finds all well' '^6 entries, 12 objects.*: all is well$'
try 'full: stat' 0 aoticache-stat --json
member 'full: with its numbers' entries 6
try 'full: du' 0 aoticache du
if [ "$has_archive" = 1 ]; then
    try 'full: export onto it' 1 aoticache export "$disk/all.tar.zst"
    says 'full: says why' 'No space left on device'
    is 'full: leaves no file' 0 "$(find "$disk" -maxdepth 1 -name '*tar*' | wc -l)"
    try 'full: export elsewhere' 0 aoticache export "$work/more.tar.zst"
    holds 'full: gives the same bytes' cmp -s "$archive" "$work/more.tar.zst"
    try 'full: import into a new cache on it' 1 aoticache import --cache-dir "$disk/other" "$archive"
    says 'full: says why not' 'No space left on device|no room|disk is full'
    rm -rf "$disk/other"
else
    skip 'full: export and import' 'there is no libarchive'
fi
try 'full: gc --dry-run' 0 aoticache-gc --max-entries 3 --dry-run
prints 'full: says what would go' '^would remove 3 of 6 entries'

# ---- nothing is free ----

fill
try 'nothing free: a call' 0 call 2 --hook c --json
member 'nothing free: is right' outputs.0.values '[2.0, 2.0]'
try 'nothing free: a miss' 0 call 8 --hook c --json
member 'nothing free: is right too' outputs.0.values '[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]'
run aoticache pin --op 'aten::*'
holds 'nothing free: a pin is refused' [ "$status" != 0 ]
says 'nothing free: and why' 'No space left on device|disk is full'
is 'nothing free: there is no half a mark' 0 "$(find "$AOTICACHE_DIR/marks" -type f 2>/dev/null | wc -l)"
try 'nothing free: metrics' 1 aoticache-gc --dry-run --quiet --prometheus "$disk/gc.prom"
holds 'nothing free: the old ones stay' cmp -s "$disk/gc.prom" "$work/gc.prom"
is 'nothing free: nothing is lost' "$before" "$(objects)"

# ---- with the reserve: gc frees space, even if a program has the cache open ----

reserve=$AOTICACHE_DIR/reserve
holds 'the reserve is there, and nobody else took it' [ "$(stat -c %s "$reserve")" = 1048576 ]
fill
try 'the reserve: gc --dry-run' 0 aoticache-gc --max-entries 5 --dry-run
holds 'the reserve: a dry run leaves it' [ -e "$reserve" ]
fill
try 'the reserve: gc with nothing free' 0 aoticache-gc --max-entries 5 --verbose
says 'the reserve: says that it went' 'the reserve was released'
is 'the reserve: gc makes room' 5 "$(count)"
holds 'the reserve: its room is there' [ "$(free_bytes)" -gt 500000 ]
holds 'the reserve: is not made anew where there is too little' [ ! -e "$reserve" ]
try 'the reserve: verify' 0 aoticache verify
rm "$disk/fill"
try 'the reserve: gc with room' 0 aoticache-gc --quiet
holds 'the reserve: is there again' [ "$(stat -c %s "$reserve")" = 1048576 ]
"$interpreter" - "$AOTICACHE_DIR/index.sqlite3" <<'PYTHON' &
import sqlite3, sys, time
index = sqlite3.connect(sys.argv[1])
index.execute('SELECT count(*) FROM meta').fetchall()
time.sleep(60)
PYTHON
reader=$!
for _ in $(seq 600); do [ ! -e "$AOTICACHE_DIR/index.sqlite3-shm" ] || break; sleep 0.1; done
fill
before=$(objects)
holds 'the reserve: a reader has the index open' kill -0 "$reader"
try 'the reserve: gc with nothing free beside a reader' 0 aoticache-gc --max-entries 4
is 'the reserve: makes room there too' 4 "$(count)"
kill "$reader"
wait "$reader" 2>/dev/null
try 'the reserve: verify again' 0 aoticache verify
rm "$disk/fill"
aoticache-gc --quiet >/dev/null 2>&1
fill
try 'the reserve: gc --min-free' 0 aoticache-gc --min-free 100K --json
holds 'the reserve: is no room that was freed' [ "$(field entries_removed)" -gt 0 ]

# ---- without it gc reports that it cannot, and then a little space is enough ----

rm "$disk/fill"
for size in 2 3 4 5 6 7; do call $size --hook c --quiet >/dev/null 2>&1; done
rm -f "$reserve"
fill
before=$(objects)
run aoticache-gc --max-entries 3
full_status=$status
if [ "$full_status" = 0 ]; then
    is 'full: gc makes room' 3 "$(count)"
else
    is 'full: gc cannot: the exit code' 1 "$full_status"
    says 'full: gc cannot: the reason' '^aoticache-gc: .*(disk is full|No space left on device|open for reading only)'
    is 'full: gc cannot: nothing is lost' "$before" "$(objects)"
fi
try 'full: verify after gc' 0 aoticache verify
needed=never
for kib in 64 128 256 512; do
    room $((kib == 64 ? 64 : kib / 2))
    run aoticache-gc --max-entries 2
    if [ "$status" = 0 ]; then needed=$kib && break; fi
done
echo "# gc went on with $needed KiB free, after status $full_status with none" >&2
holds 'with 512 KiB free gc makes room' [ "$needed" != never ]
is 'down to its limit' 2 "$(count)"
is 'of its objects four are left' 4 "$(objects | wc -l)"
holds 'each as it was' [ -z "$(comm -23 <(objects) <(echo "$before"))" ]
try 'what is left is sound' 0 aoticache verify

# ---- free space again ----

rm -f "$disk/fill"
try 'room: a miss is stored' 0 call 8 --hook c --quiet
says_nothing 'room: without a word'
try 'room: and found' 0 call 8 --hook none --quiet
try 'room: pin' 0 aoticache pin --op 'aten::*'
aoticache unpin --op 'aten::*' --quiet >/dev/null
if [ "$has_archive" = 1 ]; then
    try 'room: import' 0 aoticache import "$archive"
    is 'room: all is there' 7 "$(count)"
fi
try 'room: verify' 0 aoticache verify
rm -f "$disk/gc.prom"
fill
room 400 # and gc must free 200 more
try 'room: gc --min-free' 0 aoticache-gc --min-free 600K --json
holds 'room: has taken what was missing' [ "$(free_bytes)" -ge $(((600 - 64) * 1024)) ]
holds 'room: and not all' [ "$(field entries_after)" -gt 0 ]
holds 'room: and something' [ "$(field entries_removed)" -gt 0 ]
try 'room: gc --min-free again' 0 aoticache-gc --min-free 1% --json
member 'room: where there is enough nothing goes' entries_removed 0
rm -f "$disk/fill"
for size in 2 3 4; do call $size --hook c --quiet >/dev/null 2>&1; done
try 'room: all of it is sound' 0 aoticache verify

# ---- many entries and little space: the files that gc writes must fit too ----

many() { # KIB: 3000 entries, this much free, and a reserve only if nothing is free
    rm -rf "$disk/many" "$disk/fill"
    "$BUILD/tests/helpers/fill_cache" "$disk/many" 3000 4000 || not_ok 'many: set-up' 'the cache cannot be filled'
    head -c 300K /dev/zero >"$disk/many/tmp/torn"
    [ "$1" = 0 ] || rm "$disk/many/reserve"
    fill
    room "$1"
    try "many: gc with $1 KiB free" 0 aoticache-gc --cache-dir "$disk/many" --max-entries 100 --json
    member "many: $1 KiB: comes to its limit" entries_after 100
    member "many: $1 KiB: with what was torn" leftovers 1
    is "many: $1 KiB: only their files are left" 200 "$(find "$disk/many/objects" -type f | wc -l)"
    holds "many: $1 KiB: makes room" [ "$(free_bytes)" -gt 12000000 ]
    holds "many: $1 KiB: no log is left" [ ! -s "$disk/many/index.sqlite3-wal" ]
    try "many: $1 KiB: verify" 0 aoticache verify --cache-dir "$disk/many"
    prints "many: $1 KiB: finds all well" '^100 entries, 200 objects.*: all is well$'
}
many 2048
many 512
many 0
rm -rf "$disk/many" "$disk/fill"

# ---- read-only ----

here=$(count)
aoticache-gc --quiet --prometheus "$disk/gc.prom" 2>/dev/null
snapshot() { (cd "$disk" && find . -printf '%p %s %T@ %m\n' | LC_ALL=C sort && find . -type f -exec sha256sum {} + | LC_ALL=C sort); }
before=$(snapshot)
if ! mount -o remount,ro "$disk"; then
    skip 'read-only' 'the tmpfs cannot be mounted again read-only'
    finish
fi
try 'read-only: a hit' 0 call 2 --hook none --json
member 'read-only: comes from the index' source index
member 'read-only: is right' outputs.0.values '[2.0, 2.0]'
is 'read-only: one line says so' 1 "$(grep -c 'cannot be written (Read-only file system)' "$err")"
try 'read-only: a miss compiles' 0 call 11 --hook c --quiet
try 'read-only: a miss that may not compile' 3 call 12 --hook none --quiet
is 'read-only: ls' "$here" "$(count)"
try 'read-only: verify' 0 aoticache verify
prints 'read-only: all is well' ': all is well$'
try 'read-only: stat' 0 aoticache-stat --json
member 'read-only: with its numbers' entries "$here"
try 'read-only: why' 3 aoticache why aten::abs --input float32:99
refused() { # NAME COMMAND...
    try "read-only: $1 is refused" 1 "${@:2}"
    says "read-only: $1 says why" 'open for reading only|Read-only file system'
}
refused gc aoticache-gc --max-entries 1
refused pin aoticache pin --op 'aten::*'
refused tag aoticache tag --op 'aten::*' some
refused rm aoticache rm --all --yes
[ "$has_archive" = 0 ] || refused import aoticache import "$archive"
try 'read-only: gc --dry-run' 0 aoticache-gc --max-entries 1 --dry-run
prints 'read-only: says what would go' "^would remove $((here - 1)) of $here entries"
try 'read-only: metrics' 1 aoticache-gc --dry-run --quiet --prometheus "$disk/gc.prom"
says 'read-only: cannot be written' "cannot write $disk/gc.prom: Read-only file system"
mount -o remount,rw "$disk"
is 'read-only: nothing has changed' "$before" "$(snapshot)"
try 'writable again: a put' 0 call 11 --hook c --quiet
says_nothing 'writable again: without a word'
try 'writable again: verify' 0 aoticache verify
finish
