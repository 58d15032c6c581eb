#!/usr/bin/env bash
# aoticache push and pull: kernels are sent to real servers (Redis, nginx) and fetched from them, and nothing is accepted
# from a server that lies. The configurations are those of docs/remotes.md (docs/remotes.md redis, docs/remotes.md nginx).
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

at() { env AOTICACHE_DIR="$work/$1" aoticache "${@:2}"; } # CACHE ARGUMENT...
tree() { (cd "$work/$1/objects" && find . -type f | LC_ALL=C sort); }
keys() { at "$1" ls --json | grep -o '"key": *"[0-9a-f]*"' | LC_ALL=C sort -u; }

# ---- settings (docs/remotes.md settings) ----

example docs/remotes.md settings >"$work/settings"
try 'the settings of the page are sound' 0 aoticache config --check "$work/settings"
AOTICACHE_CONFIG=$work/settings
chmod 600 "$work/settings"
try 'both lines count' 0 aoticache config remote
prints 'in their order' '^redis://cache.example:6379/0 https://mirror.example/kernels read-only timeout=5s '
while IFS='|' read -r text wanted; do
    echo "remote = $text" >"$work/settings"
    try "refused: $text" 1 aoticache config --check "$work/settings"
    says "$wanted" "$wanted"
done <<'CASES'
read-only|is not a remote
redis://u:hunter2@host|must not contain a user or password
redis://host timeout=0s|is not a time
redis://host namespace=../x|letters, digits
redis://host secret-file=relative|an absolute path
redis://host unsigned=yes|unsigned=allow or unsigned=refuse
redis://host password=hunter2|unknown option 'password'
redis://host max-object=1T|at most 16G
http://host layout=maven|layout=plain or layout=bazel
https://host client-certificate=mine.pem|an absolute path
https://host client-key=mine.key|an absolute path
CASES
echo 'remote = redis://host password=hunter2 redis://u:hunter2@host' >"$work/settings"
run aoticache config --check "$work/settings"
holds 'no secret is printed' [ -z "$(grep -h hunter2 "$out" "$err")" ]
AOTICACHE_CONFIG=
mkdir -m 700 "$work/empty"
try 'without remotes there is nothing to send to' 3 aoticache push --all --cache-dir "$work/empty"
start_nothing || not_ok 'set-up' 'no port can be held'
export AOTICACHE_REMOTE="redis://127.0.0.1:$closed_port unsigned=allow"
try 'everything is only sent when it is said' 2 aoticache push
try 'not everything and a choice' 2 aoticache push --all --op 'aten::*'

run env AOTICACHE_REMOTE= LD_DEBUG=files aoticache ls
holds 'a process without remotes loads nothing for them' [ -z "$(grep -hE 'calling init.*(_remote_|zstd|curl|hiredis)' "$out" "$err")" ]

# ---- sending and fetching ----

for size in 4 5 6; do
    AOTICACHE_REMOTE='' run at first run aten::abs --input "float32:$size=-2" --hook c --json
    [ "$status" = 0 ] || { not_ok 'set-up' 'the kernel does not compile' && finish; }
done
key=$(field key)
aoticache key generate builder-1 --output "$work/secret-key" >"$work/generated" 2>&1
public=$(grep -o 'builder-1:[A-Za-z0-9+/=]*' "$work/generated" | head -n 1)
try 'a server that is not there' 1 at first push --all
says 'is named' "remote redis://127.0.0.1:$closed_port: cannot connect"

