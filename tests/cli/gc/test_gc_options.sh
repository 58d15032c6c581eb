#!/usr/bin/env bash
# Every option of aoticache-gc, from outside: what is removed, what stays, its messages, and how it ends when it is
# stopped.
[ ! -w /dev/shm ] || export TMPDIR=${TMPDIR:-/dev/shm} # its many puts wait for no disk
. tests/cli/lib.sh

fill=$BUILD/tests/helpers/fill_cache
[ -x "$fill" ] || { skip 'aoticache-gc' "$fill is not built" && finish; }

# fresh COUNT [BYTES [MILLISECONDS...]]: makes a new cache of fill::op0 (the least recently used), fill::op1, ...
fresh() {
    rm -rf "$AOTICACHE_DIR"
    TMPDIR=$work "$fill" "$AOTICACHE_DIR" "$1" "${2:-200}" "${@:3}" || not_ok 'set-up' 'fill_cache failed'
}
left() { # prints the numbers of the entries that are left, in order
    aoticache ls --json 2>/dev/null | python3 -c 'import json, sys
print(*sorted(int(e["description"].split("op")[1].split("(")[0]) for e in json.load(sys.stdin)["entries"]))'
}
sound() { # NAME: verify finds no problem
    run aoticache verify
    is "$1" 0 "$status"
}
of_entry() { python3 -c 'import json, sys
print(next(e[sys.argv[2]] for e in json.load(sys.stdin)["entries"] if e["description"].startswith("fill::op%s(" % sys.argv[1])))' "$@"; }

# ---- limits ----

fresh 10
try '--max-entries' 0 aoticache-gc --max-entries 8 --json
member 'two go' entries_removed 2
is 'the least recently used' '2 3 4 5 6 7 8 9' "$(left)"
try '--max-entries, not crossed' 0 aoticache-gc --max-entries 8 --low 50% --json
member 'nothing goes, whatever --low says' entries_removed 0
try '--low as a share' 0 aoticache-gc --max-entries 7 --low 60% --json
is 'goes down to it' '6 7 8 9' "$(left)"
member 'entries before' entries_before 8
member 'entries after' entries_after 4
bytes=$(field bytes_after)
try '--low as a size' 0 aoticache-gc --max-size $((bytes - 1))B --low $((bytes / 2))B --json
is 'goes down to that' '8 9' "$(left)"
is 'the files have gone' 4 "$(find "$AOTICACHE_DIR/objects" -type f | wc -l)"
try 'a share of so few that it is none' 0 aoticache-gc --max-entries 1 --low 10%
is 'leaves one' 9 "$(left)"
try 'a free share that there is' 0 aoticache-gc --min-free 0% --json
member 'takes nothing' entries_removed 0
try 'free space that cannot be had' 0 aoticache-gc --min-free 15E --json
member 'takes all' entries_after 0
sound 'what is left is sound'

# 0 means no limit, also if the configuration has one.
fresh 3
export AOTICACHE_MAX_SIZE=1B AOTICACHE_MAX_ENTRIES=1 AOTICACHE_MIN_FREE=99%
try 'limits of 0' 0 aoticache-gc --max-size 0 --max-entries 0 --max-age 0 --min-free 0 --quarantine-age 0 --time-limit 0 --json
member 'are none' entries_removed 0
unset AOTICACHE_MAX_SIZE AOTICACHE_MAX_ENTRIES AOTICACHE_MIN_FREE
AOTICACHE_MAX_SIZE=0 AOTICACHE_MAX_ENTRIES=0 AOTICACHE_MAX_AGE=0 AOTICACHE_MIN_FREE=0 try 'as in the configuration' 0 aoticache-gc --json
member 'where they are none, too' entries_removed 0
try 'what removes everything' 0 aoticache rm --all --yes
is 'is another command' '' "$(left)"

# ---- which entries ----

fresh 6
try '--keep' 0 aoticache-gc --max-size 1B --keep 'fill::op1' --keep 'fill::op[45]' --json
is 'what matches stays' '1 4 5' "$(left)"
member 'and is counted' kept 3
try '--keep where there is a size' 0 aoticache-gc --max-entries 1 --keep 'fill::op1'
is 'others go instead' 1 "$(left)"

fresh 6
pinned=$(aoticache ls --json | of_entry 0 key)
aoticache pin "$pinned" --quiet >/dev/null || not_ok 'set-up' 'pin failed'
try 'a pin' 0 aoticache-gc --max-entries 2 --json
is 'the pinned one stays, the next ones go' '0 5' "$(left)"
member 'and is counted' pinned 1
try 'a pin where everything is due' 0 aoticache-gc --max-size 1B
is 'it alone stays' 0 "$(left)"
prints 'and the summary says why' '1 due but pinned'
aoticache unpin "$pinned" --quiet >/dev/null
try 'unpinned' 0 aoticache-gc --max-size 1B
is 'it goes' '' "$(left)"

fresh 6 200 1 60000 1 60000 1 60000
try '--policy cost --dry-run' 0 aoticache-gc --policy cost --max-entries 3 --dry-run --json
member 'chooses three' entries_removed 3
is 'and removes none' '0 1 2 3 4 5' "$(left)"
try '--policy cost' 0 aoticache-gc --policy cost --max-entries 3
is 'what took a minute to compile stays' '1 3 5' "$(left)"
fresh 6 200 1 60000 1 60000 1 60000
try '--policy lru' 0 aoticache-gc --policy lru --max-entries 3
is 'does not look at that' '3 4 5' "$(left)"

# ---- the configuration ----

printf 'max_entries = 4\npolicy = cost\nkeep = fill::op0\n' >"$work/gc.conf"
fresh 6 200 1 60000 1 60000 1 60000
try 'limits of the configuration' 0 env AOTICACHE_CONFIG="$work/gc.conf" aoticache-gc --json
is 'hold, its policy and patterns too' '0 1 3 5' "$(left)"
says_nothing 'and are limits'
try 'the command line wins' 0 env AOTICACHE_CONFIG="$work/gc.conf" aoticache-gc --max-entries 3 --policy lru
is 'but for patterns, which add up' '0 3 5' "$(left)"
try 'a limit of the environment' 0 env AOTICACHE_MAX_ENTRIES=2 aoticache-gc
is 'holds as well' '3 5' "$(left)"

# ---- unused files ----

fresh 3
aoticache verify --quiet >/dev/null
mkdir -p -m 700 "$AOTICACHE_DIR/quarantine"
ago() { echo $((($(date +%s) - $1) * 1000000000)); }
touch "$AOTICACHE_DIR/quarantine/old-$(ago 5000000)" "$AOTICACHE_DIR/quarantine/new-$(ago 100)"
echo 'nobody names this' >"$work/orphan"
orphan=$(sha256sum "$work/orphan" | cut -d ' ' -f 1)
mkdir -p "$AOTICACHE_DIR/objects/${orphan:0:2}"
cp "$work/orphan" "$(object_path "$orphan")" && chmod 444 "$(object_path "$orphan")"
echo torn >"$AOTICACHE_DIR/tmp/torn"
try '--scan --dry-run' 0 aoticache-gc --scan --dry-run
holds 'removes no file' [ -e "$(object_path "$orphan")" -a -e "$AOTICACHE_DIR/tmp/torn" ]
try '--scan' 0 aoticache-gc --scan --json
holds 'an object that no entry names goes' [ ! -e "$(object_path "$orphan")" ]
holds 'a leftover goes' [ ! -e "$AOTICACHE_DIR/tmp/torn" ]
member 'and is counted' leftovers 1
is 'of quarantine/ what is older than 30 days' 1 "$(find "$AOTICACHE_DIR/quarantine" -type f | wc -l)"
member 'and is counted too' quarantine_removed 1
try '--quarantine-age, longer' 0 aoticache-gc --quarantine-age 1h --json
member 'takes nothing' quarantine_removed 0
try '--quarantine-age, shorter' 0 aoticache-gc --quarantine-age 1m --json
member 'takes the rest' quarantine_removed 1
is 'entries are as they were' '0 1 2' "$(left)"
sound 'all of it is sound'

# ---- Prometheus ----

cat >"$work/check_metrics.py" <<'PYTHON'
import re, sys
kinds, samples = {}, {}
for line in open(sys.argv[1]):
    if line.startswith("# HELP "):
        continue
    if line.startswith("# TYPE "):
        name, kind = line.split()[2:]
        assert kind == "gauge" and name not in kinds, line
        kinds[name] = kind
        continue
    found = re.fullmatch(r'([a-z_]+)\{directory="((?:[^"\\\n]|\\["\\n])*)"(?:,[a-z]+="[^"]*")*\} ([0-9.e+-]+)\n', line)
    assert found and found[1] in kinds and found[1] not in samples, line
    samples[found[1]] = float(found[3])
assert set(kinds) == set(samples), set(kinds) ^ set(samples)
for pair in sys.argv[2:]:
    name, value = pair.split("=")
    assert samples["aoticache_gc_" + name] == float(value), (pair, samples)
PYTHON
metrics=$work/gc.prom
echo before >"$metrics"
exec 5<"$metrics"
try '--prometheus' 0 aoticache-gc --max-entries 2 --prometheus "$metrics"
holds 'has the format and the figures' python3 "$work/check_metrics.py" "$metrics" success=1 entries_removed=1 entries_after=2 partial=0
is 'the old file was replaced, not written to' before "$(cat <&5)"
exec 5<&-
is 'others may read it' 644 "$(stat -c %a "$metrics")"
is 'nothing else is left beside it' 1 "$(find "$work" -maxdepth 1 -name 'gc.prom*' | wc -l)"
try '--prometheus where there is no directory' 1 aoticache-gc --prometheus "$work/none/gc.prom" --quiet
says 'says which file' "cannot write $work/none/gc.prom: No such file"
try '--prometheus of a directory' 1 aoticache-gc --prometheus "$work/home-of-nobody/" --quiet
mkdir "$work/odd \"dir\\" && odd="$work/odd \"dir\\"
try 'an odd directory that is not there' 7 aoticache-gc --cache-dir "$odd/none" --prometheus "$metrics" --quiet
holds 'is escaped, and a failure' python3 "$work/check_metrics.py" "$metrics" success=0
mkdir "$work/closed" && cp "$metrics" "$work/closed/gc.prom" && chmod 555 "$work/closed"
try '--prometheus in a directory that cannot be written' 1 without_capabilities aoticache-gc --prometheus "$work/closed/gc.prom"
holds 'leaves the old file' cmp -s "$metrics" "$work/closed/gc.prom"

# ---- while it runs: its output goes into a pipe that is not read, so it stops after some of the entries ----

start_stalled() { # ARGUMENT...: aoticache-gc --verbose in the background as $collector; returns when it has removed an entry
    rm -f "$work/pipe" && mkfifo "$work/pipe"
    exec 6<>"$work/pipe"
    python3 -c 'import fcntl; fcntl.fcntl(6, fcntl.F_SETPIPE_SZ, 4096)'
    aoticache-gc --verbose "$@" >"$work/pipe" 2>"$err" 6>&- &
    collector=$!
    local tries=0
    while [ $tries -lt 1200 ] && ! stalled; do sleep 0.05 && tries=$((tries + 1)); done
}
stalled() { [ "$(python3 -c 'import array, fcntl, termios
n = array.array("i", [0]); fcntl.ioctl(6, termios.FIONREAD, n); print(n[0])')" -ge 4096 ]; }
end_stalled() { # empties the pipe; its output in $out, its status in $status
    cat <"$work/pipe" >"$out" 6>&- &
    local reader=$!
    exec 6>&-
    wait "$collector"
    status=$?
    wait $reader
}

fresh 600 60
start_stalled --max-size 1B --nice
is '--nice: the priority of the process' 19 "$(ps -o ni= -p "$collector" | tr -d ' ')"
if command -v ionice >/dev/null; then
    is '--nice: of its input and output' idle "$(ionice -p "$collector")"
else
    skip '--nice: of its input and output' 'there is no ionice(1)'
fi
try 'another one at the same time' 0 aoticache-gc --max-size 1B
says 'says that it does nothing' "another collection is running in $AOTICACHE_DIR: nothing done"
try 'another one, as JSON' 0 aoticache-gc --max-size 1B --json --quiet
member 'has the state' state locked
try 'others read meanwhile' 0 aoticache ls
kill -TERM "$collector"
end_stalled
is 'SIGTERM ends it well' 0 "$status"
prints 'it says how far it came' 'stopped before everything was done, the next run continues$'
holds 'which is not to the end' [ "$(left | wc -w)" -gt 0 -a "$(left | wc -w)" -lt 600 ]
is 'it lists what went' $((600 - $(left | wc -w))) "$(grep -c '^removed [0-9a-f]\{12\} fill::op' "$out")"
sound 'the store is sound after it'

start_stalled --max-size 1B --time-limit 1s
sleep 1.2
end_stalled
is 'over its time limit' 0 "$status"
prints 'it says so' 'stopped before everything was done, the next run continues$'
holds 'it stops' [ "$(left | wc -w)" -gt 0 ]
try 'the next run' 0 aoticache-gc --max-size 1B --time-limit 5m --json
member 'goes on' entries_after 0
member 'to the end' state done
if has_terminal; then
    fresh 5
    try '--progress on a terminal' 0 on_terminal xterm 'aoticache-gc --max-size 1B --progress'
    prints 'the summary stands alone in its line' 'removed 5 of 5 entries'
else
    skip '--progress on a terminal' "$no_terminal"
fi
try '--progress in a log' 0 aoticache-gc --max-size 1B --progress
says_nothing 'a short run says nothing there'

fresh 300 60
before=$(stat -c %s "$AOTICACHE_DIR/index.sqlite3")
try '--vacuum' 0 aoticache-gc --max-size 1B --vacuum --json
holds 'gives pages back' [ "$(field vacuumed_bytes)" -gt 0 ]
holds 'the index is smaller' [ "$(stat -c %s "$AOTICACHE_DIR/index.sqlite3")" -lt "$before" ]
sound 'and sound'

# ---- a clock that jumps ----

cat >"$work/ahead.c" <<'C'
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += atoll(getenv("AHEAD"));
    return result;
}
C
ahead() { # DAYS COMMAND...
    AHEAD=$(($1 * 86400)) LD_PRELOAD=$work/ahead.so "${@:2}"
}
fresh 40
if is_instrumented; then
    skip 'a clock that has jumped' 'this build is instrumented, and wants to be loaded before what moves the clock'
elif ${CC:-cc} -shared -fPIC -o "$work/ahead.so" "$work/ahead.c" 2>/dev/null; then
    try 'a collection' 0 aoticache-gc --max-age 90d
    try 'another one a year later, of a machine that ran for no year' 1 ahead 365 aoticache-gc --max-age 90d --json \
        --prometheus "$work/gc.prom"
    says 'says when the last one was' "the clock says $(date -u -d '365 days' +%Y)-.* UTC, the last collection or use was at $(date -u +%Y)-"
    says 'and what to do' 'set the clock right, or, if it is right .the machine was off., use --trust-clock'
    member 'has a state of its own' state refused
    member 'removes nothing' entries_after 40
    member 'and says what it would have' refused 40
    holds 'Prometheus has it' grep -q '^aoticache_gc_refused{.*} 40$' "$work/gc.prom"
    try 'once the clock is right' 0 aoticache-gc --max-age 90d --json
    member 'all is well' refused 0
    try '--trust-clock' 0 ahead 365 aoticache-gc --max-age 90d --trust-clock --json
    member 'removes them' entries_after 0
else
    skip 'a clock that jumps' 'there is no C compiler'
fi

# ---- other processes at work ----

fresh 5
for held in lock gate; do # while a process stores
    (flock -s 9 && echo held && exec sleep 20) 9<"$AOTICACHE_DIR/$held" >"$work/is_held" 2>&1 &
    holder=$!
    until [ -s "$work/is_held" ]; do sleep 0.05; done
    AOTICACHE_LOCK_TIMEOUT=0 try "somebody has $held" 1 aoticache-gc --max-entries 2
    says 'it says which file' "timed out after [0-9]* ms: $AOTICACHE_DIR/$held is locked by another process"
    kill "$holder"
    wait "$holder" 2>/dev/null
    : >"$work/is_held"
done
python3 -c 'import sqlite3, sys, time
index = sqlite3.connect(sys.argv[1])
index.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(20)' "$AOTICACHE_DIR/index.sqlite3" >"$work/is_held" &
holder=$!
until [ -s "$work/is_held" ]; do sleep 0.05; done
AOTICACHE_LOCK_TIMEOUT=0 try 'somebody writes the index' 1 aoticache-gc --max-entries 2
says 'it says so' "index $AOTICACHE_DIR/index.sqlite3.*lock"
kill "$holder"
wait "$holder" 2>/dev/null

# ---- JSON ----

fresh 4
try '--json' 0 aoticache-gc --max-entries 3 --json
members='directory state dry_run entries_before bytes_before entries_after bytes_after entries_removed objects_removed
bytes_removed held pinned kept leftovers failures_removed quarantine_removed refused vacuumed_bytes duration_ns removed'
for name in $members; do field "$name" >/dev/null 2>&1 || not_ok "JSON: $name" 'it is not there'; done
is 'JSON has these members and no others' "$(printf '%s\n' $members | sort | tr '\n' ' ')" \
    "$(python3 -c 'import json, sys; print(*sorted(json.load(open(sys.argv[1]))), end=" ")' "$out")"
is 'what was there is what went and what stays' "$(field bytes_before)" $(($(field bytes_after) + $(field bytes_removed)))
is 'bytes are those of the files' "$(field bytes_after)" "$(find "$AOTICACHE_DIR/objects" -type f -printf '%s\n' | paste -sd+ | bc)"
member 'an entry that went has its description' removed.0.description 'fill::op0() on cpu'

# ---- wrong arguments ----

refused() { # NAME TEXT ARGUMENT...
    try "$1 is refused" 2 aoticache-gc "${@:3}"
    says 'with the reason' "$2"
}
refused 'entries that are no number' "'many' is not a number" --max-entries many
refused 'negative free space' "'-1%' is not" --min-free -1%
refused 'all of the disk free' "'100%' is not" --min-free 100%
refused 'more than all of it' "'101%' is not" --min-free 101%
refused '--low alone' 'needs --max-size or --max-entries' --low 50%
refused '--low above --max-size' 'larger than --max-size' --max-size 1K --low 2K
refused '--low of nothing' "'0' is not" --max-size 1K --low 0
refused '--low of no share' "'0%' is not" --max-size 1K --low 0%
refused '--low in bytes for entries' 'needs --max-size' --max-entries 5 --low 1K
refused 'a policy' "'mru' is not lru or cost" --policy mru
refused 'an age in quarantine/' "'x' is not an age" --quarantine-age x
refused 'no time' "'x' is not a time" --time-limit x
refused 'a file without a name' 'needs the name of a file' --prometheus ''
try 'a setting that is wrong' 0 env AOTICACHE_MAX_ENTRIES=lots aoticache-gc
says 'is said, and is no limit' "'lots' is not a number of entries"
is 'nothing of all this has removed anything' '1 2 3' "$(left)"
finish
