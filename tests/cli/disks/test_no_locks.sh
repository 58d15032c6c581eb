#!/usr/bin/env bash
# A file system without flock(2), as Lustre is by default: a program gets its kernels, and a message says why none is
# stored.
. tests/cli/lib.sh

if is_instrumented; then
    skip 'a file system without locks' 'a sanitizer wants to be the first library'
    finish
fi
for error in ENOSYS EOPNOTSUPP; do
    echo "#include <errno.h>
    int flock(int fd, int operation) { (void)fd, (void)operation; errno = $error; return -1; }" >"$work/no_flock.c"
    "${CC:-cc}" -shared -fPIC -o "$work/no_flock.so" "$work/no_flock.c" || { not_ok 'set-up' 'cc fails' && finish; }
    rm -rf "$AOTICACHE_DIR"
    AOTICACHE_REMOTE='' aoticache run aten::abs --input float32:4=-2 --hook c >/dev/null 2>"$err" || not_ok 'set-up' "$(cat "$err")"
    export LD_PRELOAD=$work/no_flock.so
    try "$error: what is there" 0 aoticache run aten::abs --input float32:4=-2 --hook none --json
    member "$error: is served" source index
    try "$error: a miss" 0 aoticache run aten::abs --input float32:5=-2 --hook c --json
    member "$error: is compiled" source compiled
    member "$error: and not stored" stored false
    says "$error: and it is said why, and what to do" \
        'is not stored: the file system does not support locks .flock.: mount it with locks .Lustre: -o flock., or use a directory on a local disk'
    prints_not "$error: space is not what is missing" 'free some space'
    try "$error: a collection" 5 aoticache-gc --max-size 1M
    says "$error: says it, too" 'the file system does not support locks'
    run aoticache doctor
    prints "$error: and doctor" 'FAIL +locks +the file system does not support flock: nothing can be stored there'
    unset LD_PRELOAD
done
finish
