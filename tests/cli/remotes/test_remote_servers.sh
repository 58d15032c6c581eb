#!/usr/bin/env bash
# Real servers as operators have them: Redis with an access list, without memory, as a replica, with a secret that changes;
# nginx with limits and error pages; a WebDAV server; a name server that does not answer; programs that end while they send.
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

export AOTICACHE_KEYS=$work/keys AOTICACHE_REMOTE=
printf 'aten::abs(float32[%s]) on cpu\n' 4 5 >"$work/there"
printf 'aten::abs(float32[%s]) on cpu\n' 4 5 6 >"$work/list"
at() { env AOTICACHE_DIR="$work/$1" "${@:2}"; } # CACHE COMMAND...
AOTICACHE_REMOTE='' at first aoticache warm "$work/there" --hook c >/dev/null 2>"$err" ||
    { not_ok 'set-up' "$(cat "$err")" && finish; }

# warm NAME FETCHED COMPILED: compiles or fetches three kernels, of which the server has two
warm() {
    rm -rf "$work/machine"
    try "$1: a program has its kernels" 0 at machine aoticache warm "$work/list" --hook c --json
    member "$1: those that were there" there "$2"
    member "$1: those that were compiled" compiled "$3"
}

# ---- Redis ----

redis() { redis-cli -s "$redis_socket" "$@"; }
example docs/remotes.md redis >"$work/redis.conf"
if [ ! -e "$BUILD/lib/libaoticache_remote_redis.so" ] || ! start_redis "$work/redis.conf"; then
    skip 'Redis' 'the module is not built (libhiredis-dev), or there is no redis-server'
