#!/usr/bin/env bash
# One compile per fleet: machines (separate cache directories) with one Redis server. A miss fetches, one machine
# compiles while the others wait, and a server that is down, or that lies, costs a compile and nothing else.
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

[ -e "$BUILD/lib/libaoticache_remote_redis.so" ] || { skip 'a fleet' 'the module for Redis is not built: no libhiredis-dev'; finish; }
example docs/remotes.md redis >"$work/redis.conf"
start_redis "$work/redis.conf" || { skip 'a fleet' 'there is no redis-server'; finish; }
aoticache key generate builder-1 --output "$work/secret-key" >"$work/generated" 2>&1
AOTICACHE_TRUSTED_KEYS=$(grep -o 'builder-1:[A-Za-z0-9+/=]*' "$work/generated" | head -n 1)
export AOTICACHE_TRUSTED_KEYS AOTICACHE_SIGN_WITH=$work/secret-key AOTICACHE_REMOTE="unix:$redis_socket"
at() { env AOTICACHE_DIR="$work/$1" "${@:2}"; }
abs() { at "$1" aoticache run aten::abs --input "float32:$2=-2" "${@:3}" --json; } # MACHINE SIZE ARGUMENT...
abs_why() { at "$1" aoticache why aten::abs --input "float32:$2" --hook c "${@:3}"; } # MACHINE SIZE ARGUMENT...
counter() { at "$1" aoticache-stat --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["counters"][sys.argv[1]])' "$2"; }
redis() { redis-cli -s "$redis_socket" "$@"; }

printf '#!/bin/sh\necho "no compiler here" >&2\nexit 1\n' >"$work/no-cc"
chmod +x "$work/no-cc"

# ---- a miss is answered by a remote ----

try 'the first machine compiles' 0 abs first 4 --hook c
member 'it did' source compiled
holds 'the key has a record' [ "$(redis --scan --pattern 'aoticache/ac/*' | wc -l)" = 1 ]
holds 'no lease is left' [ "$(redis --scan --pattern 'aoticache/lease/*' | wc -l)" = 0 ]
try 'the second machine needs no compiler' 0 abs second 4 --hook c --cc "$work/no-cc"
member 'it fetched' source fetched
member 'the result is right' outputs.0.values '[2.0, 2.0, 2.0, 2.0]'
try 'again' 0 abs second 4 --hook c --cc "$work/no-cc"
member 'from its own cache' source index
is 'a hit from a remote is counted' 1 "$(counter second hits_remote)"
is 'and no miss' 0 "$(counter second misses)"
is 'and no compile' 0 "$(counter second compiles)"
holds 'and its bytes' [ "$(counter second fetched_bytes)" -gt 10000 ]
holds 'the first one counts what it sent' [ "$(counter first sent_bytes)" -gt 5000 ]
try 'what was sent can be pulled' 0 at third aoticache pull --all
prints 'by its list' '^fetched 1 entry'
try 'a machine that trusts nobody compiles itself' 0 env AOTICACHE_TRUSTED_KEYS= AOTICACHE_SIGN_WITH= AOTICACHE_KEYS="$work/nobody" \
    AOTICACHE_DIR="$work/alone" aoticache run aten::abs --input float32:4=-2 --hook c --json
member 'it did so' source compiled
says 'and says why, and what to do' "\"remote unix:.*redis.sock: 1 entry refused \($(field key | cut -c 1-12)\): signed by 'builder-1', a key that is not trusted here; if its owner may run code here, run 'aoticache key public' there and 'aoticache key trust' here with what it prints\"}$"
is 'the refusal is counted' 1 "$(counter alone remote_refused)"

run aoticache doctor
prints 'doctor asks the remote' 'unix:.*redis.sock responds in .*; read and written, one compile for all machines'
prints 'it signs a probe, and believes it' 'OK +remote probe +unix:.*redis.sock: written .* ago, signed by builder-1 \(trusted'
prints_not 'the clocks agree' 'remote clock'
AOTICACHE_TRUSTED_KEYS= AOTICACHE_SIGN_WITH= AOTICACHE_KEYS="$work/nobody" run aoticache doctor
prints 'who does not trust that key' 'WARN +remote probe +unix:.*: written .* ago, signed by builder-1 \(unknown key\): kernels of this signer are refused here'
run aoticache doctor
prints_not 'who has no key signs nothing' 'remote probe'
redis set aoticache/probe nonsense >/dev/null
run aoticache doctor
prints 'a probe of something else is replaced' 'OK +remote probe +unix:.*: written .* ago, signed by builder-1 \(trusted'
AOTICACHE_SIGN_WITH= AOTICACHE_KEYS="$work/nobody" run aoticache doctor
prints 'and warns where nothing is signed' 'kernels are sent there without a signature, and other machines refuse them'
AOTICACHE_REMOTE="$AOTICACHE_REMOTE unsigned=allow" run aoticache doctor
prints 'and warns of what is unsigned' 'entries without a trusted signature are accepted'

