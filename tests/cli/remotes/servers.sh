# Servers for the tests of remotes, on the loopback: started here, and stopped at the end of the script. Sourced after lib.sh.
# A server is started by its program, not by the function `python3` (lib.sh): that would start a shell, which would be killed
# instead of the server.
servers=()

stop_servers() {
    local pid
    for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null; done
    for pid in "${servers[@]}"; do wait "$pid" 2>/dev/null; done
}
trap 'stop_servers; cleanup' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# start_nothing: reserves $closed_port until the script ends, without listening, so that nothing answers there.
start_nothing() {
    "$interpreter" -c 'import signal, socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); signal.pause()' >"$work/closed-port" &
    servers+=($!)
    until_it test -s "$work/closed-port" && closed_port=$(cat "$work/closed-port")
}

# until_it COMMAND...: waits for at most a minute
until_it() {
    local i
    for ((i = 0; i < 1200; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.05
    done
    return 1
}

# is_down PROGRAM LOG: an installed server that does not start is a failure. Only a missing one may be skipped.
is_down() {
    not_ok "$1 starts" "$(tail -n 20 "$work/$2")"
    return 1
}

# start_redis [ARGUMENT]...: sets $redis_socket, $redis_port. Returns false without a redis-server.
start_redis() {
    command -v redis-server >/dev/null || return 1
    redis_socket=$work/redis.sock redis_port=$(free_port)
    redis-server "$@" --port "$redis_port" --bind 127.0.0.1 --unixsocket "$redis_socket" --dir "$work" --daemonize no \
        >"$work/redis.log" 2>&1 &
    servers+=($!)
    until_it test -S "$redis_socket" || is_down redis-server redis.log
}

# start_nginx SERVER-BLOCK: the block listens at 8080 and has its root in /srv/kernels; both are replaced. Sets $nginx_url
start_nginx() {
    local nginx port user=
    nginx=$(PATH=$PATH:/usr/sbin command -v nginx) || return 1
    port=$(free_port)
    rm -rf "$work/nginx" # files of an earlier one, which keeps running
    mkdir -p "$work/nginx/data"
    [ "$(id -u)" -ne 0 ] || user='user root;' # only root can read the test's directories
    {
        echo "daemon off; pid $work/nginx/pid; error_log $work/nginx/error.log; worker_processes 1; $user"
        echo "events {} http { access_log off; client_body_temp_path $work/nginx/body; proxy_temp_path $work/nginx/proxy;"
        echo "fastcgi_temp_path $work/nginx/fastcgi; uwsgi_temp_path $work/nginx/uwsgi; scgi_temp_path $work/nginx/scgi;"
        sed -e "s|listen 8080|listen 127.0.0.1:$port|" -e "s|/srv/kernels|$work/nginx/data|" <<<"$1"
        echo "}"
    } >"$work/nginx/nginx.conf"
    "$nginx" -e "$work/nginx/start.log" -c "$work/nginx/nginx.conf" >"$work/nginx/out" 2>&1 &
    servers+=($!)
    nginx_url=http://127.0.0.1:$port
    until_it test -s "$work/nginx/pid" || is_down nginx nginx/start.log
}

# start_s3: starts moto, a server with S3's interface in Python; sets $s3_endpoint, with the bucket `kernels`.
start_s3() {
    local port python=${VENV:-$BUILD/venv}/bin/python
    "$python" -c 'import moto.server' 2>/dev/null || python=$interpreter
    "$python" -c 'import moto.server' 2>/dev/null || return 1
    port=$(free_port)
    "$python" tests/helpers/moto_server.py -H 127.0.0.1 -p "$port" >"$work/s3.log" 2>&1 &
    servers+=($!)
    s3_endpoint=http://127.0.0.1:$port
    until_it python3 -c 'import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1] + "/kernels", method="PUT"))' \
        "$s3_endpoint" || is_down moto s3.log
}

# start_storing MODE: starts a web server of the tests that honours conditions, or one for Bazel; sets $storing_url
start_storing() {
    "$interpreter" tests/cli/remotes/storing_server.py "$1" >"$work/storing-$1.port" 2>"$work/storing-$1.log" &
    servers+=($!)
    until_it test -s "$work/storing-$1.port" || return 1
    storing_url=http://127.0.0.1:$(cat "$work/storing-$1.port")
}

# start_liar: starts a web server that serves $work/liar as $work/mood says; sets $liar_url
start_liar() {
    mkdir -p "$work/liar"
    : >"$work/mood"
    "$interpreter" tests/cli/remotes/hostile_server.py "$work/liar" "$work/mood" >"$work/liar.port" 2>"$work/liar.log" &
    servers+=($!)
    until_it test -s "$work/liar.port" || return 1
    liar_url=http://127.0.0.1:$(cat "$work/liar.port")
}