else
    remote="redis://127.0.0.1:$redis_port unsigned=allow"
    AOTICACHE_REMOTE=$remote try 'Redis: two kernels are there' 0 at first aoticache push --all

    # The access list of docs/remotes.md.
    example docs/remotes.md redis-users >"$work/users" # docs/remotes.md redis-users
    while read -r line; do
        # shellcheck disable=SC2086 # words
        is "Redis: $(cut -d' ' -f3 <<<"$line")'s line is taken" OK "$(redis $line)"
    done <"$work/users"
    echo writes-secret >"$work/writer" && echo reads-secret >"$work/reader" && chmod 600 "$work/writer" "$work/reader"
    AOTICACHE_REMOTE="$remote user=reader secret-file=$work/reader" warm 'Redis, a user who may only read' 2 1
    says 'Redis, a user who may only read: it is said' 'the server refuses: NOPERM: .*; it is not written to for a while'
    AOTICACHE_REMOTE="$remote read-only user=reader secret-file=$work/reader" warm 'Redis, the same, read-only' 2 1
    says_nothing 'Redis, the same, read-only: nothing is said'
    AOTICACHE_REMOTE="$remote namespace=other user=writer secret-file=$work/writer" try 'Redis, a user who may write' 0 at first aoticache push --all
    AOTICACHE_REMOTE="redis://127.0.0.1:$redis_port namespace=other user=writer secret-file=$work/writer" run at first aoticache doctor
    prints 'Redis, a user who may write: doctor' 'read and written, one compile for all machines'
    prints_not 'Redis, a user who may write: what doctor wrote is gone' 'stays there'
    is 'Redis: nothing of doctor is left but the probe' '' "$(redis --scan --pattern 'aoticache/other/keys/doctor')"

    # A secret that changes while a program runs: its next request uses the new one.
    redis acl setuser rotating on '>old' '~aoticache/*' '&aoticache/*' +@all >/dev/null
    echo old >"$work/rotating" && chmod 600 "$work/rotating"
    for n in $(seq 40 75); do echo "aten::abs(float32[$n]) on cpu"; done >"$work/many"
    AOTICACHE_REMOTE="$remote namespace=rotating user=rotating secret-file=$work/rotating" \
        at program aoticache warm "$work/many" --hook c >"$work/rotating.out" 2>"$work/rotating.err" &
    program=$!
    sent() { [ "$(redis --scan --pattern 'aoticache/rotating/ac/*' | wc -l)" -ge "$1" ]; }
    holds 'Redis, a secret that changes: the program sends' until_it sent 3
    redis acl setuser rotating '>new' >/dev/null # both are valid for a while, as docs/kubernetes.md recommends
    echo new >"$work/rotating.new" && chmod 600 "$work/rotating.new" && mv "$work/rotating.new" "$work/rotating"
    redis acl setuser rotating '<old' >/dev/null
    redis client kill user rotating >/dev/null
    wait "$program"
    is 'Redis, a secret that changes: the program ends well' '0 ' "$? $(cat "$work/rotating.err")"
    sent 36
    holds 'Redis, a secret that changes: everything was sent' sent 36
    is 'Redis, a secret that changes: nothing is left' 0 "$(find "$work/program/unsent" -type f 2>/dev/null | wc -l)"

    # A secret's file that is empty when a program starts, because it is being written: the program reads it again a second
    # later.
    printf '#!/bin/sh\nsleep 0.7\nexec cc "$@"\n' >"$work/slow-cc" && chmod +x "$work/slow-cc"
    head -n 5 "$work/many" >"$work/five"
    : >"$work/rotating"
    AOTICACHE_REMOTE="$remote namespace=late user=rotating secret-file=$work/rotating" \
        at late aoticache warm "$work/five" --hook c --cc "$work/slow-cc" --jobs 1 >"$work/late.out" 2>"$work/late.err" &
    program=$!
    holds 'Redis, an empty secret: the program says so' until_it grep -q 'expected a secret on a single line' "$work/late.err"
    echo new >"$work/rotating"
    wait "$program"
    holds 'Redis, an empty secret: the program sends once there is one' [ "$(redis --scan --pattern 'aoticache/late/ac/*' | wc -l)" -ge 1 ]

    # Without memory: existing kernels are served.
    redis config set maxmemory-policy noeviction >/dev/null
    redis config set maxmemory 1 >/dev/null
    AOTICACHE_REMOTE=$remote warm 'Redis without memory' 2 1
    says 'Redis without memory: it is said' 'the server refuses: OOM: it is out of memory: .*; it is not written to'
    run env AOTICACHE_REMOTE="$remote" aoticache doctor
    prints 'Redis without memory: doctor' 'cannot write an object .cas/.: the server refuses: OOM'
    redis config set maxmemory 0 >/dev/null

    # As a replica: its primary is down; its data is served, or not.
    start_nothing
    redis replicaof 127.0.0.1 "$closed_port" >/dev/null
    AOTICACHE_REMOTE=$remote warm 'Redis, a replica' 2 1
    says 'Redis, a replica: it is said' 'the server refuses: READONLY: it is a replica, which does not accept writes; it is not written to'
    redis config set replica-serve-stale-data no >/dev/null
    AOTICACHE_REMOTE=$remote warm 'Redis, a replica that serves nothing' 0 3
    says 'Redis, a replica that serves nothing: it is said' 'the server refuses: MASTERDOWN: .*; it is not used for a while'
    redis replicaof no one >/dev/null
    redis config set replica-serve-stale-data yes >/dev/null
    AOTICACHE_REMOTE=$remote warm 'Redis, a primary again' 2 1

    # A failover to another server at the same address: new connections reach the new primary, and open ones stay with the
    # old one, which is now a replica.
    second_port=$(free_port)
    redis-server --port "$second_port" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no >"$work/second.log" 2>&1 &
    servers+=($!)
    until_it redis-cli -p "$second_port" ping
    echo "$redis_port" >"$work/primary"
    cat >"$work/forwarder.py" <<'PY'
import socket, sys, threading
def pump(source, target):
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
    except OSError:
        pass
    for one in (source, target):
        one.close()
server = socket.create_server(("127.0.0.1", 0), backlog=64)
print(server.getsockname()[1], flush=True)
while True:
    near = server.accept()[0]
    far = socket.create_connection(("127.0.0.1", int(open(sys.argv[1]).read())))
    threading.Thread(target=pump, args=(near, far), daemon=True).start()
    threading.Thread(target=pump, args=(far, near), daemon=True).start()
