#!/usr/bin/env bash
# A server's answer decides what is requested next: tests each row of the two tables (cache/remote/modules/http_answers.c,
# redis_answers.c). If writes stop, reads do not; an error about one object does not stop requests for others; a program
# always gets its kernel.
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

export AOTICACHE_KEYS=$work/keys
rules=$work/rules log=$work/log resets=0
printf 'aten::abs(float32[%s]) on cpu\n' 4 5 >"$work/there"
printf 'aten::abs(float32[%s]) on cpu\n' 4 5 6 7 >"$work/list"
rule() { printf '%s\n' "$@" >"$rules"; } # [LINE]...
at() { env AOTICACHE_DIR="$work/$1" "${@:2}"; } # CACHE COMMAND...
asked() { grep -cE "$1" "$log"; } # PATTERN: prints the number of matching requests

# start KIND: starts a server that has two kernels; its remote is $url
start() {
    : >"$rules"
    : >"$log"
    "$interpreter" tests/cli/remotes/answering_server.py "$1" "$rules" "$log" >"$work/$1.port" 2>"$work/$1.log" &
    servers+=($!)
    until_it test -s "$work/$1.port" || { not_ok 'set-up' "$(cat "$work/$1.log")" && finish; }
    url=$1://127.0.0.1:$(cat "$work/$1.port")
    export AOTICACHE_REMOTE="$url unsigned=allow"
    rm -rf "$work/first"
    try "$1: two kernels are there" 0 at first aoticache warm "$work/there" --hook c
}

# warm NAME FETCHED COMPILED: compiles or fetches four kernels, of which the server has two, in one process
warm() {
    : >"$log"
    echo "reset $((++resets))" >>"$rules"
    rm -rf "$work/machine"
    try "$1: a program has its kernels" 0 at machine aoticache warm "$work/list" --hook c --json
    member "$1: fetched" there "$2"
    member "$1: compiled" compiled "$3"
    is "$1: lines" "${4:-1}" "$(grep -c . "$err")"
}

# ---- HTTP ----

if [ ! -e "$BUILD/lib/libaoticache_remote_http.so" ]; then
    skip 'HTTP' 'the module is not built: no libcurl4-openssl-dev'
else
    start http
    rule
    warm 'http, all well' 2 2 0

    # Reads: the meaning, the number of lines, whether other kernels are still requested
    while IFS='|' read -r code wanted; do
        rule "GET ac/ $code" "HEAD ac/ $code"
        if [ -z "$wanted" ]; then
            warm "http, GET $code" 0 4 0
        else
            lines=2 # one for reads, one for writes of records, which are read first
            case $code in 403 | 502 | 504) lines=1 ;; esac
            warm "http, GET $code" 0 4 $lines
            says "http, GET $code: what it means" "remote $url: $wanted"
        fi
    done <<'CASES'
404|
410|
403|not found, or this user may not read it .HTTP status 403.: for S3, 
400|unexpected HTTP status 400; it is not read for a while, and kernels are compiled here
401|authentication failed .HTTP status 401.: check user= .*; it is not read for a while
405|the server does not allow this kind of request .HTTP status 405.; it is not read for a while
407|the proxy requires authentication .HTTP status 407.; it is not read for a while
500|internal error of the server .HTTP status 500.; it is not read for a while
501|the server does not support this .HTTP status 501.; it is not read for a while
502|the server behind the proxy does not respond .HTTP status 502.; it is not used for a while
504|the server behind the proxy does not respond in time .HTTP status 504.; it is not used for a while
302|the server redirects .HTTP status 302., and redirects are not followed; it is not read for a while
418|unexpected HTTP status 418; it is not read for a while
CASES
    for code in 429 503; do
        rule "GET ac/ $code"
        AOTICACHE_REMOTE+=' timeout=500ms' warm "http, GET $code" 0 4 1
        says "http, GET $code: what it means" "remote $url: the server is overloaded .HTTP status $code.; it is not used for a while"
        holds "http, GET $code: it was asked again" [ "$(asked "^GET /ac/.* $code")" -ge 4 ]
        rule "GET ac/ $code Retry_After: 60"
        AOTICACHE_REMOTE+=' timeout=500ms' warm "http, GET $code, Retry-After" 0 4 1
        holds "http, GET $code, Retry-After: not before" [ "$(asked "^GET /ac/.* $code")" -le 3 ]
    done
    rule 'GET ac/ deaf'
    AOTICACHE_REMOTE+=' timeout=500ms' warm 'http, GET without an answer' 0 4 1
    says 'http, GET without an answer: is left alone' "remote $url: Timeout was reached; it is not used for a while"

    # Writes: a server that refuses to store kernels may still serve them.
    while IFS='|' read -r code wanted; do
        rule "PUT / $code"
        warm "http, PUT $code" 2 2 2
        says "http, PUT $code: what it means" "remote $url: $wanted; it is not written to for a while; kernels wait in unsent/"
        says "http, PUT $code: no lease, either" "remote $url: $wanted; other machines may compile the same kernels for a while"
        is "http, PUT $code: the kernels wait" 2 "$(find "$work/machine/unsent" -type f | wc -l)"
    done <<'CASES'
