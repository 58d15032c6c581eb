#!/usr/bin/env bash
# aoticache doctor: problems are named, with the remedy; nothing is created.
. tests/cli/lib.sh

verdict() { # of the last output as JSON
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
files() { find "$AOTICACHE_DIR" ! -name 'index.sqlite3-*' | sort; } # SQLite makes and removes two files itself
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
chmod o+w "$AOTICACHE_DIR"
try 'writable by all' 1 aoticache doctor
prints 'the same advice' "-> chmod go-w $AOTICACHE_DIR\$"
try 'as the library gives' 1 aoticache ls
says 'for the same directory' "$AOTICACHE_DIR can be written by others .*chmod go-w $AOTICACHE_DIR"
chmod o-w "$AOTICACHE_DIR"
try 'unless it is allowed' 0 aoticache doctor --allow-shared --json
is 'then nothing is wrong' OK "$(verdict mode)"
chmod o+w "$AOTICACHE_DIR"
try 'also where everybody may write' 0 aoticache doctor --allow-shared --json
is 'which it warns of' WARN "$(verdict mode)"
run aoticache doctor --allow-shared
prints 'the group keeps what it was given' "-> chmod o-w $AOTICACHE_DIR\$"
chmod o-w "$AOTICACHE_DIR"
chmod g-w "$AOTICACHE_DIR"

# Whether doctor fails as a whole depends on whether PyTorch, the other compiler, is installed here.
run aoticache doctor --cc "$work/none" --json
is 'a missing compiler warns' WARN "$(verdict 'C compiler')"
run aoticache doctor --cc /bin/false --json
is 'a compiler that does not run warns, too' WARN "$(verdict 'C compiler')"
try 'a missing Python' 0 aoticache doctor --python "$work/none" --json
is 'PyTorch warns' WARN "$(verdict PyTorch)"
try 'neither' 1 aoticache doctor --cc "$work/none" --python "$work/none" --json
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

# A stand-in for the CUDA driver, so that the messages are the same on machines with and without a GPU.
cat >"$work/driver.c" <<'C'
#include <stddef.h>
#include <string.h>
int cuInit(unsigned flags) { return flags != 0 ? 1 : INIT; }
int cuDriverGetVersion(int *ret) { return *ret = 12080, 0; }
int cuDeviceGetCount(int *ret) { return *ret = 2, 0; }
int cuDeviceGet(int *ret, int position) { return *ret = position, 0; }
int cuDeviceGetName(char *to, int size, int device) { return strncpy(to, "Stand-in", (size_t)size), device == 1 ? 46 : 0; }
int cuDeviceGetAttribute(int *ret, int name, int device) { return (void)device, *ret = name == 75 ? 9 : 0, 0; }
int cuDeviceTotalMem_v2(size_t *ret, int device) { return (void)device, *ret = (size_t)16 << 30, 0; }
C
try 'no CUDA driver' 0 env AOTICACHE_CUDA_DRIVER="$work/none" aoticache doctor
prints 'is no fault' "^OK +CUDA driver +none, so no GPU: .*$work/none"
cc -shared -fPIC -DINIT=0 "$work/driver.c" -o "$work/driver.so"
try 'two GPUs' 0 env AOTICACHE_CUDA_DRIVER="$work/driver.so" aoticache doctor
prints 'the driver' '^OK +CUDA driver +.*/driver\.so, for CUDA 12\.8, 2 GPUs$'
prints 'the first' '^OK +GPU 0 +cuda:0: Stand-in, sm_90, 16\.0 GiB$'
prints 'the second, which cannot be asked' '^WARN +GPU 1 +cannot query CUDA device 1: cuDeviceGetName failed with error 46'
cc -shared -fPIC -DINIT=803 "$work/driver.c" -o "$work/broken.so"
try 'a driver that does not start' 0 env AOTICACHE_CUDA_DRIVER="$work/broken.so" aoticache doctor --json
is 'warns' WARN "$(verdict 'CUDA driver')"

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
