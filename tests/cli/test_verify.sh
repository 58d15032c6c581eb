#!/usr/bin/env bash
# aoticache verify: damage of every kind is found, and repaired.
. tests/cli/lib.sh

call=(aten::abs --input float32:4=-2 --hook c --json)
fresh() { # an empty cache with one kernel; its key and library
    chmod -R u+rwX "$AOTICACHE_DIR" 2>/dev/null
    rm -rf "$AOTICACHE_DIR"
    run aoticache run "${call[@]}"
    [ "$status" = 0 ] || { not_ok 'set-up' 'the kernel does not compile' && finish; }
    key=$(field key) library=$(field library)
}

try 'verify where there is no cache' 3 aoticache verify
fresh
try 'a sound cache' 0 aoticache verify
prints 'all is well' '^1 entry, .*all is well$'
try 'a sound cache, as JSON' 0 aoticache verify --json
member 'no findings' findings '[]'
member 'one entry' entries 1

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
finish
