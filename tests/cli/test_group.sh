#!/usr/bin/env bash
# A directory that a group of users shares: what one stores, the other finds, uses, collects and repairs.
. tests/cli/lib.sh

[ "$(id -u)" = 0 ] || { skip 'two users share a directory' 'only root can run as several users'; finish; exit 77; }
command -v setpriv >/dev/null || { skip 'two users share a directory' 'there is no setpriv'; finish; exit 77; }

# Users and a group by number alone: nothing is added to the system.
group=54321
chmod 755 "$work"
shared=$work/shared
install -d -m 2770 -g $group "$shared"
cp -r "$BUILD/bin" "$BUILD/lib" "$BUILD/share" "$BUILD/include" "$work/" # the build may lie where others cannot look
as() { # USER COMMAND...
    local user=$1
    shift
    mkdir -p "$work/home$user" && chown "$user" "$work/home$user"
    setpriv --reuid "$user" --regid "$user" --groups $group -- env HOME="$work/home$user" AOTICACHE_HOME="$work" \
        TMPDIR="$work/home$user" PATH="$work/bin:$PATH" AOTICACHE_DIR="$shared" bash -c 'umask 077; cd "$HOME"; exec "$@"' - "$@"
}

try 'without saying so a shared directory is refused' 1 as 10001 aoticache run aten::abs --input float32:2 --hook c
says 'and why' 'written by others'
export AOTICACHE_ALLOW_SHARED=true
try 'one user stores' 0 as 10001 aoticache run aten::abs --input float32:2 --hook c --quiet
try 'another finds it' 0 as 10002 aoticache run aten::abs --input float32:2 --hook none --quiet
try 'and stores himself' 0 as 10002 aoticache run aten::abs --input float32:3 --hook c --quiet
try 'which the first finds' 0 as 10001 aoticache run aten::abs --input float32:3 --hook none --quiet
is 'everything belongs to the group' '' "$(find "$shared" ! -group $group)"
is 'folders are open to it' '' "$(find "$shared" -type d ! -perm -2770)"
is 'files too, objects can be written by nobody' '' \
    "$(find "$shared" -type f ! -path '*/objects/*' ! -perm -660; find "$shared/objects" -type f ! -perm 444)"
is 'nothing is open to others' '' "$(find "$shared" -type d -perm /007; find "$shared" -type f ! -path '*/objects/*' -perm /007)"
if as 10001 aoticache export "$work/home10001/archive" --quiet 2>"$err"; then
    cp "$work/home10001/archive" "$work/archive" && chmod 644 "$work/archive"
    old=$shared
    shared=$work/imported
    install -d -m 2770 -g $group "$shared"
    try 'one user imports' 0 as 10001 aoticache import "$work/archive" --quiet
    is 'folders that an import makes are open to the group' '' "$(find "$shared" -type d ! -perm -2770)"
    is 'files of the index, too' '' "$(find "$shared" -type f ! -path '*/objects/*' ! -perm -660)"
    try 'another finds what came' 0 as 10002 aoticache run aten::abs --input float32:2 --hook none --quiet
    chmod 700 "$shared"/objects/?? # as one would find it that was made by hand
    try 'what he may not read is compiled' 0 as 10002 aoticache run aten::abs --input float32:3 --hook c
    says 'and said' 'Permission denied'
    try 'nothing of it is removed' 0 as 10002 aoticache ls --json
    is 'not one entry' 2 "$(grep -c '"artifact"' "$out")"
    try 'its owner finds it still' 0 as 10001 aoticache run aten::abs --input float32:3 --hook none --quiet
    shared=$old
else
    skip 'import into a shared directory' 'there is no libarchive'
fi
try 'both pin' 0 as 10001 aoticache pin --op aten::abs --quiet
try 'and unpin what the other pinned' 0 as 10002 aoticache unpin --op aten::abs --quiet
try 'one looks at the other'\''s statistics' 0 as 10002 aoticache-stat
try 'one collects what the other stored' 0 as 10002 aoticache-gc --max-size 1 --json
member 'all of it' entries_after 0
is 'no object is left' 0 "$(find "$shared/objects" -type f | wc -l)"
try 'what is left is sound for both' 0 as 10001 aoticache verify
try 'one outside the group is refused' 1 setpriv --reuid 10003 --regid 10003 --clear-groups -- env HOME="$work" \
    AOTICACHE_DIR="$shared" AOTICACHE_ALLOW_SHARED=true "$work/bin/aoticache" ls
finish