# goes_and_comes NAME URL: tests everything that is the same for all servers
goes_and_comes() {
    local name=$1
    export AOTICACHE_REMOTE="$2 unsigned=allow"
    try "$name: push of one kernel" 0 at first push --key "${key:0:16}"
    prints "$name: one went" '^sent 1 entry, 2 objects, .*; compressed '
    try "$name: push of the rest" 0 at first push --all --json
    member "$name: the others went" entries 2
    member "$name: one was there" entries_present 1
    try "$name: push again" 0 at first push --all
    prints "$name: nothing was sent" '^sent 0 entries, 0 objects, 0 B; 3 were there already'
    rm -rf "$work/second"
    try "$name: pull of one kernel" 0 at second pull --key "${key:0:16}"
    prints "$name: one came" '^fetched 1 entry, 2 objects'
    try "$name: pull" 0 at second pull --all
    prints "$name: the others came" '^fetched 2 entries, 4 objects, .*; 1 was there already'
    is "$name: the same objects" "$(tree first)" "$(tree second)"
    try "$name: the cache is sound" 0 at second verify
    try "$name: a kernel runs without a compiler" 0 at second run aten::abs --input float32:5=-2 --hook none --json
    member "$name: from the index" source index
    try "$name: pull by operator" 3 at third pull --op 'prims::*'
    at first tag "$key" release-4 >/dev/null
    try "$name: a tag is sent" 0 at first push --tag release-4
    rm -rf "$work/third"
    try "$name: pull by tag" 0 at third pull --tag release-4
    prints "$name: what has it" '^fetched 1 entry'
    is "$name: that one" "\"key\": \"$key\"" "$(keys third)"
    try "$name: pull by another tag" 3 at third pull --tag release-5
    AOTICACHE_REMOTE="$2 namespace=plain"
    rm -rf "$work/fourth"
    try "$name: push without a signature" 0 at first push --all --no-sign
    try "$name: entries without a signature are refused" 1 at fourth pull --all
    says "$name: and why, and what to do" '^aoticache pull: warning: remote [^ ]+: 3 entries refused \(([0-9a-f]{12}(, )?){3}\): they are not signed; on the machine that made them, run: aoticache push --all$'
    is "$name: in one line" 1 "$(grep -c . "$err")"
    prints "$name: all of them" '^fetched 0 entries, 0 objects, 0 B; 3 refused, 3 of them because no trusted key signed them'
    holds "$name: no object came" [ -z "$(find "$work/fourth/objects" -type f 2>/dev/null)" ]
    AOTICACHE_REMOTE="$2 namespace=signed"
    try "$name: push with a signature" 0 at first push --all --sign-with "$work/secret-key"
    try "$name: a signature of somebody unknown is refused" 1 at fourth pull --all
    says "$name: and whose, and what to do" ": signed by 'builder-1', a key that is not trusted here; if its owner may run code here, run 'aoticache key public' there and 'aoticache key trust' here with what it prints$"
    holds "$name: still no object came" [ -z "$(find "$work/fourth/objects" -type f 2>/dev/null)" ]
    try "$name: the same, signed by who pushes, too" 0 at first push --all
    rm -rf "$work/own"
    try "$name: who pushed trusts it" 0 at own pull --all
    prints "$name: and gets it" '^fetched 3 entries, 6 objects'
    AOTICACHE_TRUSTED_KEYS=$public try "$name: one of a trusted key comes" 0 at fourth pull --all
    prints "$name: all of them again" '^fetched 3 entries, 6 objects'
    holds "$name: with its signatures" [ "$(find "$work/fourth/signatures" -type f | wc -l)" = 3 ]
    rm -rf "$work/fourth"
    AOTICACHE_REMOTE="$2 unsigned=allow namespace=team-a"
    try "$name: another namespace is empty" 3 at fourth pull --all
    AOTICACHE_REMOTE="$2 unsigned=allow read-only"
    try "$name: nothing is written to what is read-only" 3 at first push --all
    AOTICACHE_REMOTE="$2 unsigned=allow write-only"
    try "$name: nothing is read from what is write-only" 3 at fourth pull --all
    AOTICACHE_REMOTE="$2 unsigned=allow"
    example docs/remotes.md commands >"$work/commands" # docs/remotes.md commands
    try "$name: the commands of the page" 0 env AOTICACHE_DIR="$work/first" sh -e "$work/commands"
    # Many concurrent writers of one record and of one list: each key's record has both entries, and no key is missing from a
    # list.
    AOTICACHE_REMOTE="$2 unsigned=allow namespace=crowd"
    local i writers=()
    for i in first second first second; do at "$i" push --all >/dev/null 2>&1 & writers+=($!); done
    for i in "${writers[@]}"; do wait "$i"; done
    rm -rf "$work/fourth"
    try "$name: pull after several pushed at once" 0 at fourth pull --all
    is "$name: all kernels" "$(keys first)" "$(keys fourth)"
    # Entries whose file is in their manifest: one object each.
    AOTICACHE_REMOTE="$2 unsigned=allow namespace=records"
    rm -rf "$work/records" "$work/fourth"
    FILL_IN_MANIFEST=1 TMPDIR=$work "$BUILD/tests/helpers/fill_cache" "$work/records" 3 5000
    try "$name: push of records" 0 at records push --all
    prints "$name: one object each" '^sent 3 entries, 3 objects'
    try "$name: pull of records" 0 at fourth pull --all
    prints "$name: one object each comes" '^fetched 3 entries, 3 objects'
    is "$name: the same records" "$(tree records)" "$(tree fourth)"
    try "$name: the records are sound" 0 at fourth verify
    AOTICACHE_REMOTE+=" max-object=5K"
    rm -rf "$work/fourth"
    try "$name: records that are larger than the remote allows are refused" 1 at fourth pull --all
    prints "$name: all of them are" '^fetched 0 entries, .* 3 refused'
}