400|unexpected HTTP status 400
401|authentication failed .HTTP status 401.: .*
403|the server denies access .HTTP status 403.: this user may not write
404|the server has no directory for it .HTTP status 404.: .*
405|the server does not allow this kind of request .HTTP status 405.
409|the server has no directory for it .HTTP status 409.: .*
411|the server requires the length of the request .HTTP status 411.
500|internal error of the server .HTTP status 500.: nginx fails like this if create_full_put_path is off
501|the server does not support this .HTTP status 501.
502|the server behind the proxy does not respond .HTTP status 502.
507|the server has no space left .HTTP status 507.
CASES
    rule
    AOTICACHE_REMOTE="$url unsigned=allow" try 'http: when it takes kernels again' 0 at machine aoticache run aten::abs --input float32:8=-2 --hook c
    is 'http: what waited is sent' 0 "$(find "$work/machine/unsent" -type f | wc -l)"

    # A program that runs for longer than the first pauses: the lines do not alternate.
    printf '#!/bin/sh\ncase "$*" in *.c*) sleep 1 ;; esac\nexec cc "$@"\n' >"$work/slow-cc" && chmod +x "$work/slow-cc"
    printf 'aten::abs(float32[%s]) on cpu\n' 21 22 23 24 25 >"$work/new"
    rule 'PUT / 403'
    try 'http, a token that may only read, for seconds' 0 at machine aoticache warm "$work/new" --hook c --cc "$work/slow-cc" --jobs 1
    is 'http, a token that may only read: two lines' 2 "$(grep -c 'remote http' "$err")"

    # One object that is too large: the others are sent.
    rule 'PUT cas/ 413'
    warm 'http, PUT 413' 2 2 2
    says 'http, PUT 413: is told of each' 'a kernel is not sent to .*: the server does not accept objects of this size .HTTP status 413.'
    run at machine aoticache doctor
    prints 'http, PUT 413: doctor' "WARN +remote +remote $url: cannot write an object .cas/.: the server does not accept objects of this size"
    prints 'http, PUT 413: and what waits' 'WARN +unsent kernels +2 that a remote refused: .*the server does not accept objects of this size'
    : >"$log"
    rule
    try 'http, PUT 413: the next process' 0 at machine aoticache run aten::abs --input float32:8=-2 --hook c
    is 'http, PUT 413: does not try these again' 2 "$(find "$work/machine/unsent" -type f | wc -l)"
    AOTICACHE_REMOTE="$url unsigned=allow max-object=300M" try 'http, PUT 413: with other settings' 0 at machine aoticache run aten::abs --input float32:9=-2 --hook c
    is 'http, PUT 413: they are tried' 0 "$(find "$work/machine/unsent" -type f | wc -l)"
    # Only the first record's object is refused: a push sends the others.
    rm -rf "$work/machine"
    AOTICACHE_REMOTE='' at machine aoticache warm "$work/list" --hook c >/dev/null
    object=$(cd "$work/machine/objects" && find . -type f -size +4k | tr -d ./ | head -n 1)
    AOTICACHE_REMOTE="$url/pushed unsigned=allow"
    for code in 413 507; do
        rule "PUT pushed/cas/$object $code"
        try "http, push, one object has $code" 1 at machine aoticache push --all
        prints "http, push, $code: the others go" '(sent 3 entries|3 were there already).* 1 (entry )?(left out|refused)'
    done
    rule 'PUT pushed/ 507' 'HEAD pushed/ 404' 'GET pushed/ 404'
    : >"$log"
    try 'http, push to a full server' 1 at machine aoticache push --all
    is 'http, push to a full server: ends after three' 3 "$(asked '^PUT ')"

    # Conditions: a server that refuses them still gets records, and has no leases.
    for code in 400 501; do
        AOTICACHE_REMOTE="$url/plain-$code unsigned=allow"
        rule plain "PUT? / $code"
        rm -rf "$work/machine"
        try "http, conditions $code: a kernel" 0 at machine aoticache run aten::abs --input float32:4=-2 --hook c
        rm -rf "$work/other"
        try "http, conditions $code: its record is there" 0 at other aoticache run aten::abs --input float32:4=-2 --hook c --json
        member "http, conditions $code: and served" source fetched
        AOTICACHE_REMOTE=${AOTICACHE_REMOTE% unsigned=allow} run at machine aoticache doctor
        prints "http, conditions $code: doctor" 'read and written, one compile for each machine: the server ignores If-None-Match'
    done

    # Directories: if a server does not make them itself, it is asked to.
    AOTICACHE_REMOTE="$url/directory/deep unsigned=allow namespace=team"
    rule directories
    warm 'http, directories' 0 4 0
    rm -rf "$work/other"
    try 'http, directories: what was sent' 0 at other aoticache pull --all
    prints 'http, directories: is there' '^fetched 4 entries'
    AOTICACHE_REMOTE="$url/directory/deep namespace=other" run at machine aoticache doctor
    prints 'http, directories: doctor' 'read and written, one compile for all machines'
    rule 'PUT directory/ 409' 'MKCOL / 405'
    begun=$SECONDS
    warm 'http, directories that nobody makes' 0 4 2
    says 'http, directories that nobody makes: it is said' 'the server has no directory for it .HTTP status 409.: create it there, or let'
    holds 'http, directories that nobody makes: nobody waits' [ $((SECONDS - begun)) -le 20 ]

    # A lease without Last-Modified ends by the clock of the waiting machine.
    rule undated
    AOTICACHE_REMOTE="$url/undated unsigned=allow"
    rm -rf "$work/machine" "$work/other"
    at machine aoticache run aten::abs --input float32:4=-2 --hook c --json >"$work/out"
    key=$(field key "$work/out")
    python3 - "$url/undated" "$key" <<'PYTHON'
