#!/usr/bin/env bash
# A directory that a group of users shares: entries that one stores, the others find, use, collect and repair.
other_users=1
. tests/cli/lib.sh

[ "$(id -u)" = 0 ] || { skip 'two users share a directory' 'only root can run as several users'; finish; exit 77; }
command -v setpriv >/dev/null || { skip 'two users share a directory' 'there is no setpriv'; finish; exit 77; }
[ -x "$BUILD/tests/helpers/open_cache" ] || { skip 'two users share a directory' "$BUILD/tests/helpers/open_cache is not built (make tests)"; finish; exit 77; }

# Users and a group only by number: nothing is added to the system.
group=54321
chmod 755 "$work"
shared=$work/shared
install -d -m 2770 -g $group "$shared"
cp -r "$BUILD/bin" "$BUILD/lib" "$BUILD/share" "$BUILD/include" "$work/" # other users may be unable to read the build
cp "$BUILD/tests/helpers/open_cache" "$work/bin/"
cp -r eager/torch "$work/python"
as() { # USER COMMAND...
    local user=$1
    shift
    mkdir -p "$work/home$user" && chown "$user" "$work/home$user"
    setpriv --reuid "$user" --regid "$user" --groups $group -- env HOME="$work/home$user" AOTICACHE_HOME="$work" \
        TMPDIR="$work/home$user" AOTICACHE_KEYS="$work/home$user/keys" PATH="$work/bin:$PATH" AOTICACHE_DIR="$shared" bash -c 'umask 077; cd "$HOME"; exec "$@"' - "$@"
}

try 'without saying so a shared directory is refused' 1 as 10001 aoticache run aten::abs --input float32:2 --hook c
says 'and why' 'written by others'
export AOTICACHE_ALLOW_SHARED=true
try 'one user stores' 0 as 10001 aoticache run aten::abs --input float32:2 --hook c --quiet
try 'another finds it' 0 as 10002 aoticache run aten::abs --input float32:2 --hook none --quiet
try 'and stores himself' 0 as 10002 aoticache run aten::abs --input float32:3 --hook c --quiet
try 'which the first finds' 0 as 10001 aoticache run aten::abs --input float32:3 --hook none --quiet
is 'everything belongs to the group' '' "$(find "$shared" ! -group $group)"
is 'directories are open to it' '' "$(find "$shared" -type d ! -perm -2770)"
is 'files too, objects can be written by nobody' '' \
    "$(find "$shared" -type f ! -path '*/objects/*' ! -perm -660; find "$shared/objects" -type f ! -perm 444)"
is 'nothing is open to others' '' "$(find "$shared" -type d -perm /007; find "$shared" -type f ! -path '*/objects/*' -perm /007)"
if as 10001 aoticache export "$work/home10001/archive" --quiet 2>"$err"; then
    cp "$work/home10001/archive" "$work/archive" && chmod 644 "$work/archive"
    old=$shared
    shared=$work/imported
    install -d -m 2770 -g $group "$shared"
    try 'one user imports' 0 as 10001 aoticache import "$work/archive" --quiet
    is 'directories that an import makes are open to the group' '' "$(find "$shared" -type d ! -perm -2770)"
    is 'files of the index, too' '' "$(find "$shared" -type f ! -path '*/objects/*' ! -perm -660)"
    try 'another finds what came' 0 as 10002 aoticache run aten::abs --input float32:2 --hook none --quiet
    chmod 700 "$shared"/objects/?? # as in a directory that was made by hand
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
try 'one collects what the other stored' 0 as 10002 aoticache-gc --max-size 1B --json
member 'all of it' entries_after 0
is 'no object is left' 0 "$(find "$shared/objects" -type f | wc -l)"
try 'what is left is sound for both' 0 as 10001 aoticache verify

# The same with the machine's file, for a C program that does not choose a cache, the tools, and Python. Root owns the
# file, as it owns /etc/aoticache.conf.
unset AOTICACHE_ALLOW_SHARED
configured() { # USER COMMAND...
    local user=$1
    shift
    as "$user" env -u AOTICACHE_DIR AOTICACHE_CONFIG="$work/aoticache.conf" "$@"
}
for python in "$interpreter" /usr/bin/python3; do # one that other users may start
    as 10001 "$python" -c '' >/dev/null 2>&1 && break
    python=
done
in_python() { # USER
    configured "$1" env PYTHONPATH="$work/python" AOTICACHE_LIBRARY="$work/lib/libaoticache.so.0" "$python" -c '
from aoticache._core import caches
print(caches.open_cache(None).directory, caches.open_cache(None).read_only)'
}
printf 'directory = %s\n' "$shared" >"$work/aoticache.conf"
try 'C: without allow_shared it is refused' 1 configured 10001 open_cache group::a
says 'and the remedy named' 'allow_shared = true in the configuration'
try 'doctor names it, too' 1 configured 10001 aoticache doctor
prints 'as the alternative' "-> chmod go-w $shared; or, .*allow_shared = true"
printf 'allow_shared = true\n' >>"$work/aoticache.conf"
try 'C: one user stores' 0 configured 10001 open_cache group::a
is 'in the directory of the file' "stored $shared" "$(cat "$out")"
try 'C: another finds it' 0 configured 10002 open_cache group::a
is 'there' "found $shared" "$(cat "$out")"
try 'the tools find it' 0 configured 10002 aoticache ls group::a
if is_instrumented; then
    skip 'Python opens it, too' 'this build is instrumented, and Python is not'
