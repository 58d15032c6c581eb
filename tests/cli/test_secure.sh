#!/usr/bin/env bash
# Programs that hooks start: none comes from the working directory, nor, in a program with other rights than its
# caller's, from anything that the caller says.
. tests/cli/lib.sh

# What each of these says of itself when somebody runs it.
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
try 'with an empty folder in PYTHONPATH' 0 in_evil env AOTICACHE_PYTHON="$work/asks" PYTHONPATH=: "$tool" doctor --cc /usr/bin/cc
holds 'runs none of them, either' nothing_ran
run in_evil env PATH=":.:$PATH" "$tool" doctor
holds 'empty and relative folders of PATH give no compiler and no Python' nothing_ran
run in_evil env PATH=".:$PATH" "$tool" run aten::abs --input float32:2=-1 --hook c
is 'a compile in C there' 0 "$status"
holds 'finds none of them, either' nothing_ran
cp "$(command -v cc)" "$work/own-cc" 2>/dev/null
(cd "$work" && run "$tool" compile aten::neg --input float32:3 --hook c --cc ./asks)
holds 'a relative name is of the working directory of the host' grep -q "$work/./asks" "$err"

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
prints 'from a folder of the system' '^c program: (/usr/local)?(/usr)?/bin/cc$'
prints_not 'no Python of the caller' "$work/evil"
prints 'its command runs' '^command: COMPILE_FAILED'
prints 'with a PATH of the system' 'PATH=/usr/local/bin:/usr/bin:/bin'
prints_not 'and nothing of the caller' 'OF_THE_CALLER|CPATH|PYTHONPATH'
holds 'nothing of the caller ran' nothing_ran
holds 'and no file was written where he says' [ ! -e "$work/recorded" ]
finish
