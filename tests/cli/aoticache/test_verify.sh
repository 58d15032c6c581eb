#!/usr/bin/env bash
# aoticache verify: damage of every kind is found, and repaired.
other_users=1
. tests/cli/lib.sh

call=(aten::abs --input float32:4=-2 --hook c --json)
fresh() { # makes an empty cache with one kernel; sets its key and library
    chmod -R u+rwX "$AOTICACHE_DIR" 2>/dev/null
    rm -rf "$AOTICACHE_DIR"
    run aoticache run "${call[@]}"
    [ "$status" = 0 ] || { not_ok 'set-up' 'the kernel does not compile' && finish; }
    key=$(field key) library=$(field library)
}

try 'verify where there is no cache' 7 aoticache verify
fresh
try 'a sound cache' 0 aoticache verify
prints 'all is well' '^1 entry, .*all is well$'
try 'a sound cache, as JSON' 0 aoticache verify --json
member 'no findings' findings '[]'
member 'one entry' entries 1

# Files that a file system or a backup puts at the root of a volume.
mkdir "$AOTICACHE_DIR/lost+found" "$AOTICACHE_DIR/.snapshot"
touch "$AOTICACHE_DIR/CACHEDIR.TAG" "$AOTICACHE_DIR/.nfs000000000001"
try 'the root of a volume' 0 aoticache verify --repair
holds 'keeps what is not ours' [ -d "$AOTICACHE_DIR/lost+found" -a -e "$AOTICACHE_DIR/CACHEDIR.TAG" ]
touch "$AOTICACHE_DIR/notes"
try 'another file' 4 aoticache verify
prints 'is foreign' '^foreign +notes'
rm "$AOTICACHE_DIR/notes"
mkdir -m 700 "$work/volume" "$work/volume/lost+found"
try 'a fresh volume' 0 aoticache run "${call[@]}" --cache-dir "$work/volume"
member 'becomes a cache' source compiled

damage "$(object_path "$library")"
try 'a damaged object is found' 4 aoticache verify
prints 'by its digest' "^damaged +.*${library:2}"
says 'and what to do is said' 'verify --repair'
try 'as JSON' 4 aoticache verify --json
member 'what it is' findings.0.what damaged
member 'one of them' damaged 1
try 'it is repaired' 0 aoticache verify --repair
try 'then all is well' 0 aoticache verify
holds 'the object is in quarantine' [ -n "$(ls "$AOTICACHE_DIR/quarantine")" ]
try 'the kernel is compiled again' 0 aoticache run "${call[@]}"
member 'compiled' source compiled
member 'the same library' library "$library"
member 'the result is right' outputs.0.values '[2.0, 2.0, 2.0, 2.0]'

damage "$(object_path "$library")"
try 'damage is noticed by a run, too' 0 aoticache run "${call[@]}"
member 'and compiled again' source compiled
says 'with one line' 'damaged'
is 'one line only' 1 "$(wc -l <"$err")"
try 'nothing is left of it' 0 aoticache verify

rm -f "$(object_path "$library")"
try 'a missing object is found' 4 aoticache verify --json
member 'as missing' findings.0.what missing
try 'it is repaired ' 0 aoticache verify --repair
try 'the entry is gone' 3 aoticache show "$key"
try 'all is well again' 0 aoticache verify

fresh
truncate -s 100 "$(object_path "$library")" 2>/dev/null || { chmod u+w "$(object_path "$library")" && truncate -s 100 "$(object_path "$library")"; }
try 'a truncated object is found' 4 aoticache verify
try 'a run compiles again' 0 aoticache run "${call[@]}"
member 'it is compiled' source compiled