elif [ -n "$python" ]; then
    try 'Python opens it, too' 0 in_python 10001
    is 'the same directory, for writing' "$shared False" "$(cat "$out")"
    try 'and the other user' 0 in_python 10002
    is 'likewise' "$shared False" "$(cat "$out")"
else
    skip 'Python opens it, too' 'other users can start no Python here'
fi
run configured 10002 aoticache doctor
prints 'doctor finds nothing wrong with the directory' '^OK +mode +2770: shared with group 54321, as the configuration allows'
prints_not 'and advises nothing against it' 'chmod'

# A program with other rights than its caller trusts neither the caller's environment nor the caller's file.
if grep -q nosuid <<<"$(findmnt -no OPTIONS -T "$work")"; then
    skip 'a set-user-ID program' 'there can be none here: the file system is mounted nosuid'
else
    install -m 4755 -o 10002 -g $group "$BUILD/tests/helpers/open_cache" "$work/bin/privileged"
    mkdir -p "$work/home10001/.config/aoticache" && printf 'allow_shared = true\ndirectory = %s\n' "$shared" \
        >"$work/home10001/.config/aoticache/config"
    chown -R 10001 "$work/home10001"
    try 'a set-user-ID program does not believe the file' 1 configured 10001 privileged group::b "$shared"
    says 'that its caller names' 'can be written by others'
    try 'nor the environment' 1 as 10001 env AOTICACHE_ALLOW_SHARED=true privileged group::b "$shared"
    says 'of its caller' 'can be written by others'
    try 'nor the file in his home' 1 as 10001 env -u AOTICACHE_CONFIG privileged group::b "$shared"
    says 'that is the caller'\''s' 'can be written by others'
    try 'nor a directory that they name' 1 configured 10001 privileged group::b
    says 'it has none' 'no cache directory is chosen'
    try 'which the same program, called by its owner, does' 0 configured 10002 "$work/bin/privileged" group::b
fi

# The machine's own file, if a mount namespace is available.
machine() { # USER COMMAND...
    unshare -m bash -c 'mount --bind "$0/etc" /etc && cd "$0/home$1" && exec setpriv --reuid "$1" --regid "$1" --groups "$2" -- \
        env -u AOTICACHE_CONFIG -u AOTICACHE_DIR HOME="$0/home$1" PATH="$0/bin:$PATH" AOTICACHE_HOME="$0" "${@:3}"' \
        "$work" "$1" $group "${@:2}"
}
rm -rf "$work/home10001/.config"
mkdir "$work/etc" && cp /etc/passwd /etc/group /etc/ld.so.cache "$work/etc/" 2>/dev/null
cp "$work/aoticache.conf" "$work/etc/aoticache.conf"
if machine 10001 true 2>/dev/null; then
    try 'by /etc/aoticache.conf: C' 0 machine 10001 open_cache group::c
    is 'stores there' "stored $shared" "$(cat "$out")"
    try 'and another user' 0 machine 10002 open_cache group::c
    is 'finds it' "found $shared" "$(cat "$out")"
    try 'the tools' 0 machine 10002 aoticache ls group::c
    if [ -e "$work/bin/privileged" ]; then
        try 'a set-user-ID program is not made to trust the group' 1 machine 10001 privileged group::d
        says 'not by the machine either' "$shared can be written by others"
    fi
else
    skip 'by /etc/aoticache.conf' 'no name space for mounts can be had'
fi

export AOTICACHE_ALLOW_SHARED=true
try 'one outside the group is refused' 1 setpriv --reuid 10003 --regid 10003 --clear-groups -- env HOME="$work" \
    AOTICACHE_DIR="$shared" AOTICACHE_ALLOW_SHARED=true "$work/bin/aoticache" ls
outsider=(setpriv --reuid 10003 --regid 10003 --clear-groups -- env HOME="$work" AOTICACHE_HOME="$work" AOTICACHE_DIR="$shared")
says 'and told where to look' "cannot open the cache directory $shared: Permission denied; 'aoticache doctor' shows who may open it"
try 'as JSON' 1 "${outsider[@]}" "$work/bin/aoticache" ls --json
says 'with the status' '"status":"DENIED"'
for allowed in true false; do
    try "doctor: outside the group, allow_shared $allowed" 1 "${outsider[@]}" AOTICACHE_ALLOW_SHARED=$allowed \
        "$work/bin/aoticache" doctor
    prints 'the directory cannot be opened' "^FAIL +directory +$shared cannot be opened: it belongs to uid 0 and group $group, its mode is 2770, and this process is uid 10003"
    prints 'it says what to do' "-> to use it, become a member of the group \\(as root: usermod -aG $group USER.*AOTICACHE_DIR"
    prints_not 'nothing else is said of it' '^[A-Z]+ +(index|owner|mode|access) '
done
finish