# Makes a self-signed certificate for 127.0.0.1, once.
make_certificate() {
    [ ! -s "$work/tls.pem" ] || return 0
    command -v openssl >/dev/null || return 1
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=cache.example -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$work/tls.key" -out "$work/tls.pem" 2>/dev/null
}

module_is_there() { [ -e "$BUILD/lib/libaoticache_remote_$1.so" ]; }

if ! module_is_there redis; then
    skip 'Redis' 'the module is not built: there is no libhiredis-dev'
else
    example docs/remotes.md redis >"$work/redis.conf"
    if start_redis "$work/redis.conf"; then
        goes_and_comes 'Redis, by TCP' "redis://127.0.0.1:$redis_port/1"
        goes_and_comes 'Redis, by a socket' "unix:$redis_socket"
        redis-cli -s "$redis_socket" config set requirepass swordfish >/dev/null
        AOTICACHE_REMOTE="unix:$redis_socket unsigned=allow"
        try 'Redis: without the password' 1 at first push --all
        says 'Redis: refused' 'the server refuses: (NOAUTH|unauthenticated): it requires a password'
        AOTICACHE_REMOTE="unix:$redis_socket unsigned=allow secret-env=REDIS_SECRET"
        try 'Redis: the variable is not set' 1 at first push --all
        says 'Redis: it is named' 'the variable REDIS_SECRET, which should hold the secret, is not set'
        REDIS_SECRET=swordfish try 'Redis: with the password' 0 at first push --all
        echo swordfish >"$work/secret" && chmod 644 "$work/secret"
        AOTICACHE_REMOTE="unix:$redis_socket unsigned=allow secret-file=$work/secret"
        try 'Redis: a password that others may read' 1 at first push --all
        says 'Redis: what to do' 'chmod 600'
        chmod 600 "$work/secret"
        try 'Redis: from a file' 0 at first push --all
        echo wrong-horse >"$work/secret"
        try 'Redis: a wrong password' 1 at first push --all
        holds 'Redis: is not printed' [ -z "$(grep wrong-horse "$out" "$err")" ]
        redis-cli -s "$redis_socket" -a swordfish --no-auth-warning config set requirepass '' >/dev/null
        tls_port=$(free_port)
        if make_certificate && [ "$(redis-cli -s "$redis_socket" config set tls-port "$tls_port" tls-cert-file "$work/tls.pem" \
            tls-key-file "$work/tls.key" tls-ca-cert-file "$work/tls.pem" tls-auth-clients no)" = OK ]; then
            redis-cli -s "$redis_socket" flushall >/dev/null
            AOTICACHE_REMOTE="rediss://127.0.0.1:$tls_port unsigned=allow"
            try 'Redis, TLS: a certificate that nobody knows' 1 at first push --all
            says 'Redis, TLS: is refused' "the server's certificate is not trusted: self.signed certificate"
            AOTICACHE_REMOTE="rediss://localhost:$tls_port unsigned=allow ca-file=$work/tls.pem"
            try 'Redis, TLS: another name than the certificate has' 1 at first push --all
            says 'Redis, TLS: is refused, too' 'not trusted: hostname mismatch'
            AOTICACHE_REMOTE="rediss://127.0.0.1:$redis_port unsigned=allow ca-file=$work/tls.pem timeout=1s"
            try 'Redis, TLS: a server without it' 1 at first push --all
            AOTICACHE_REMOTE="redis://127.0.0.1:$tls_port unsigned=allow timeout=1s"
            try 'Redis, TLS: a server that wants it' 1 at first push --all
            goes_and_comes 'Redis, by TLS' "rediss://127.0.0.1:$tls_port/2 ca-file=$work/tls.pem"
            redis-cli -s "$redis_socket" config set tls-auth-clients yes >/dev/null
            AOTICACHE_REMOTE="rediss://127.0.0.1:$tls_port unsigned=allow ca-file=$work/tls.pem timeout=1s"
            try 'Redis, TLS: without the certificate that it wants' 1 at first push --all
            AOTICACHE_REMOTE+=" client-certificate=$work/tls.pem client-key=$work/tls.key"
            try 'Redis, TLS: with it' 0 at first push --all
            AOTICACHE_REMOTE="rediss://127.0.0.1:$tls_port ca-file=$work/tls.pem client-certificate=$work/none.pem"
            try 'Redis, TLS: a certificate that is not there' 1 at first push --all
            says 'Redis, TLS: is named' "the client's certificate in $work/none.pem"
        else
            skip 'Redis by TLS' 'there is no openssl, or redis-server was built without TLS'
        fi
    else
        skip 'Redis' 'there is no redis-server'
    fi