chmod 644 "$work/secret-key"
try 'a secret key that others may read' 0 abs keyless 11 --hook c
says 'signs nothing, and nothing is sent' 'a kernel is not sent to unix:.*secret-key'
chmod 600 "$work/secret-key"
AOTICACHE_REMOTE="$AOTICACHE_REMOTE max-object=1K" try 'a kernel that is too large for the remote' 0 abs keyless 12 --hook c
says 'stays here' 'a kernel is not sent to unix:.*max-object of the remote allows 1024'

# ---- the contents of remotes, and of lists ----

try 'why on a machine without a cache' 3 abs_why fresh 4
prints 'asks the remote, too' 'remote +unix:.*redis.sock: one for .*, signed by builder-1$'
abs fourth 97 --hook c >/dev/null 2>&1
try 'why asks the remote' 3 abs_why fourth 4
prints 'it is there' 'remote +unix:.*redis.sock: one for .*, made .* ago, signed by builder-1$'
prints 'and what to do' 'nothing: the next request fetches it'
try 'why as JSON' 3 abs_why fourth 4 --json
member 'it fits' remotes.0.fits true
member 'who signed it' remotes.0.signers builder-1
record=aoticache/ac/$(field key)
try 'nothing is there of another' 3 abs_why fourth 99
prints 'and that is said' 'remote +unix:.*redis.sock: nothing$'
redis get "$record" >"$work/record"
sed -E 's/("requirements" *: *")[0-9a-f]{32}/\1ffffffffffffffffffffffffffffffff/' "$work/record" | redis -x set "$record" >/dev/null
try 'one for another processor' 3 abs_why fourth 4
prints 'says what this one lacks' 'remote +unix:.*: one for .*; this CPU lacks '
head -c -1 "$work/record" | redis -x set "$record" >/dev/null # without the newline that redis-cli adds

printf 'aten::abs(float32[4]) on cpu\naten::abs(float32[98]) on cpu\n' >"$work/list"
try 'prefetch' 3 at fourth aoticache prefetch "$work/list" --hook c --cc "$work/no-cc"
prints 'fetches what there is' '^0 there, 1 fetched, 1 missing, 0 failed, in '
sed -i 2d "$work/list"
try 'prefetch again' 0 at fourth aoticache prefetch "$work/list" --hook c --json
member 'it is there' there 1
is 'no hit is counted' 0 "$(counter fourth hits_remote)"
try 'what was fetched runs' 0 abs fourth 4 --hook none
member 'from the index' source index
try 'pull by a list' 0 at listed aoticache pull --list "$work/list" --hook c
prints 'takes what it names' '^fetched 1 entry'
AOTICACHE_REMOTE="redis://127.0.0.1:$redis_port/8" try 'push by a list' 0 at fourth aoticache push --list "$work/list" --hook c
prints 'too' '^sent 1 entry'
try 'no hook, no keys' 2 at listed aoticache pull --list "$work/list" --hook none
try 'a list and all' 2 at listed aoticache pull --list "$work/list" --all
try 'a list that is not there' 1 at listed aoticache pull --list "$work/nowhere" --hook c
echo 'aten::abs(nonsense)' >"$work/list"
try 'prefetch of a list that is wrong' 2 at fourth aoticache prefetch "$work/list" --hook c
says 'names the line' 'list:1:'

# ---- one compile for four machines ----

cat >"$work/slow-cc" <<'CC'
#!/bin/sh
case "$*" in *.c*) echo run >>"$COMPILES"; sleep 1 ;; esac
exec cc "$@"
CC
chmod +x "$work/slow-cc"
export COMPILES=$work/compiles
: >"$COMPILES"
# one_for_four NAME COMPILES REMOTE: four machines ask for one kernel concurrently. (Leaks are not checked here: the leak
# sanitizer's own tracer sometimes faults on a thread that ends at that moment; the commands below check for leaks.)
one_for_four() {
    local name=$1 machines=() ended=0 i
    : >"$COMPILES"
    rm -rf "$work"/fleet-?
    for i in 1 2 3 4; do
        ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 AOTICACHE_REMOTE=$3 abs "fleet-$i" 5 --hook c --cc "$work/slow-cc" >"$work/fleet-$i.out" 2>"$work/fleet-$i.err" &
        machines+=($!)
    done
    for i in "${machines[@]}"; do wait "$i" && ended=$((ended + 1)); done
    is "$name: all four have the kernel" 4 "$ended"
    [ "$ended" = 4 ] || grep -H . "$work"/fleet-?.err | sed 's/^/#   /'
    is "$name: so many have compiled it" "$2" "$(cat "$work"/fleet-?.out | grep -c '"source": "compiled"')"
    is "$name: so many compilers ran" "$2" "$(wc -l <"$COMPILES")"
    is "$name: the others have waited or fetched" $((4 - $2)) "$(cat "$work"/fleet-?.out | grep -cE '"source": "(waited|fetched)"')"
}
one_for_four 'Redis' 1 "$AOTICACHE_REMOTE"
holds 'Redis: nobody listens any more' [ -z "$(redis pubsub channels)" ]
if [ ! -e "$BUILD/lib/libaoticache_remote_http.so" ]; then
    skip 'a fleet by HTTP' 'the module for HTTP is not built: no libcurl4-openssl-dev'