PY
    "$interpreter" "$work/forwarder.py" "$work/primary" >"$work/forwarder.port" &
    servers+=($!)
    until_it test -s "$work/forwarder.port"
    AOTICACHE_REMOTE="redis://127.0.0.1:$(cat "$work/forwarder.port") unsigned=allow namespace=failover" \
        at failover aoticache warm "$work/many" --hook c >"$work/failover.out" 2>"$work/failover.err" &
    program=$!
    went() { [ "$(redis-cli -p "$1" --scan --pattern 'aoticache/failover/ac/*' | wc -l)" -ge "$2" ]; }
    holds 'Redis, a failover: the program sends' until_it went "$redis_port" 3
    echo "$second_port" >"$work/primary"
    redis replicaof 127.0.0.1 "$closed_port" >/dev/null
    wait "$program"
    is 'Redis, a failover: the program ends well, and has nothing to say' '0 ' "$? $(cat "$work/failover.err")"
    holds 'Redis, a failover: what came later went to the new primary' went "$second_port" 3
    is 'Redis, a failover: nothing is left' 0 "$(find "$work/failover/unsent" -type f 2>/dev/null | wc -l)"
    redis replicaof no one >/dev/null
fi

# ---- HTTP ----

if [ ! -e "$BUILD/lib/libaoticache_remote_http.so" ]; then
    skip 'HTTP' 'the module is not built: no libcurl4-openssl-dev'
    finish