fresh
object=$(object_path "$library")
cp "$object" "$work/elsewhere"
rm -f "$object"
ln -s "$work/elsewhere" "$object"
try 'a symbolic link in place of an object is not followed' 0 aoticache run "${call[@]}"
member 'the kernel is compiled again' source compiled
fresh
ln -s /etc/passwd "$AOTICACHE_DIR/objects/ab" 2>/dev/null || ln -s /etc/passwd "$AOTICACHE_DIR/objects/zz"
try 'a foreign link is found' 4 aoticache verify
prints 'as foreign' '^foreign'
try 'it goes to quarantine' 0 aoticache verify --repair
try 'and all is well' 0 aoticache verify
holds 'what it pointed to is untouched' [ -s /etc/passwd ]

fresh
printf 'this is no database, not by far' >"$AOTICACHE_DIR/index.sqlite3"
rm -f "$AOTICACHE_DIR"/index.sqlite3-*
try 'an index that is garbage' 0 aoticache run "${call[@]}"
member 'is rebuilt: the kernel is found' source index
says 'with a warning' 'index'
fresh
rm -f "$AOTICACHE_DIR"/index.sqlite3*
try 'an index that is lost' 0 aoticache run "${call[@]}"
member 'is rebuilt, too' source index

# Verifying parts and kinds of it.
chmod -R u+rwX "$AOTICACHE_DIR" && rm -rf "$AOTICACHE_DIR"
for size in 4 5 6 7 8; do aoticache compile aten::abs --input float32:$size --hook c --quiet >/dev/null; done
fresh_library() { aoticache ls --json | python3 -c 'import json,sys; d=json.load(sys.stdin); print((d if isinstance(d,list) else d["entries"])[0]["library"])'; }
try 'a quick look' 0 aoticache verify --quick
prints 'says the same' '^5 entries, 10 objects, .*all is well$'
damage "$(object_path "$(fresh_library)")"
try 'sees no bytes' 0 aoticache verify --quick
try 'a full one does, in one thread or in many' 4 aoticache verify --jobs 1
try 'in many' 4 aoticache verify -j 8 --json
member 'one of them' damaged 1
member 'that is all of it' partial false
try 'it is repaired  ' 0 aoticache verify --repair --jobs 2
try 'jobs that are none' 2 aoticache verify --jobs 0
try 'a limit that is none' 2 aoticache verify --time-limit 5
try 'a limit that is not reached' 0 aoticache verify --time-limit 1h
try 'nothing to resume is all of it' 0 aoticache verify --resume
holds 'and nothing is left of it' [ ! -e "$AOTICACHE_DIR/verify.state" ]
{
    printf 'aoticache-verify 1\nquick 0\nrepair 0\nindex 1\nphase 0\nfolder 255\ncursor %064d\n' 0 | sed 's/^cursor 0*$/cursor '"$(printf 'f%.0s' {1..64})"'/'
    printf '%s\n' 'objects 9' 'bytes 99' 'damaged 0' 'missing 0' 'foreign 0' 'unindexed 0' 'wrong_entries 0' 'wrong_links 0' 'wrong_marks 0' 'wrong_signatures 0' 'unreferenced 0' 'repaired 0' 'unreadable 0'
} >"$AOTICACHE_DIR/verify.state"
try 'a run that was stopped' 0 aoticache verify --resume
prints 'is added to' '^4 entries, 9 objects, 99 B .*all is well$'
says 'and it is said' '^aoticache verify: 9 of these objects were examined by earlier runs$'

# A signal: the progress is reported, and the next run continues. A pipe without a reader stops it while it reports
# findings. SIGTERM, because SIGINT is ignored in the background of a script.
for i in $(seq 3000); do : >"$AOTICACHE_DIR/objects/foreign-file-with-a-rather-long-name-so-that-a-pipe-is-full-soon-$i"; done
mkfifo "$work/pipe"
aoticache verify >"$work/pipe" 2>"$work/interrupted" &
verifier=$!
exec 3<"$work/pipe"
read -r first <&3 # it is running, and cannot end before the rest is read
kill -TERM "$verifier"
{ echo "$first" && cat <&3; } >"$work/said"
exec 3<&-
wait "$verifier"
status=$?
is 'an interrupted run ends by its signal' 143 "$status"
holds 'what was done is said' grep -q '^4 entries, .* 3000 foreign' "$work/said"
holds 'and how to go on' grep -q "'aoticache verify --resume' continues" "$work/interrupted"
holds 'the state is there' [ -s "$AOTICACHE_DIR/verify.state" ]
try 'it goes on' 4 aoticache verify --resume --json
member 'to the end' partial false
member 'and counts nothing twice' foreign 3000
try 'all is repaired' 0 aoticache verify --repair --quiet