else
    start_storing conditions
    one_for_four 'a web server that honours conditions' 1 "$storing_url"
    run env AOTICACHE_REMOTE="$storing_url" aoticache doctor
    prints 'doctor knows that it has leases' "$storing_url responds in .*; read and written, one compile for all machines"
    lease=$storing_url/lease/$(field key "$work/fleet-1.out")
    holds 'nobody has the lease any more' [ -z "$(python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())' "$lease")" ]
    start_storing late
    run env AOTICACHE_REMOTE="$storing_url" aoticache doctor
    prints 'doctor of a server that refuses' "remote $storing_url: not found, or this user may not read it"
    prints 'says how far the clock is off' "WARN +remote clock +$storing_url: this machine's clock is (20 min 0|19 min 5[0-9]) s ahead"
    if start_s3; then
        export AWS_ACCESS_KEY_ID=access AWS_SECRET_ACCESS_KEY=fishsword
        one_for_four 'S3' 1 "s3://kernels/team?endpoint=$s3_endpoint timeout=5s"
        unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    else
        skip 'a fleet by S3' 'there is no moto (pip install "moto[s3,server]")'
    fi
    if start_nginx "$(example docs/remotes.md nginx)"; then
        : >"$COMPILES"
        rm -rf "$work/fleet-1"
        AOTICACHE_REMOTE="$nginx_url" try 'nginx ignores conditions' 0 abs fleet-1 5 --hook c --verbose
        member 'so the machine compiles' source compiled
        run env AOTICACHE_REMOTE="$nginx_url" aoticache doctor
        prints 'doctor says so' "$nginx_url responds in .*; read and written, one compile for each machine: the server ignores"
        rm -rf "$work/fleet-2"
        AOTICACHE_REMOTE="$nginx_url" try 'what one has compiled' 0 abs fleet-2 5 --hook c --cc "$work/no-cc"
        member 'others fetch' source fetched
    else
        skip 'a fleet by nginx' 'there is no nginx'
    fi
fi
one_for_four 'Redis again: its kernels are there' 0 "$AOTICACHE_REMOTE"

# An entry from the far one of two remotes is also uploaded to the near one, with its signature.
redis -n 7 dbsize >/dev/null
near="redis://127.0.0.1:$redis_port/7"
AOTICACHE_SIGN_WITH= AOTICACHE_REMOTE="$near $AOTICACHE_REMOTE" try 'a kernel that only the far remote has' 0 \
    abs between 5 --hook c --cc "$work/no-cc"
member 'is fetched' source fetched
AOTICACHE_REMOTE=$near try 'and then the near one has it' 0 abs nearby 5 --hook c --cc "$work/no-cc"
member 'signed as before' source fetched
rm -rf "$work/between"
AOTICACHE_REMOTE="$near read-only $AOTICACHE_REMOTE" run abs between 6 --hook c
is 'a near one that is read-only gets nothing' 1 "$(redis -n 7 --scan --pattern 'aoticache/ac/*' | wc -l)"

# A waiting machine is notified when the lease is released.
key=$(field key "$work/fleet-1.out")
redis --scan --pattern 'aoticache/*' | xargs -r redis-cli -s "$redis_socket" del >/dev/null
redis set "aoticache/lease/$key" somebody >/dev/null
rm -rf "$work/fleet-1"
abs fleet-1 5 --hook c >"$work/fleet-1.out" 2>"$work/fleet-1.err" &
waiter=$!
listens() { [ "$(redis pubsub numsub "aoticache/lease/$key" | tail -n 1)" = 1 ]; }
holds 'who waits listens' until_it listens
redis eval "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1], '')" 1 "aoticache/lease/$key" >/dev/null
wait "$waiter"
is 'and goes on' '"source": "compiled"' "$(grep -o '"source": "[a-z]*"' "$work/fleet-1.out")"