import sys, urllib.request
url, key = sys.argv[1:]
for name, body in ((f"lease/{key}", b"somebody 1500 7\n"), (f"ac/{key}", b"{}")):
    urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", data=body, method="PUT"))
PYTHON
    begun=$SECONDS
    try 'http, a lease without a date, of a machine that died' 0 at other aoticache run aten::abs --input float32:4=-2 --hook c --json
    member 'http, a lease without a date: then another compiles' source compiled
    holds 'http, a lease without a date: after a few seconds' [ $((SECONDS - begun)) -le 15 ]
fi

# ---- Redis ----

if [ ! -e "$BUILD/lib/libaoticache_remote_redis.so" ]; then
    skip 'Redis' 'the module is not built: no libhiredis-dev'
    finish
fi
start redis
rule
warm 'redis, all well' 2 2 0
while IFS='|' read -r error wanted; do
    rule "SET aoticache/cas/ $error" "EVAL aoticache/lease/ $error"
    warm "redis, SET: $error" 2 2 2
    says "redis, SET: $error: what it means" "remote $url: $wanted; it is not written to for a while"
    says "redis, SET: $error: leases, too" "remote $url: $wanted; other machines may compile the same kernels for a while"
done <<'CASES'
NOPERM this user has no permissions|the server refuses: NOPERM: this user may not do that .*
ERR The user executing the script can't run this command|the server refuses: The user executing the script can't: .*
ERR Protocol error: unauthenticated bulk length|the server refuses: unauthenticated: it requires a password: .*
READONLY You can't write against a read only replica.|the server refuses: READONLY: it is a replica, which does not accept writes
ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't|the server refuses: READONLY: .*
OOM command not allowed when used memory > 'maxmemory'.|the server refuses: OOM: it is out of memory: .*
MISCONF Redis is configured to save RDB snapshots|the server refuses: MISCONF: it cannot save to its disk, and does not accept writes
NOREPLICAS Not enough good replicas to write.|the server refuses: NOREPLICAS: .*
MOVED 3999 127.0.0.1:6381|the server refuses: MOVED: it is a node of a cluster: .*
CROSSSLOT Keys in request don't hash to the same slot|the server refuses: CROSSSLOT: .*
ASK 3999 127.0.0.1:6381|the server refuses: ASK: .*
ERR something new|unexpected response: ERR something new
CASES
while IFS='|' read -r error wanted; do
    rule "* aoticache/ $error"
    warm "redis, all: $error" 0 4 1
    says "redis, all: $error: what it means" "remote $url: the server refuses: $wanted"
done <<'CASES'
CLUSTERDOWN The cluster is down|CLUSTERDOWN: its cluster is down; it is not used for a while
MASTERDOWN Link with MASTER is down|MASTERDOWN: it is a replica without its primary; it is not used for a while
LOADING Redis is loading the dataset in memory|LOADING: it is loading its data; it is not used for a while
BUSY Redis is busy running a script.|BUSY: it is running a script of another client; it is not used for a while
TRYAGAIN Multiple keys request during rehashing|TRYAGAIN: try again; it is not used for a while
CASES
export SECRET=swordfish
while IFS='|' read -r error wanted; do
    rule "AUTH swordfish $error" 
    AOTICACHE_REMOTE="$url unsigned=allow secret-env=SECRET" warm "redis, AUTH: $error" 0 4 3
    says "redis, AUTH: $error: what it means" "remote $url: the server refuses: $wanted"
done <<'CASES'
WRONGPASS invalid username-password pair|WRONGPASS: check user= and secret-file=
ERR invalid password|ERR invalid password: check secret-file=
ERR Client sent AUTH, but no password is set|ERR Client sent AUTH: it has no password
ERR AUTH <password> called without any password configured|ERR AUTH: it has no password
NOAUTH Authentication required.|NOAUTH: it requires a password
CASES
finish
