#!/usr/bin/env bash
# One compile per fleet, in small: many processes of several machines ask for the same kernels concurrently
# (tests/fleet/trial.py).
# Not a quick test: dozens of processes wait for each other.
. tests/cli/lib.sh

trial() { # NAME ARGUMENT...
    try "$1" 0 python3 tests/fleet/trial.py --machines 4 --processes 3 "${@:2}"
}
compiled() { grep -o '"compiles": [0-9]*' "$out"; }

# trouble_of NAME SERVER: the server has all kernels except one of each machine. Only a restart may cost more compiles.
trouble_of() {
    local there=(--there --new 1 --processes 2 --kernels 8 --delay 0.06)
    trial "$1 that is full, then refuses writes, then has another secret" --server "$2" "${there[@]}" --delay 0.1 --every 0.7 --trouble full,refuse,secret
    is "$1: no compile is due to that" '"compiles": 4' "$(compiled)"
    trial "$1, which has all kernels, is started anew" --server "$2" "${there[@]}" --compile 2 --every 3 --trouble restart
    trial "$1 is started anew, and requests may take longer than that" --server "$2" "${there[@]}" --delay 0.25 --after 4 --timeout 10 \
        --trouble restart
    is "$1: no compile is due to the restart" '"compiles": 4' "$(compiled)"
}

if [ ! -e "$BUILD/lib/libaoticache_remote_redis.so" ]; then
    skip 'by Redis' 'the module for Redis is not built: no libhiredis-dev'
elif ! command -v redis-server >/dev/null; then
    skip 'by Redis' 'there is no redis-server'
else
    trial 'by Redis' --server redis --kernels 8
    is 'one compile for each kernel' '"compiles": 8' "$(compiled)"
    trial 'by Redis, with processes that are killed, and a machine that is cut off' --server redis --kernels 12 --compile 2 \
        --trouble kill,cut --cut 3
    trouble_of 'Redis' redis
    trial 'by Redis, which is started anew' --server redis --kernels 12 --compile 2 --trouble restart
fi
if [ ! -e "$BUILD/lib/libaoticache_remote_http.so" ]; then
    skip 'by a web server' 'the module for HTTP is not built: no libcurl4-openssl-dev'
    finish
fi
trial 'by a web server that honours conditions' --server web --kernels 8
is 'one compile for each kernel there, too' '"compiles": 8' "$(compiled)"
trial 'by a web server, with processes that are killed' --server web --kernels 12 --compile 2 --trouble kill
if PATH=$PATH:/usr/sbin command -v nginx >/dev/null; then
    trouble_of 'nginx' nginx
else
    skip 'nginx that has all kernels' 'there is no nginx'
fi
trouble_of 'S3 with signatures' s3-signed
if "${VENV:-$BUILD/venv}/bin/python" -c 'import moto.server' 2>/dev/null || python3 -c 'import moto.server' 2>/dev/null; then
    trial 'by S3' --server s3 --kernels 8
    is 'one compile for each kernel at last' '"compiles": 8' "$(compiled)"
else
    skip 'by S3' 'there is no moto (pip install "moto[s3,server]")'
fi
finish
