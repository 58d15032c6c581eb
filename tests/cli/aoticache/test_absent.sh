#!/usr/bin/env bash
# A cache directory that does not exist. If it was named, commands that read or collect it fail, even with --quiet; if it
# is the default, they do nothing. Commands that store make it.
. tests/cli/lib.sh

absent=$work/nowhere/cache
reasons='the cache directory .*/nowhere/cache does not exist: '
by_default() { env -u AOTICACHE_DIR -u XDG_CACHE_HOME HOME="$work/home" "$@"; }
printf 'directory = %s\n' "$absent" >"$work/aoticache.conf"

looking='aoticache ls
aoticache ls --failed
aoticache ls aten::abs
aoticache show 0123456789ab
aoticache du
aoticache du --by operator
aoticache verify
aoticache verify --repair
aoticache rm --all --yes
aoticache rm --failed
aoticache rm 0123456789ab
aoticache pin 0123456789ab
aoticache unpin 0123456789ab
aoticache tag --list
aoticache record --from-cache
aoticache model ls
aoticache inspect 0123456789ab
aoticache export -
aoticache copy OTHER
aoticache-gc
aoticache-gc --dry-run --max-size 1G
aoticache-stat
aoticache-stat --by operator
aoticache-stat --prometheus
aoticache-stat --zero'
while IFS= read -r command; do
    read -ra words <<<"${command/OTHER/$work/other}"
    try "$command: named by --cache-dir" 7 "${words[@]}" --quiet --cache-dir "$absent"
    says "$command: it says what names it, quietly too" "^${words[0]}.*: $reasons--cache-dir names it"
    try "$command: named by a variable" 7 env AOTICACHE_DIR="$absent" "${words[@]}"
    says "$command: it names the variable" "$reasons\\\$AOTICACHE_DIR names it"
    try "$command: named by a file" 7 env -u AOTICACHE_DIR AOTICACHE_CONFIG="$work/aoticache.conf" "${words[@]}"
    says "$command: it names file and line" "$reasons$work/aoticache.conf:1 names it"
done <<<"$looking"
# A lookup of a kernel is a miss, as for a program that has not stored yet.
for command in why run compile; do
    try "$command: a miss" 3 aoticache $command aten::abs --input float32:2 --hook none --cache-dir "$absent"
    says "$command: says why" "$reasons--cache-dir names it"
done
try 'merge of a directory that is not there' 7 aoticache merge "$absent" --cache-dir "$work/other"
says 'names it' "$reasons"
holds 'nothing was made' [ ! -e "$work/nowhere" ]
try 'as JSON' 7 aoticache-gc --json --cache-dir "$absent"
member 'the state' state absent

# The default directory: commands for all entries find none, and commands for one entry report that it is missing.
for command in 'aoticache ls' 'aoticache ls --failed' 'aoticache du' 'aoticache du --by operator' 'aoticache verify' aoticache-gc \
    aoticache-stat 'aoticache-stat --by operator' 'aoticache-stat --csv' 'aoticache-stat --prometheus'; do
    try "the default: $command" 0 by_default $command
    says "the default: $command: says so" "no cache at $work/home/.cache/aoticache"
    try "the default: $command --quiet" 0 by_default $command --quiet
    says_nothing "the default: $command --quiet: is silent"
done
for command in 'ls --json:entries:[]' 'ls --failed --json:failures:[]' 'du --json:total.bytes:0' 'du --by tag --json:groups:[]' \
    'verify --json:findings:[]'; do
    IFS=: read -r words path expected <<<"$command"
    try "the default: $words" 0 by_default aoticache $words
    member "the default: $words: nothing" "$path" "$expected"
    member "the default: $words: of that directory" directory "$work/home/.cache/aoticache"
done
try 'the default: gc --json' 0 by_default aoticache-gc --json
member 'the state is absent' state absent
try 'the default: stat --json' 0 by_default aoticache-stat --json
member 'there are no entries' entries 0
for command in 'show 0123456789ab' 'ls aten::abs' 'pin 0123456789ab' 'why aten::abs --input float32:2 --hook none'; do
    try "the default: $command" 3 by_default aoticache $command
done
holds 'and none is made' [ ! -e "$work/home/.cache" ]

# Commands that store make it, and doctor reads it before that.
try 'doctor where nothing was stored yet' 0 env AOTICACHE_DIR="$absent" aoticache doctor
prints 'says what names it' "^OK +directory +$absent: not there yet, the first compile creates it; .AOTICACHE_DIR names it"
try 'doctor of a directory that is named for it' 0 aoticache doctor --cache-dir "$absent"
prints 'warns of it' "^WARN +directory +$absent: not there yet, the first compile creates it; --cache-dir names it"
try 'what stores makes it' 0 aoticache compile aten::abs --input float32:2 --hook c --quiet --cache-dir "$absent"
try 'and then it is there' 0 aoticache ls --cache-dir "$absent"
finish
