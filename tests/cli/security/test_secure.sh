#!/usr/bin/env bash
# Programs that hooks start: none is taken from the working directory nor, in a program with other rights than
# its caller, from any path that the caller gives.
. tests/cli/lib.sh

# Each of these reports when it is run.
mkdir -p "$work/evil"
for name in cc python3 env sh as ld; do
    printf '#!/bin/sh\necho %s >>%s/ran\nexit 1\n' "$name" "$work" >"$work/evil/$name"
    chmod +x "$work/evil/$name"
done
for name in importlib ctypes sitecustomize contextlib; do
    printf 'open("%s/ran", "a").write("%s\\n")\n' "$work" "$name" >"$work/evil/$name.py"
done
tool=$BUILD/bin/aoticache
nothing_ran() {
    local found
    found=$(cat "$work/ran" 2>/dev/null)
    rm -f "$work/ran"
    [ -z "$found" ] && return 0
    echo "# it ran: $found" >&2
    return 1
}
in_evil() { (cd "$work/evil" && exec "$@"); }

# ---- the working directory ----
cat >"$work/asks" <<'SCRIPT'
#!/bin/sh
exec python3 "$@"
SCRIPT
chmod +x "$work/asks"
try 'doctor beside files with the names of modules' 0 in_evil env AOTICACHE_PYTHON="$work/asks" "$tool" doctor --cc /usr/bin/cc
holds 'runs none of them' nothing_ran
try 'with an empty directory in PYTHONPATH' 0 in_evil env AOTICACHE_PYTHON="$work/asks" PYTHONPATH=: "$tool" doctor --cc /usr/bin/cc
holds 'runs none of them, either' nothing_ran
run in_evil env PATH=":.:$PATH" "$tool" doctor
holds 'empty and relative directories of PATH give no compiler and no Python' nothing_ran
run in_evil env PATH=".:$PATH" "$tool" run aten::abs --input float32:2=-1 --hook c
is 'a compile in C there' 0 "$status"
holds 'finds none of them, either' nothing_ran
cp "$(command -v cc)" "$work/own-cc" 2>/dev/null
(cd "$work" && run "$tool" compile aten::neg --input float32:3 --hook c --cc ./asks)
holds 'a relative name is of the working directory of the host' grep -q "$work/./asks" "$err"

# A kernel library with a relative RUNPATH would load code from the user's current directory.
mkdir -p "$work/rpath/lib" "$work/elsewhere/lib"
printf '#include <stdio.h>\n__attribute__((constructor)) static void run(void) { fputs("LOADED\\n", stderr); }\n' >"$work/rpath/helper.c"
if "${CC:-cc}" -shared -fPIC "$work/rpath/helper.c" -o "$work/rpath/lib/libhelper.so" 2>/dev/null; then
    cp "$work/rpath/lib/libhelper.so" "$work/elsewhere/lib/"
    number=0
    # RUNPATH (none: -), and what is linked: a library by its name, or by a path that becomes its name.
    while read -r runpath what; do
        number=$((number + 1))
        cat >"$work/rpath/compiler" <<SCRIPT
#!/bin/bash
cd "$work/rpath" || exit 1
case "\$*" in
*-shared*) exec "${CC:-cc}" "\$@" -Wl,--no-as-needed -L"$work/rpath/lib" $what ${runpath:+-Wl,-rpath,'$runpath' -Wl,--enable-new-dtags} ;;
*) exec "${CC:-cc}" "\$@" ;;
esac
SCRIPT
        chmod +x "$work/rpath/compiler"
        [ "$runpath" != - ] || sed -i 's/ -Wl,-rpath.*tags//' "$work/rpath/compiler"
        run env -C "$work/elsewhere" "$tool" run aten::abs --input float32:2x3 --hook c --cc "$work/rpath/compiler" \
            --cache-dir "$work/rpath/cache-$number"
        is "RUNPATH $runpath, $what" 5 "$status"
        says 'is refused, with what to do' "would load libraries from '.*', which depends on .*; link it with absolute paths"
        holds 'and nothing is loaded' sh -c '! grep -q LOADED "$1"' - "$err"
    done <<'PATHS'
lib -lhelper
/usr/lib:lib -lhelper
/usr/lib: -lhelper
./lib -lhelper
$ORIGIN/../lib -lhelper
/proc/self/cwd/lib -lhelper
- lib/libhelper.so
PATHS
else
    skip 'a relative RUNPATH' 'there is no compiler'
fi

# ---- other rights than the caller's ----
host=$BUILD/tests/helpers/secure_host
if [ "$(id -u)" != 0 ] || [ ! -x "$host" ]; then
    skip 'a set-user-ID program' 'it takes root, and tests/helpers/secure_host'
    finish