fi

if ! module_is_there http; then
    skip 'HTTP' 'the module is not built: there is no libcurl4-openssl-dev'
    finish
fi
if start_nginx "$(example docs/remotes.md nginx)"; then
    goes_and_comes 'nginx' "$nginx_url/kernels"
else
    skip 'nginx' 'there is no nginx'
fi

# With TLS, and with credentials that a server demands for writes: a token, or a user and a password.
only_known='set $known 0; if ($http_authorization = "Bearer swordfish") { set $known 1; }'
only_known+=' if ($http_authorization = "Basic YW5uOnN3b3JkZmlzaA==") { set $known 1; } if ($known = 0) { return 401; }'
if make_certificate &&
    start_nginx "$(example docs/remotes.md nginx |
        sed -e "s|listen 8080;|listen 8080 ssl; ssl_certificate $work/tls.pem; ssl_certificate_key $work/tls.key;|" \
            -e "s|location / {|$only_known location / {|")"; then
    url=${nginx_url/http:/https:}
    export HTTP_SECRET=swordfish
    AOTICACHE_REMOTE="$url secret-env=HTTP_SECRET"
    try 'TLS: a certificate that nobody knows' 1 at first push --all
    says 'TLS: is refused' 'certificate'
    AOTICACHE_REMOTE="$url ca-file=$work/tls.pem"
    try 'TLS: without a token' 1 at first push --all
    says 'TLS: the server refuses' 'authentication failed .HTTP status 401'
    AOTICACHE_REMOTE="$url ca-file=$work/tls.pem secret-env=HTTP_SECRET"
    try 'TLS: with a token' 0 at first push --all
    prints 'TLS: everything went' '^sent 3 entries'
    AOTICACHE_REMOTE="$url ca-file=$work/tls.pem user=ann secret-env=HTTP_SECRET"
    rm -rf "$work/fourth"
    try 'TLS: with a user and a password' 0 at fourth pull --all
    prints 'TLS: everything came' '^fetched 3 entries'
    HTTP_SECRET=herring try 'TLS: with another password' 1 at fourth pull --all
    holds 'TLS: no secret is printed' [ -z "$(grep -hE 'swordfish|herring' "$out" "$err")" ]
