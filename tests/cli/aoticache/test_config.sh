#!/usr/bin/env bash
# aoticache config: the values in use, where they come from, what is wrong in a file; and that the tools
# use them.
. tests/cli/lib.sh

unset AOTICACHE_DIR
export HOME=$work/home XDG_CONFIG_HOME=$work/xdg AOTICACHE_CONFIG=$work/aoticache.conf
mkdir -p "$HOME" "$XDG_CONFIG_HOME/aoticache"
row() { printf '^%s +%s +%s( |$)' "$1" "$2" "$3"; } # NAME VALUE ORIGIN

cat >"$AOTICACHE_CONFIG" <<CONF
# of this machine
directory = $work/configured
max_size = 10G     # of the 100G that there are
max_age = 30d
keep = aten::abs my::*
CONF
try 'a file that is right' 0 aoticache config
says_nothing 'has nothing wrong in it'
prints 'the file' "^files +$AOTICACHE_CONFIG: read"
prints 'the directory' "$(row directory "$work/configured" "$AOTICACHE_CONFIG:2")"
prints 'a size' "$(row max_size 10G "$AOTICACHE_CONFIG:3")"
prints 'patterns' "$(row keep 'aten::abs my::\*' "$AOTICACHE_CONFIG:5")"
prints 'a default' "$(row policy lru default)"
try 'the environment wins' 0 env AOTICACHE_MAX_SIZE=5M aoticache config
prints 'and is named' "$(row max_size 5M '\$AOTICACHE_MAX_SIZE')"
try 'an option wins over that' 0 env AOTICACHE_DIR=/variable aoticache config --cache-dir /option --allow-shared
prints 'the directory of the option' "$(row directory /option --cache-dir)"
prints 'and what it allows' "$(row allow_shared true --allow-shared)"
try 'one value' 0 aoticache config directory
is 'alone on its line' "$work/configured" "$(cat "$out")"
try 'one value of the environment' 0 env AOTICACHE_DIR=/variable aoticache config directory
is 'is that' /variable "$(cat "$out")"
try 'a name that is none' 2 aoticache config maxsize
says 'the nearest is offered' 'did you mean max_size'
try 'as JSON' 0 aoticache config --json
member 'the file is read' files.0.state read
member 'a value' settings.1.value 10G
member 'its origin' settings.1.origin "$AOTICACHE_CONFIG:3"
member 'its variable' settings.1.variable AOTICACHE_MAX_SIZE
member 'no problems' problems 0

# The tools use it.
try 'a compile' 0 aoticache compile aten::abs --input float32:2 --hook c --quiet
holds 'goes to the directory of the file' [ -d "$work/configured/objects" ]
try 'another tool looks there' 0 aoticache-stat --json
member 'finds it' entries 1
chmod g+w "$work/configured"
try 'a directory that others may write' 1 aoticache ls
try 'is refused unless the configuration allows it' 0 env AOTICACHE_ALLOW_SHARED=yes aoticache ls
chmod g-w "$work/configured"

# Errors are named, and those lines are skipped.
printf 'maxsize = 1G\nmax_size = lots\nmax_entries = 3\n' >"$work/wrong.conf"
try 'a file with mistakes' 0 env AOTICACHE_CONFIG="$work/wrong.conf" aoticache config max_entries
is 'what is right counts' 3 "$(cat "$out")"
says 'the line, and the nearest name' "wrong.conf:1: unknown setting 'maxsize'; did you mean max_size"
says 'the value, and what it should be' "wrong.conf:2: max_size: 'lots' is not a size"
try 'checking it' 1 aoticache config --check "$work/wrong.conf"
is 'finds two mistakes' 2 "$(wc -l <"$err")"
try 'checking it, as JSON' 1 aoticache config --check "$work/wrong.conf" --json
member 'the second' problems.1 "$work/wrong.conf:2: max_size: 'lots' is not a size such as 10G or 500M; it stays at 0"
try 'checking one that is right' 0 aoticache config --check "$AOTICACHE_CONFIG"
try 'checking one that is not there' 3 aoticache config --check "$work/nothing"
try 'a check and a name' 2 aoticache config --check "$AOTICACHE_CONFIG" max_size
try 'two names' 2 aoticache config max_size policy

# Which files are read.
echo 'max_entries = 8' >"$XDG_CONFIG_HOME/aoticache/config"
try 'the file of the user' 0 env -u AOTICACHE_CONFIG aoticache config max_entries
is 'is read where XDG says' 8 "$(cat "$out")"
mkdir -p "$HOME/.config/aoticache" && echo 'max_entries = 9' >"$HOME/.config/aoticache/config"
try 'without XDG_CONFIG_HOME' 0 env -u AOTICACHE_CONFIG -u XDG_CONFIG_HOME aoticache config max_entries
is 'it is the one below HOME' 9 "$(cat "$out")"
chmod o+w "$HOME/.config/aoticache/config"
try 'one that others may write' 0 env -u AOTICACHE_CONFIG -u XDG_CONFIG_HOME aoticache config max_entries
is 'does not count' 0 "$(cat "$out")"
says 'and what to do is said' 'is not used: it can be written by others \(mode 0646\); chmod go-w'
try 'an empty variable' 0 env AOTICACHE_CONFIG= aoticache config
prints 'means no file' '^files +none: '
try 'one that is named and not there' 0 env AOTICACHE_CONFIG="$work/nothing" aoticache config
says 'is said to be missing' "nothing does not exist"

# Doctor reports it, too.
verdicts() { python3 -c 'import json,sys; print(" ".join(c["verdict"] for c in json.load(open(sys.argv[2]))["checks"] if c["name"] == sys.argv[1]))' "$1" "$out"; }
run aoticache doctor --json
is 'doctor: a configuration that is right' OK "$(verdicts configuration)"
is 'doctor: the index is sound' OK "$(verdicts integrity)"
is 'doctor: a limit that is kept' OK "$(verdicts max_size)"
run env AOTICACHE_CONFIG="$work/wrong.conf" AOTICACHE_DIR="$work/configured" aoticache doctor --json
is 'doctor: every mistake is a warning' 'WARN WARN' "$(verdicts configuration)"
run env AOTICACHE_MAX_SIZE=1K aoticache doctor --json
is 'doctor: a limit that is smaller than what is there' WARN "$(verdicts max_size)"
mkdir -p "$work/configured/quarantine" && chmod 700 "$work/configured/quarantine" && echo rubbish >"$work/configured/quarantine/thing-1"
run aoticache doctor --json
is 'doctor: what was set aside' OK "$(verdicts quarantine)"
finish
