#!/usr/bin/env bash
# aoticache-gc and aoticache-stat.
. tests/cli/lib.sh


for size in 2 3 4; do
    aoticache run aten::abs --input float32:$size --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
    sleep 0.05
done
aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null # the oldest is the last used

try 'stat' 0 aoticache-stat
prints 'entries' '^entries +3$'
prints 'hits with their rate' '^hits +1 \(25\.0 %\)$'
prints 'misses' '^misses +3$'
prints 'compiles' '^compiles +3 '
prints 'time saved' '^saved time +[1-9]'
try 'stat --json' 0 aoticache-stat --json
member 'entries' entries 3
member 'hits' counters.hits 1
member 'misses' counters.misses 3
member 'compiles' counters.compiles 3
member 'the rate' hit_rate 0.25
holds 'time spent' [ "$(field counters.compile_ns)" -gt 0 ]
bytes=$(field bytes)
holds 'bytes' [ "$bytes" -gt 0 ]

try 'gc without a limit' 0 aoticache-gc
says 'says that it removes leftovers only' 'no limit given'
prints 'the summary' '^removed 0 of 3 entries .*; 3 left'
try 'gc --dry-run' 0 aoticache-gc --max-size $((bytes * 2 / 3 + 4096))B --dry-run --verbose
prints 'names what would go' '^would remove [0-9a-f]{12} aten::abs\(float32\[3\]\)'
prints 'the summary says would' '^would remove 1 of 3 entries'
is 'nothing is gone' 3 "$(aoticache ls --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["entries"]))')"
try 'gc --max-size' 0 aoticache-gc --max-size $((bytes * 2 / 3 + 4096))B --json
member 'one entry goes' entries_removed 1
member 'the least recently used' removed.0.description 'aten::abs(float32[3]) on cpu'
member 'two are left' entries_after 2
try 'the last used is still there' 0 aoticache run aten::abs --input float32:2 --hook none --quiet
try 'the collected one is not' 3 aoticache run aten::abs --input float32:3 --hook none --quiet
try 'what is left is sound' 0 aoticache verify
try 'gc --max-age far away' 0 aoticache-gc --max-age 30d --json
member 'removes nothing' entries_removed 0
try 'gc --max-size 1B' 0 aoticache-gc --max-size 1B --json
member 'removes all' entries_after 0
try 'stat counts evictions' 0 aoticache-stat --json
member 'three' counters.evicted 3
is 'no object is left' 0 "$(find "$AOTICACHE_DIR/objects" -type f | wc -l)"

for wrong in '' x 10X 1e3 -1 1..5 ' 5' 99999999999999999999G 10GG 20 1.5; do
    try "gc --max-size '$wrong' is refused" 2 aoticache-gc "--max-size=$wrong"
done
for wrong in '' 30 d 5y -1d 1e9d 99999999999999999999w; do
    try "gc --max-age '$wrong' is refused" 2 aoticache-gc "--max-age=$wrong"
done
for right in 0 1K 1KiB 1kB 1.5G 2T 16E 512B; do
    expected=0
    [ "$right" = 16E ] && expected=2 # one more than fits into 64 bits
    try "gc --max-size $right" $expected aoticache-gc --max-size "$right" --dry-run
done
# without_unit OPTION VALUE TEXT: checks that the error suggests the probable intention.
without_unit() {
    try "gc $1 $2 is refused" 2 aoticache-gc "$1" "$2" --dry-run
    says 'and the unit named' "^aoticache-gc: option $1: '$2' has no unit \(did you mean $3"
}
without_unit --max-size 20 '20G\? 20B for bytes\); see'
without_unit --max-size 10737418240 '10737418240B\?'
without_unit --max-age 20 '20d\?'
without_unit --min-free 5 '5% or 5G\?'
without_unit --low 90 '90% or 90G\?'
without_unit --quarantine-age 30 '30d\?'
without_unit --time-limit 30 '30s\?'
try 'ls --larger, too' 2 aoticache ls --larger 20
says 'as the collector does' "option --larger: '20' has no unit \(did you mean 20G\?"
try 'and verify --time-limit' 2 aoticache verify --time-limit 90
says 'which is a time' "option --time-limit: '90' has no unit \(did you mean 90s\?"
try 'a setting without a unit' 0 env AOTICACHE_MAX_SIZE=20 aoticache-gc --dry-run
says 'is warned of' "warning: .AOTICACHE_MAX_SIZE: max_size: '20' has no unit \(did you mean 20G\?"
says 'and is no limit' 'no limit given'
try 'gc with an argument' 2 aoticache-gc all
try 'stat with an argument' 2 aoticache-stat all
try 'an unknown option of gc' 2 aoticache-gc --max-sise 1G
says 'gc: has a suggestion and the way to the help' "^aoticache-gc: unknown option --max-sise \(did you mean --max-size\?\); see 'aoticache-gc --help'"
finish