else
    skip 'TLS' 'there is no openssl, or no nginx'
fi
if make_certificate &&
    start_nginx "$(example docs/remotes.md nginx |
        sed -e "s|listen 8080;|listen 8080 ssl; ssl_certificate $work/tls.pem; ssl_certificate_key $work/tls.key;|" \
            -e "s|location / {|ssl_client_certificate $work/tls.pem; ssl_verify_client on; location / {|")"; then
    AOTICACHE_REMOTE="${nginx_url/http:/https:} unsigned=allow ca-file=$work/tls.pem"
    try 'TLS: without the certificate that the server wants' 1 at first push --all
    says 'TLS: it says so' 'HTTP status 400'
    AOTICACHE_REMOTE+=" client-certificate=$work/tls.pem client-key=$work/tls.key"
    try 'TLS: with it' 0 at first push --all
    prints 'TLS: everything went there, too' '^sent 3 entries'
fi

if start_s3; then
    export AWS_ACCESS_KEY_ID=access AWS_SECRET_ACCESS_KEY=fishsword
    goes_and_comes 'S3' "s3://kernels/team?region=eu-central-1&endpoint=$s3_endpoint"
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AOTICACHE_REMOTE="s3://kernels/team?endpoint=$s3_endpoint"
    try 'S3: without a key' 1 at first push --all
    says 'S3: what to do' 'set user= and secret-file='
else
    skip 'S3' 'there is no moto (pip install "moto[s3,server]")'
fi

# A server for Bazel accepts only objects that Bazel would store, and has no leases.
example docs/remotes.md bazel >"$work/settings" # docs/remotes.md bazel
try 'Bazel: the settings of the page are sound' 0 aoticache config --check "$work/settings"
if start_storing bazel; then
    AOTICACHE_REMOTE="$storing_url unsigned=allow"
    try 'Bazel: the usual layout' 1 at first push --all
    says 'Bazel: is refused by the server' 'HTTP status 400'
    goes_and_comes 'Bazel' "$storing_url/any/path layout=bazel"
fi

# Errors have pages, which are not objects and leave no files.
if start_storing pages; then
    for layout in plain bazel; do
        AOTICACHE_REMOTE="$storing_url/missed-$layout layout=$layout unsigned=allow timeout=10s"
        try "pages, $layout: a miss" 0 at "pages-$layout" run aten::abs --input float32:3=-2 --hook c --json
        says_nothing "pages, $layout: is one, whatever the page has"
        AOTICACHE_REMOTE="$storing_url/$layout layout=$layout unsigned=allow timeout=10s"
        try "pages, $layout: all is sent" 0 at first push --all
        try "pages, $layout: all comes" 0 at "pulled-$layout" pull --all
        is "pages, $layout: it is the same" "$(tree first)" "$(tree "pulled-$layout")"
    done
fi

# ---- a server that lies ----

start_liar || { not_ok 'set-up' 'the server of the tests does not start' && finish; }
AOTICACHE_REMOTE="$liar_url unsigned=allow timeout=1s"
try 'the liar takes kernels' 0 at first push --all
try 'and gives them, while it is honest' 0 at honest pull --all
is 'all of them' "$(tree first)" "$(tree honest)"
command -v zstd >/dev/null && head -c 8M /dev/zero | zstd -q -c >"$work/liar/bomb"
echo 'something else' | zstd -q -c >"$work/liar/other" 2>/dev/null

memory=1500000 # KiB of addresses
! is_instrumented || memory=unlimited # a sanitizer uses terabytes of addresses

