#!/usr/bin/env bash
# The first kernels that two machines share through a remote: the messages until there is a key and trust, and that the
# tutorial's three commands set both up.
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

start_redis || { skip 'sharing' 'there is no redis-server' && finish; }
redis_url=unix:$redis_socket
echo "remote = $redis_url" >"$work/aoticache.conf"
export AOTICACHE_CONFIG=$work/aoticache.conf
on() { # MACHINE COMMAND...: each has its own cache and keys
    local machine=$1
    shift
    AOTICACHE_DIR=$work/$machine/cache AOTICACHE_KEYS=$work/$machine/keys "$@"
}
printf 'aten::abs(float32[%s]) on cpu\n' 4 5 6 >"$work/list"
unsigned='kernels are sent there without a signature, and other machines refuse them; to sign them: aoticache key generate, then aoticache push --all$'

# ---- without a key ----

try 'a machine without a key compiles and sends' 0 on first aoticache warm "$work/list" --hook c
prints 'three kernels' '3 compiled'
is 'it says once that nobody can use them' 1 "$(grep -c . "$err")"
says 'and what to do' "^aoticache warm: warning: remote $redis_url: $unsigned"
try 'a run says it too' 0 on first aoticache run aten::abs --input float32:7=-2 --hook c
is 'once' 1 "$(grep -c . "$err")"
says 'in the same words' "^aoticache run: warning: remote $redis_url: $unsigned"
try 'a hit sends nothing' 0 on first aoticache run aten::abs --input float32:7=-2 --hook c --json
says_nothing 'and says nothing'
try 'doctor' 0 on first aoticache doctor
prints 'says it' "WARN +remote +$redis_url responds in .*; kernels are sent there without a signature, and other machines refuse them"
prints 'and what to do' "'aoticache key generate' creates a key; other machines trust it after 'aoticache key trust'"
try 'another machine' 0 on second aoticache warm "$work/list" --hook c
prints 'compiles for itself' '3 compiled'
is 'and is told once what was refused' 1 "$(grep -c 'refused' "$err")"
says 'and what to do' "^aoticache warm: warning: remote $redis_url: 1 entry refused \\([0-9a-f]{12}\\): it is not signed; on the machine that made it, run: aoticache push --all$"
holds 'nothing of that has made a key' [ ! -e "$work/first/keys" ]
AOTICACHE_REMOTE="$redis_url unsigned=allow" try 'who needs no signatures' 0 on third aoticache run aten::abs \
    --input float32:8=-2 --hook c --json
says_nothing 'is not told of them'

# ---- the tutorial's three commands (docs/tutorials/operator.md share) ----

example docs/tutorials/operator.md share >"$work/commands"
is 'it has three' 3 "$(grep -c '^aoticache ' "$work/commands")"
sed -n 1,2p "$work/commands" >"$work/on-first"
try 'the first two, on the first machine' 0 on first bash -e "$work/on-first"
prints 'print the public key' '^builder-1:[A-Za-z0-9+/]{43}=$'
public=$(grep '^builder-1:' "$out")
prints 'and send again what nobody had signed' '^sent 0 entries, .*; 4 were there already$'
try 'before the third, the other machine' 1 on other aoticache pull --all
says 'is told whose it is, and what to do' "4 entries refused \\(([0-9a-f]{12}, ){3}\\.\\.\\.\\): signed by 'builder-1', a key that is not trusted here; if its owner may run code here, run 'aoticache key public' there and 'aoticache key trust' here with what it prints$"
try 'a miss' 0 on other aoticache run aten::abs --input float32:4=-2 --hook c --json
member 'compiles' source compiled
says 'and says why' "1 entry refused .*: signed by 'builder-1'"
sed -n 3p "$work/commands" | sed "s|builder-1:xV1b\\.\\.\\.|$public|" >"$work/on-other"
try 'the third, on the other machine' 0 on other bash -e "$work/on-other"
try 'a miss there fetches' 0 on other aoticache run aten::abs --input float32:5=-2 --hook c --json
member 'from the remote' source fetched
says_nothing 'without a word'
try 'what the first compiles from then on' 0 on first aoticache run aten::abs --input float32:9=-2 --hook c --json
says_nothing 'is signed'
try 'the other' 0 on other aoticache run aten::abs --input float32:9=-2 --hook c --json
member 'fetches it' source fetched
finish
