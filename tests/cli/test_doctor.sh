#!/usr/bin/env bash
# aoticache doctor: what is wrong is named, with what to do; nothing is created.
. tests/cli/lib.sh

verdict() { # CHECK: of the last output as JSON
    python3 - "$1" "$out" <<'PYTHON'
import json, sys
print(next((check["verdict"] for check in json.load(open(sys.argv[2]))["checks"] if check["name"] == sys.argv[1]), "absent"))
PYTHON
}

try 'a machine as it should be' 0 aoticache doctor
prints 'the directory is not there yet' "^OK +directory +$AOTICACHE_DIR: not there yet"
prints 'the shim' '^OK +shim +.*libaoticache_torchshim\.so'
prints 'the compiler' '^OK +C compiler +cc '
prints 'the processor' '^OK +processor '
prints 'memory files' '^OK +memory files'
holds 'nothing was created' [ ! -e "$AOTICACHE_DIR" ]
prints_not 'no failure' '^FAIL'

aoticache compile aten::abs --input float32:2 --hook c --quiet >/dev/null
files() { find "$AOTICACHE_DIR" ! -name 'index.sqlite3-*' | sort; } # SQLite makes and removes two files of its own
before=$(files)
try 'with a cache, as JSON' 0 aoticache doctor --json
member 'it is well' ok true
is 'owner' OK "$(verdict owner)"
is 'mode' OK "$(verdict mode)"
is 'index' OK "$(verdict index)"
is 'no file came or went' "$before" "$(files)"

chmod g+w "$AOTICACHE_DIR"
try 'writable by the group' 1 aoticache doctor --json
is 'the mode fails' FAIL "$(verdict mode)"
try 'the advice' 1 aoticache doctor
prints 'is a command' "-> chmod go-w $AOTICACHE_DIR"
try 'unless it is allowed' 0 aoticache doctor --allow-shared --json
is 'then it warns' WARN "$(verdict mode)"
chmod g-w "$AOTICACHE_DIR"

# Whether all of doctor fails depends on whether PyTorch is here as the other compiler.
run aoticache doctor --cc /nonexistent/cc --json
is 'a missing compiler warns' WARN "$(verdict 'C compiler')"
run aoticache doctor --cc /bin/false --json
is 'a compiler that does not run warns, too' WARN "$(verdict 'C compiler')"
try 'a missing Python' 0 aoticache doctor --python /nonexistent/python --json
is 'PyTorch warns' WARN "$(verdict PyTorch)"
try 'neither' 1 aoticache doctor --cc /nonexistent/cc --python /nonexistent/python --json
is 'nothing can compile' FAIL "$(verdict compilers)"
mkdir -p "$work/part/bin" "$work/part/lib"
cp "$BUILD/bin/aoticache" "$work/part/bin" && cp "$BUILD"/lib/libaoticache.so.* "$work/part/lib"
if [ -e /usr/local/lib/libaoticache_torchshim.so ]; then
    skip 'a missing shim' 'one is installed'
else
    try 'a missing shim' 1 "$work/part/bin/aoticache" doctor
    prints 'fails, with what to do' '^FAIL +shim '
fi
echo file >"$work/file"
try 'a file in place of the directory' 1 aoticache doctor --cache-dir "$work/file"
prints 'is named' "^FAIL +directory +$work/file is not a directory"
try 'no home' 1 env -u HOME -u AOTICACHE_DIR aoticache doctor
prints 'says what to set' 'set AOTICACHE_DIR or HOME'
cp -r "$AOTICACHE_DIR" "$work/garbage"
echo 'garbage garbage garbage' >"$work/garbage/index.sqlite3"
run aoticache doctor --cache-dir "$work/garbage" --json
holds 'an index that is garbage is no crash' [ "$status" -le 1 ]
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    try 'a directory in memory' 0 aoticache doctor --cache-dir /dev/shm/aoticache-doctor-$$ --json
    is 'warns of the loss' WARN "$(verdict 'file system')"
else
    skip 'a directory in memory' '/dev/shm is no tmpfs here'
fi
finish
