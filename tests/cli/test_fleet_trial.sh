#!/usr/bin/env bash
# One compile per fleet, in small: many processes of several machines ask for the same kernels at once (tests/fleet/trial.py;
# docs/reliability.md has the figures of the large form).
. tests/cli/lib.sh

trial() { # NAME ARGUMENT...
    try "$1" 0 python3 tests/fleet/trial.py --machines 4 --processes 3 "${@:2}"
}
compiled() { grep -o '"compiles": [0-9]*' "$out"; }

if [ ! -e "$BUILD/lib/libaoticache_remote_redis.so" ]; then
    skip 'by Redis' 'the module for Redis is not built: no libhiredis-dev'
elif ! command -v redis-server >/dev/null; then
    skip 'by Redis' 'there is no redis-server'
else
    trial 'by Redis' --server redis --kernels 8
    is 'one compile for each kernel' '"compiles": 8' "$(compiled)"
    trial 'by Redis, with processes that are killed, and a machine that is cut off' --server redis --kernels 12 --compile 2 \
        --trouble kill,cut --cut 3
    trial 'by Redis, which is started anew' --server redis --kernels 12 --compile 2 --trouble restart
fi
if [ ! -e "$BUILD/lib/libaoticache_remote_http.so" ]; then
    skip 'by a web server' 'the module for HTTP is not built: no libcurl4-openssl-dev'
    finish
fi
trial 'by a web server that honours conditions' --server web --kernels 8
is 'one compile for each kernel there, too' '"compiles": 8' "$(compiled)"
trial 'by a web server, with processes that are killed' --server web --kernels 12 --compile 2 --trouble kill
if "${VENV:-$BUILD/venv}/bin/python" -c 'import moto.server' 2>/dev/null || python3 -c 'import moto.server' 2>/dev/null; then
    trial 'by S3' --server s3 --kernels 8
    is 'one compile for each kernel at last' '"compiles": 8' "$(compiled)"
else
    skip 'by S3' 'there is no moto (pip install "moto[s3,server]")'
fi
finish