fi
page=$(example docs/remotes.md nginx)
if start_nginx "$(sed 's/client_max_body_size 1g/client_max_body_size 4k/' <<<"$page")"; then
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow"
    try 'nginx that takes 4 KiB' 1 at first aoticache push --all
    says 'nginx that takes 4 KiB: it is said' 'is not sent to .*: the server does not accept objects of this size .HTTP status 413.'
    warm 'nginx that takes 4 KiB' 0 3
    run at machine aoticache doctor
    prints 'nginx that takes 4 KiB: doctor' 'unsent kernels +3 that a remote refused: .*does not accept objects of this size'
    start_nginx "$(sed 's/create_full_put_path on/create_full_put_path off/' <<<"$page")"
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow"
    begun=$SECONDS
    warm 'nginx that makes no directories' 0 3
    says 'nginx that makes no directories: it is said' '.HTTP status (409|500).: .*create_full_put_path'
    holds 'nginx that makes no directories: nobody waits' [ $((SECONDS - begun)) -le 20 ]
    run at machine aoticache doctor
    prints 'nginx that makes no directories: doctor' 'cannot write an object .cas/.: .*create_full_put_path'
    start_nginx "$(sed 's/dav_methods PUT;/dav_methods PUT MKCOL; dav_access user:rw;/; s/create_full_put_path on/create_full_put_path off/' <<<"$page")"
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow" try 'nginx that makes them when it is asked' 0 at first aoticache push --all
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow" warm 'nginx that makes them when it is asked' 2 1
    start_nginx "$(sed 's/dav_methods PUT;/limit_except GET { deny all; }/' <<<"$page")"
    cp -r "$work/nginx/data" "$work/empty" 2>/dev/null
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow" warm 'nginx that is only read' 0 3
    says 'nginx that is only read: it is said' 'the server denies access .HTTP status 403.: this user may not write; it is not written to for a while'
    # Error pages, larger than any object here.
    head -c 30000 /dev/zero | tr '\0' 'x' >"$work/page.html"
    start_nginx "$(sed "s|location / {|error_page 404 /page.html; location = /page.html { internal; alias $work/page.html; } location / {|" <<<"$page")"
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow" try 'nginx with error pages' 0 at first aoticache push --all
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow" warm 'nginx with error pages' 2 1
    says_nothing 'nginx with error pages: nothing is said'
    # A login page for every request.
    start_nginx "server { listen 8080; root /srv/kernels; location / { default_type text/html; return 200 '<html>log in</html>'; } }"
    AOTICACHE_REMOTE="$nginx_url/kernels unsigned=allow"
    warm 'a login page' 0 3
    says 'a login page: it is said' 'an HTML page; check for a login page or a proxy'
    run at machine aoticache doctor
    prints 'a login page: doctor' 'WARN +remote'
else
    skip 'nginx' 'there is no nginx'
fi

python=${VENV:-$BUILD/venv}/bin/python
if "$python" -c 'import wsgidav.wsgidav_app, cheroot.wsgi' 2>/dev/null; then
    mkdir "$work/dav"
    port=$(free_port)
    "$python" "$(dirname "$python")/wsgidav" --host 127.0.0.1 --port "$port" --root "$work/dav" --auth anonymous --no-config -q >"$work/dav.log" 2>&1 &
    servers+=($!)
    until_it python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()' "$port"
    AOTICACHE_REMOTE="http://127.0.0.1:$port/team/kernels unsigned=allow timeout=5s"
    try 'wsgidav: makes the directories it is asked for' 0 at first aoticache push --all
    warm 'wsgidav' 2 1
    AOTICACHE_REMOTE="http://127.0.0.1:$port/team/other timeout=5s" run at machine aoticache doctor
    prints 'wsgidav: doctor' 'read and written, one compile for (all machines|each machine)'
else
    skip 'wsgidav' 'it is not installed (pip install wsgidav cheroot)'
fi

# ---- a name server that does not answer ----

# In separate namespaces, in which it is the only one.
cat >"$work/deaf" <<'SH'
set -e
ip link set lo up
echo 'nameserver 127.0.0.9' >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
printf 'hosts: dns\n' >"$1/nsswitch.conf"
mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.9", 53)); import sys, time; open(sys.argv[1], "w"); time.sleep(60)' "$1/deaf-$$" &
server=$!
until [ -e "$1/deaf-$$" ]; do sleep 0.02; done
shift
"$@" || failed=$?
kill $server
exit ${failed:-0}
SH
if [ "$(id -u)" != 0 ] || ! unshare -mn true 2>/dev/null || ! command -v ip >/dev/null; then
    skip 'a name server that does not answer' 'this needs root, unshare and ip'
else
    for url in redis://cache.example:6379 http://cache.example/kernels; do
        AOTICACHE_REMOTE="$url unsigned=allow"
        rm -rf "$work/machine"
        begun=$(date +%s%N)
        try "$url: a program" 0 at machine unshare -mn bash "$work/deaf" "$work" aoticache run aten::abs --input float32:4=-2 --hook c --json
        milliseconds=$((($(date +%s%N) - begun) / 1000000))
        member "$url: compiles" source compiled
        says "$url: says it once" "remote $url: (the name server does not respond in time|Timeout was reached|Resolving timed out.*|Could.*resolve.*); it is not used for a while"
        holds "$url: after its limit of time, not the resolver's ($milliseconds ms)" [ "$milliseconds" -le 6000 ]
    done
fi

# ---- the end of a program that sends to a slow server ----

cat >"$work/slow.py" <<'PY'
import socket, threading
def take(connection):
    try:
        while connection.recv(1024):
            threading.Event().wait(0.05)  # 20 KiB a second
    except OSError:
        pass
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=take, args=(server.accept()[0],), daemon=True).start()
PY
"$interpreter" "$work/slow.py" >"$work/slow.port" &
servers+=($!)
until_it test -s "$work/slow.port"
TMPDIR=$work "$BUILD/tests/helpers/fill_cache" "$work/large" 1 5000000 2>/dev/null
for url in "http://127.0.0.1:$(cat "$work/slow.port")/kernels" "redis://127.0.0.1:$(cat "$work/slow.port")"; do
    rm -rf "$work/machine"
    begun=$(date +%s%N)
    AOTICACHE_REMOTE="$url unsigned=allow write-only timeout=60s" try "$url: a program that has something to send" 0 \
        at machine aoticache run aten::abs --input float32:4=-2 --hook c --json
    milliseconds=$((($(date +%s%N) - begun) / 1000000))
    holds "$url: ends after about five seconds ($milliseconds ms)" [ "$milliseconds" -le 9000 ]
    is "$url: and the kernel waits" 1 "$(find "$work/machine/unsent" -type f | wc -l)"
done
finish