# ---- machines that die, servers that stop ----

redis --scan --pattern 'aoticache/*' | xargs -r redis-cli -s "$redis_socket" del >/dev/null
redis set "aoticache/lease/$key" somebody PX 1500 >/dev/null # as a machine that dies while it compiles leaves it
rm -rf "$work/fleet-1"
begun=$(date +%s%N)
try 'the lease of a dead machine ends' 0 abs fleet-1 5 --hook c
member 'then another compiles' source compiled
holds 'not before' [ $((($(date +%s%N) - begun) / 1000000)) -ge 1000 ]
redis --scan --pattern 'aoticache/*' | xargs -r redis-cli -s "$redis_socket" del >/dev/null
redis set "aoticache/lease/$key" somebody >/dev/null # a machine that hangs forever
rm -rf "$work/fleet-1"
AOTICACHE_COMPILE_TIMEOUT=1 try 'nobody waits longer than for a compile' 0 abs fleet-1 5 --hook c
member 'then it compiles too' source compiled
is 'and leaves the lease to its owner' somebody "$(redis get "aoticache/lease/$key")"

# A damaged record, a damaged object: a warning, and a compile.
redis --scan --pattern 'aoticache/lease/*' | xargs -r redis-cli -s "$redis_socket" del >/dev/null
for object in $(redis --scan --pattern 'aoticache/cas/*'); do redis set "$object" 'not what it was' >/dev/null; done
rm -rf "$work/fleet-2"
try 'damaged objects' 0 abs fleet-2 5 --hook c
member 'are compiled anew' source compiled
is 'and named once' 1 "$(grep -c 'refused: object' "$err")"
says 'by what they are' 'refused: object [0-9a-f]{64} of remote'
rm -rf "$work/fleet-3"
try 'what was compiled takes their place' 0 abs fleet-3 5 --hook c --cc "$work/no-cc"
member 'and serves' source fetched
redis set "aoticache/ac/$key" '{"kind": "aoticache record"}' >/dev/null
rm -rf "$work/fleet-2"
try 'a damaged record' 0 abs fleet-2 5 --hook c
member 'is a miss' source compiled
says 'and named, too' 'not a record'
rm -rf "$work/fleet-3"
try 'and is replaced' 0 abs fleet-3 5 --hook c --cc "$work/no-cc"
member 'by one that serves' source fetched

stop_servers
servers=()
run aoticache doctor
prints 'doctor says that it is gone' 'remote unix:.*redis.sock: cannot connect'
begun=$SECONDS
try 'without the server' 0 abs fleet-4 6 --hook c
member 'the kernel is compiled' source compiled
is 'one line says so' 1 "$(grep -c 'it is not used for a while' "$err")"
holds 'soon' [ $((SECONDS - begun)) -le 10 ]
holds 'failures are counted' [ "$(counter fleet-4 remote_errors)" -ge 1 ]
is 'and that it was left alone' 1 "$(counter fleet-4 remote_backoffs)"
run at fleet-4 aoticache-stat
prints 'aoticache-stat says that it needs attention' '^remote backoffs +1 .*aoticache doctor'
run at fleet-4 aoticache-stat --verbose
prints 'among all counters, too' '^  remote backoffs +1 '
prints 'and how long remotes took' '^  fetch +[1-9]'

is 'what could not be sent is noted' 1 "$(ls "$work/fleet-4/unsent" | wc -l)"
rm -f "$redis_socket"
start_redis "$work/redis.conf"
AOTICACHE_REMOTE="unix:$redis_socket" try 'when a server is there again' 0 abs fleet-4 8 --hook c
is 'it is sent with the next compile' 0 "$(ls "$work/fleet-4/unsent" | wc -l)"
AOTICACHE_REMOTE="unix:$redis_socket" try 'and others have it' 0 abs fleet-1 6 --hook c --cc "$work/no-cc"
member 'without a compile' source fetched
try 'the cache is sound' 0 at fleet-4 aoticache verify

# A server that accepts and never answers: the request ends at its limit.
port=$(free_port)
"$interpreter" -c 'import socket, sys, time; s = socket.create_server(("127.0.0.1", int(sys.argv[1]))); time.sleep(60)' "$port" &
servers+=($!)
until_it python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()' "$port"
begun=$SECONDS
AOTICACHE_REMOTE="redis://127.0.0.1:$port timeout=500ms" try 'a server that is silent' 0 abs fleet-4 7 --hook c
holds 'costs its limit of time, once' [ $((SECONDS - begun)) -le 5 ]
is 'and one line' 1 "$(grep -c 'does not respond in time' "$err")"

finish