fi
mkdir "$work/host"
cat >"$work/host/command" <<'SCRIPT'
#!/bin/sh
env >&2
read -r request
exit 1
SCRIPT
chmod +x "$work/host/command"
run env PATH="$work/evil:$PATH" AOTICACHE_CC="$work/evil/cc" AOTICACHE_PYTHON="$work/evil/python3" PYTHONPATH="$work/evil" \
    AOTICACHE_RECORD="$work/recorded" TMPDIR="$work" CPATH="$work/evil" OF_THE_CALLER=seen "$host" "$work/host"
is 'a set-user-ID program' 0 "$status"
prints 'has the compiler of the system' '^c: OK cc (gcc|clang) [0-9]'
prints 'from a directory of the system' '^c program: (/usr/local)?(/usr)?/bin/cc$'
prints_not 'no Python of the caller' "$work/evil"
prints 'its command runs' '^command: COMPILE_FAILED'
prints 'with a PATH of the system' 'PATH=/usr/local/bin:/usr/bin:/bin'
prints_not 'and nothing of the caller' 'OF_THE_CALLER|CPATH|PYTHONPATH'
holds 'nothing of the caller ran' nothing_ran
holds 'and no file was written where he says' [ ! -e "$work/recorded" ]

# ---- a remote, and files that libcurl and OpenSSL read ----
[ -e "$BUILD/lib/libaoticache_remote_http.so" ] || { skip 'a remote' 'this build has no libcurl' && finish; }
cat >"$work/proxy.py" <<'PYTHON'
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(2)
    try:
        with open(sys.argv[1], "ab") as seen:
            seen.write(connection.recv(4096))
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    except OSError:
        pass
    connection.close()
PYTHON
"$interpreter" "$work/proxy.py" "$work/seen" >"$work/port" &
proxy=$!
until [ -s "$work/port" ]; do sleep 0.05; done
at=http://127.0.0.1:$(cat "$work/port")
printf 'bearer-of-root\n' >"$work/secret" && chmod 600 "$work/secret"
limits='connect-timeout=1s timeout=2s'
cat >"$work/remote.c" <<'C'
#include <aoticache/admin.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
static void print_log(void *user, aoticache_log_level level, const char *message)
{
    (void)user, (void)level;
    puts(message);
}
/* DIRECTORY REMOTE [plain]: looks a kernel up, with other rights than its caller's unless "plain" is said. */
int main(int argc, char **argv)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    aoticache_request *request = NULL;
    if (argc == 3 && getauxval(AT_SECURE) == 0) {
        if (setresuid(65534, 0, 0) != 0)
            return 77;
        return execv("/proc/self/exe", argv);
    }
    options.directory = argv[1];
    options.remote = argv[2];
    options.logger.log = print_log;
    aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_create("aten::abs", cpu, &request, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_prefetch(cache, request, NULL, &error);
    printf("%s: %s\n", aoticache_status_name(status), error.message);
    aoticache_cache_close(cache);
    return 0;
}
C
if is_instrumented || ! "${CC:-cc}" -D_GNU_SOURCE "$work/remote.c" -I"$BUILD/include/aoticache" -I"$BUILD/include" \
    -L"$BUILD/lib" -laoticache -Wl,-rpath,"$BUILD/lib" -o "$work/remote" 2>"$err"; then
    kill "$proxy"
    skip 'a remote' 'there is no compiler, or this build is instrumented'
    finish
fi
remote=$work/remote
# Checks the test itself: a program with the rights of its caller uses the proxy. The remote does not exist.
try 'a program asks a remote' 0 env http_proxy="$at" "$remote" "$work/none" \
    "http://127.0.0.2:9/k secret-file=$work/secret $limits" plain
holds 'by the proxy of its environment' grep -aq bearer-of-root "$work/seen"
rm -f "$work/seen"
try 'a set-user-ID program asks a remote' 0 env http_proxy="$at" all_proxy="$at" "$remote" "$work/one" \
    "http://127.0.0.2:9/k secret-file=$work/secret $limits"
prints 'which does not answer' 'http://127.0.0.2:9/k'
holds 'and not by the proxy of its caller' [ ! -e "$work/seen" ]
try 'nor with TLS' 0 env ALL_PROXY="$at" HTTPS_PROXY="$at" https_proxy="$at" "$remote" "$work/two" "https://127.0.0.2:9/k $limits"
holds 'by that of its caller' [ ! -e "$work/seen" ]
try 'a file for its keys' 0 env SSLKEYLOGFILE="$work/keylog" "$remote" "$work/three" "https://127.0.0.2:9/k $limits"
prints 'is refused, with what to do' 'SSLKEYLOGFILE is set.* start it without the variable'
holds 'and not made' [ ! -e "$work/keylog" ]
kill "$proxy"
wait "$proxy" 2>/dev/null
finish