# lies MOOD STATUS PATTERN: nothing is accepted, in bounded time and memory
lies() {
    local mood=$1 begun=$SECONDS timeout=10s # for a busy machine; only "slow" has to reach its timeout
    [ "$mood" != slow ] || timeout=1s
    rm -rf "$work/victim"
    echo "$mood" >"$work/mood"
    AOTICACHE_REMOTE="$liar_url unsigned=allow timeout=$timeout" run bash -c 'ulimit -v "$2"; AOTICACHE_DIR=$1 exec aoticache pull --all' bash "$work/victim" "$memory"
    is "$mood: the status" "$2" "$status"
    says "$mood: what is said" "$3"
    holds "$mood: no object has come" [ -z "$(find "$work/victim/objects" -type f 2>/dev/null)" ]
    holds "$mood: nothing is left over" [ -z "$(find "$work/victim/tmp" -type f 2>/dev/null)" ]
    holds "$mood: in time" [ $((SECONDS - begun)) -le 20 ]
    try "$mood: the cache is sound" 0 at victim verify
}
lies flipped 1 'refused: object .*(do not hash to its name|not a zstd frame)'
lies short 1 'refused: object .*unpacks to [0-9]* bytes, expected [0-9]*'
lies cut 1 "remote $liar_url: "
lies long 1 'refused: object .*it has bytes after its end'
lies empty 1 'refused: object .*unpacks to 0 bytes'
lies slow 1 "remote $liar_url: Timeout was reached"
lies endless 1 '(more bytes than allowed|is not a zstd frame)'
lies broken 1 'HTTP status 500'
lies elsewhere 1 'HTTP status 302'
lies 'endless ac/' 1 'more bytes than allowed'
lies 'flipped ac/' 1 'refused: .*(record: |not a record)'
lies 'empty ac/' 1 'refused: .*: record: it is not JSON'
lies 'bomb ac/' 1 '(: record: |has a zero byte)'
lies 'endless keys/' 1 'more bytes than allowed'
if [ -s "$work/liar/bomb" ]; then
    holds 'the bomb is small' [ "$(stat -c %s "$work/liar/bomb")" -lt 1024 ]
    lies bomb 1 'refused: object .*it has more bytes than expected'
    lies other 1 'refused: object .*(do not hash to its name|unpacks to 15 bytes)'
else
    skip 'a bomb' 'there is no zstd'
fi
# A complete and correct entry of another key.
: >"$work/mood"
mapfile -t records < <(find "$work/liar/ac" -type f | LC_ALL=C sort)
sed "s/$(basename "${records[1]}")/$(basename "${records[0]}")/" "${records[1]}" >"$work/record" && cp "$work/record" "${records[0]}"
rm -rf "$work/victim"
try 'an entry under another key' 1 at victim pull --all
says 'is refused' 'it is for another key than the requested one'
is 'the others came' 2 "$(at victim ls --json | grep -c '"key"')"

# Each answer arrives in time, all together do not: the lookup does not wait for them. A pull does.
rm -rf "$work/liar/ac" "$work/victim"
at first push --all >/dev/null
echo late >"$work/mood"
try 'a server that is late with each object' 0 at victim run aten::abs --input float32:5=-2 --hook c --json
member 'costs a compile' source compiled
says 'and a line' 'it is not used for a while'
rm -rf "$work/victim"
try 'but not a pull' 0 at victim pull --key "${key:0:16}"
: >"$work/mood"

# ---- a custom module (docs/remotes.md module) ----

cp docs/examples/remote_directory.c "$work"
mkdir "$work/kernels"
example docs/remotes.md module | sed -e "s|/usr/local/include|$BUILD/include|; s|/usr/local/lib|$work|; s|/mnt/kernels|$work/kernels|" \
    >"$work/module.sh"
try 'the example module is built and used' 0 env AOTICACHE_REMOTE= AOTICACHE_DIR="$work/first" bash -c "cd '$work' && . ./module.sh"
prints 'it takes kernels' '^sent 3 entries, 6 objects'
goes_and_comes 'a directory' "dir:$work/kernels/b module=$work/libaoticache_remote_dir.so"

finish