# Inside a file: nothing records the size of this one, so all of it is read.
mkdir -p "$AOTICACHE_DIR/objects/f7"
huge=$AOTICACHE_DIR/objects/f7/$(printf '%062d' 0)
if truncate -s 1T "$huge" 2>/dev/null; then
    aoticache verify >"$work/said" 2>"$work/interrupted" &
    verifier=$!
    sleep 1
    kill -TERM "$verifier"
    begun=$SECONDS
    wait "$verifier"
    is 'a run ends by its signal inside a file' 143 "$?"
    holds 'and soon' [ $((SECONDS - begun)) -lt 10 ]
    holds 'what was done is said' grep -q 'so far all is well' "$work/said"
else
    skip 'a run ends by its signal inside a file' 'there are no files of a terabyte here'
fi
rm -f "$huge" "$AOTICACHE_DIR/verify.state"
rmdir --ignore-fail-on-non-empty "$AOTICACHE_DIR/objects/f7" # one run in 40 has an object there

# Unreadable files.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    cp -r "$BUILD/bin" "$BUILD/lib" "$BUILD/share" "$work/" # other users may be unable to read the build
    chmod 755 "$work"
    cp -r "$AOTICACHE_DIR" "$work/theirs"
    chown -R 10001 "$work/theirs"
    as() { setpriv --reuid 10001 --regid 10001 --clear-groups -- env HOME="$work" XDG_CONFIG_HOME="$work" \
        AOTICACHE_HOME="$work" "$work/bin/aoticache" verify --cache-dir "$work/theirs" "$@"; }
    # Each in turn: entries' libraries and manifests, and leftovers of removed entries.
    for directory in "$work"/theirs/objects/??; do
        chown 0 "$directory"
        chmod 700 "$directory"
        try 'what may not be read has an exit code of its own' 6 as
        prints 'is named' "^unreadable objects/${directory##*/}: .*Permission denied"
        prints 'and counted' '1 that cannot be read'
        try 'a repair leaves it' 6 as --repair --json
        member 'counted there, too' unreadable 1
        member 'and nothing else' repaired 0
        chown 10001 "$directory"
    done
    rm -rf "$work/theirs"
else
    skip 'what may not be read has an exit code of its own' 'only root can run as another user'
fi

# The index.
if command -v python3 >/dev/null && python3 -c 'import sqlite3' 2>/dev/null; then
    sql() { python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute(sys.argv[2]); d.commit()' "$AOTICACHE_DIR/index.sqlite3" "$1"; }
    sql 'UPDATE entries SET library_bytes = library_bytes + 1'
    try 'entries at odds with their manifests' 4 aoticache verify --json
    member 'are found' wrong_entries 4
    member 'each' findings.0.what entry
    try 'they are set right' 0 aoticache verify --repair
    sql "UPDATE objects SET parts = x''"
    try 'tables that do not belong together' 4 aoticache verify --quick
    prints 'are a damaged index' '^damaged +index\.sqlite3: .*names an artifact without objects'
    try 'doctor says so, too' 1 aoticache doctor
    prints 'with what to do' '^FAIL +integrity '
    try 'it is built anew' 0 aoticache verify --repair
    try 'and all is well  ' 0 aoticache verify
    prints 'with every entry' '^4 entries'
else
    skip 'a damaged index' 'no Python with sqlite3'
fi
finish
