#!/usr/bin/env bash
# Other users who could tamper with a cache directory: users who may rename the directories above it, users who put forged
# files into it; and what root does in another user's directory.
other_users=1
. tests/cli/lib.sh

[ "$(id -u)" = 0 ] || { skip 'several users' 'only root can run as several users'; finish; exit 77; }
command -v setpriv >/dev/null || { skip 'several users' 'there is no setpriv'; finish; exit 77; }

# Users and a group only by number: nothing is added to the system.
group=54321
chmod 755 "$work"
cp -r "$BUILD/bin" "$BUILD/lib" "$BUILD/share" "$BUILD/include" "$work/" # other users may be unable to read the build
as() { # USER COMMAND...
    local user=$1
    shift
    mkdir -p "$work/home$user" && chown "$user" "$work/home$user"
    setpriv --reuid "$user" --regid "$user" --groups $group -- env HOME="$work/home$user" AOTICACHE_HOME="$work" \
        TMPDIR="$work/home$user" AOTICACHE_KEYS="$work/home$user/keys" PATH="$work/bin:$PATH" bash -c 'cd "$HOME"; exec "$@"' - "$@"
}
store() { aoticache run aten::abs --input "float32:$1" --hook c --quiet; }
export -f store

# forge INDEX FILE: writes, next to the index, a rollback journal without pages that names a super-journal, which SQLite
# deletes when it rolls back (https://sqlite.org/fileformat.html, section 3).
forge() {
    python3 - "$@" <<'PYTHON'
import os, struct, sys
index, name = sys.argv[1], os.fsencode(sys.argv[2])
magic, page = bytes.fromhex("d9d505f920a163d7"), 4096
header = magic + struct.pack(">5I", 0, 0, os.path.getsize(index) // page, 512, page)
with open(index + "-journal", "wb") as file:
    file.write(header.ljust(512, b"\0") + struct.pack(">I", 0x40000000 // page + 1) + name)
    file.write(struct.pack(">2I", len(name), sum(name)) + magic)
os.chmod(index + "-journal", 0o660)
PYTHON
}

# ---- the directories above ----

parent=$work/parent
export AOTICACHE_DIR=$parent/deep/cache
try 'a cache is made' 0 store 2
chown 10001 "$parent"
try 'a directory above that belongs to somebody else is refused' 1 aoticache ls
says 'and named, with its owner and what to do' "$parent belongs to user 10001.*deep/cache.*user 0: choose"
ln -s "$parent" "$work/link"
try 'through a link too' 1 aoticache ls --cache-dir "$work/link/deep/cache"
try 'unless sharing is wanted' 0 aoticache ls --allow-shared
chown 0 "$parent"
chmod 777 "$parent"
try 'one that everybody may write is refused' 1 aoticache ls
says 'with its mode and what to do' "$parent can be written by others .mode 0777, group 0.*chmod go-w $parent"
try 'nothing is made in it' 1 aoticache run aten::abs --input float32:2 --cache-dir "$parent/a/new/one" --hook c
is 'not even a directory' deep "$(ls "$parent")"
chmod 1777 "$parent"
try 'as /tmp it is not' 0 aoticache ls
chmod 775 "$parent"
try 'root'\''s group is root' 0 aoticache ls
chgrp $group "$parent"
try 'a group that may write is not' 1 aoticache ls
chmod 755 "$parent"
mkdir -p "$work/home10001/own" && chown -R 10001 "$work/home10001" && chmod 775 "$work/home10001/own"
chgrp $group "$work/home10001/own"
try 'nor is one that has many members in a user'\''s own directory' 1 as 10001 aoticache run aten::abs --input float32:2 \
    --cache-dir "$work/home10001/own/cache" --hook c --quiet
if [ "$(getent group daemon)" = "daemon:x:$(id -g daemon 2>/dev/null):" ]; then
    daemon=$(id -u daemon)
    mkdir -p "$work/home$daemon/own" && chown -R daemon:daemon "$work/home$daemon" && chmod 775 "$work/home$daemon/own"
    try 'the group that a user has for himself is trusted' 0 setpriv --reuid daemon --regid daemon --clear-groups -- \
        env HOME="$work/home$daemon" AOTICACHE_HOME="$work" TMPDIR="$work/home$daemon" "$work/bin/aoticache" run aten::abs \
        --input float32:2 --cache-dir "$work/home$daemon/own/cache" --hook c --quiet
else
    skip 'the group that a user has for himself is trusted' 'no user daemon with a group of that name'
fi

# ---- a member of the group forges a journal ----

shared=$work/shared
install -d -m 2770 -g $group "$shared"
export AOTICACHE_DIR=$shared AOTICACHE_ALLOW_SHARED=true
try 'a member stores' 0 as 10001 bash -c 'store 2'
echo 'important' >"$work/victim"
forge "$shared/index.sqlite3" "$work/victim"
chown 10001:$group "$shared/index.sqlite3-journal"
try 'root collects' 0 aoticache-gc
holds 'the file that the journal names is there' test -f "$work/victim"
says 'it is said what was found' "names $work/victim, which is not a file of the index: remove the forged file"
holds 'the journal is kept to be looked at' test -n "$(find "$shared/quarantine" -name 'index.sqlite3-journal-*')"
try 'the entries are there' 0 aoticache ls --json
member 'all of them' entries.0.op aten::abs
says_nothing 'and nothing more is said'
try 'root hears that the directory should not be his' 0 aoticache-gc
says 'and what to do' "$shared belongs to root, but others may write to it: change its owner .chown. to a user that owns nothing else"
forge "$shared/index.sqlite3" "$work/victim"
chown 10001:$group "$shared/index.sqlite3-journal"
try 'another member is not made to delete either' 0 as 10002 aoticache ls
holds 'the file is there still' test -f "$work/victim"
archive=$work/home10001/archive
try 'a member exports' 0 as 10001 aoticache export "$archive"
rm -rf "${shared:?}"/*
try 'and imports' 0 as 10001 aoticache import "$archive"
is 'what came in is open to the group' '' "$(find "$shared" -type d ! -perm -2770)"
unset AOTICACHE_ALLOW_SHARED

# ---- root in a user's directory ----

export AOTICACHE_DIR=$work/home10003/cache
try 'a user stores' 0 as 10003 bash -c 'store 2'
try 'and more' 0 as 10003 bash -c 'store 3'
forge "$AOTICACHE_DIR/index.sqlite3" "$work/victim"
chown 10003 "$AOTICACHE_DIR/index.sqlite3-journal"
chmod 600 "$AOTICACHE_DIR/index.sqlite3-journal"
install -d -m 700 "$work/figures"
try 'root may not store in it' 1 aoticache run aten::abs --input float32:7 --hook c
says 'without saying so' "belongs to user 10003.*allow_shared"
for command in ls du verify tag\ --list; do
    # shellcheck disable=SC2086 # several words
    try "root looks at it as the user: $command" 0 aoticache $command
    says "$command: says so" "$AOTICACHE_DIR belongs to user 10003: continuing as that user"
done
run aoticache doctor # its status also depends on whether that user reaches a compiler
says 'doctor: says so' "$AOTICACHE_DIR belongs to user 10003: continuing as that user"
prints 'doctor finds it in order' '^OK +owner +uid 10003'
try 'so does aoticache-stat' 0 aoticache-stat --json
member 'it has what the user stored' entries 2
try 'root looks quietly' 0 aoticache ls --json --quiet
says_nothing 'without a note'
is 'what root looked at is the user'\''s still' '' "$(find "$AOTICACHE_DIR" ! -uid 10003)"
holds 'what the journal names is there' test -f "$work/victim"
try 'root collects in it as the user' 0 aoticache-gc --max-entries 1 --prometheus "$work/figures/gc.prom"
says 'and says so' "$AOTICACHE_DIR belongs to user 10003: continuing as that user"
prints 'it did' 'removed 1 of 2 entries'
holds 'what the journal names is there' test -f "$work/victim"
is 'nothing belongs to root' '' "$(find "$AOTICACHE_DIR" ! -uid 10003)"
is 'but the figures that root asked for' 0 "$(stat -c %u "$work/figures/gc.prom")"
holds 'with the result in them' grep -q '^aoticache_gc_entries_after{.*} 1$' "$work/figures/gc.prom"
is 'and nothing else' gc.prom "$(ls "$work/figures")"
try 'figures that cannot be written are an error' 1 aoticache-gc --quiet --prometheus "$work/nowhere/gc.prom"
says 'which is said' "cannot write $work/nowhere/gc.prom"
try 'another collector leaves no writer behind' 0 flock "$AOTICACHE_DIR/collect.lock" \
    aoticache-gc --prometheus "$work/figures/gc.prom"
rm -f "$AOTICACHE_DIR/collect.lock"
(umask 077 && : >"$AOTICACHE_DIR/collect.lock")
try 'a lock that an earlier collector left as root is given to the user' 0 aoticache-gc
is 'who can take it' 10003 "$(stat -c %u "$AOTICACHE_DIR/collect.lock")"
rm -rf "$AOTICACHE_DIR/collect.lock" "$AOTICACHE_DIR/marks" "$AOTICACHE_DIR"/index.sqlite3*
try 'root may use it where that is said' 0 aoticache pin --op aten::abs --allow-shared --quiet
try 'and to store' 0 aoticache run aten::abs --input float32:5 --hook c --quiet --allow-shared
try 'and to look at' 0 aoticache-stat --allow-shared
try 'and to verify' 0 aoticache verify --allow-shared
is 'what root makes is the user'\''s' '' "$(find "$AOTICACHE_DIR" ! -uid 10003)"
try 'who goes on' 0 as 10003 bash -c 'store 6'
try 'with a sound cache' 0 as 10003 aoticache verify
finish
