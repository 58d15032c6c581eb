#!/usr/bin/env bash
# The tools with entries whose file is in the manifest, as for records of torch.compile and Triton: one file each.
. tests/cli/lib.sh

fill=$BUILD/tests/helpers/fill_cache
FILL_IN_MANIFEST=1 TMPDIR=$work "$fill" "$AOTICACHE_DIR" 3 5000 || { not_ok 'set-up' 'fill_cache failed' && finish; }
objects() { find "$AOTICACHE_DIR/objects" -type f; }
is 'a file for each entry' 3 "$(objects | wc -l)"
TMPDIR=$work "$fill" "$work/apart" 3 5000
is 'two where they are stored apart' 6 "$(find "$work/apart/objects" -type f | wc -l)"

try 'ls --json' 0 aoticache ls --json
key=$(field entries.0.key) artifact=$(field entries.0.artifact) library=$(field entries.0.library)
member 'ls: the bytes are those of the file' entries.0.bytes "$(stat -c %s "$AOTICACHE_DIR/objects/${artifact:0:2}/${artifact:2}")"
AOTICACHE_DIR=$work/apart run aoticache ls --json
member 'ls: the digest of the content is that of a file stored apart' entries.0.library "$library"
try 'show by the digest of the content, which is no library' 0 aoticache show "$library" --json
member 'show: it follows the manifest' entries.0.manifest.files.0.inline true
member 'show: its size' entries.0.manifest.files.0.bytes 5000
member 'show: its digest' entries.0.manifest.files.0.digest "$library"
try 'du' 0 aoticache du --json
member 'du: three files' parts.0.files 3
member 'du: their bytes, once' parts.0.bytes "$(objects | xargs stat -c %s | awk '{ sum += $1 } END { print sum }')"
run aoticache why fill::op0 --hook c
prints 'why finds it' '^entry .*fill::op0'
try 'verify' 0 aoticache verify
prints 'verify: three objects' '^3 entries, 3 objects'

try 'export' 0 aoticache export "$work/records.tar"
prints 'export: three objects' '^exported 3 entries, 3 objects'
try 'import' 0 env AOTICACHE_DIR="$work/imported" aoticache import --allow-unsigned "$work/records.tar"
try 'merge' 0 env AOTICACHE_DIR="$work/merged" aoticache merge "$AOTICACHE_DIR"
for other in imported merged; do
    is "$other: the same files" "$(cd "$AOTICACHE_DIR" && find objects -type f | sort)" "$(cd "$work/$other" && find objects -type f | sort)"
    try "$other: sound" 0 env AOTICACHE_DIR="$work/$other" aoticache verify
done

# The last byte belongs to the content, and so to the object, too.
object=$AOTICACHE_DIR/objects/${artifact:0:2}/${artifact:2}
chmod 600 "$object" && printf x | dd of="$object" bs=1 seek=$(($(stat -c %s "$object") - 1)) conv=notrunc status=none && chmod 444 "$object"
try 'verify finds damage of the content' 4 aoticache verify
prints 'verify: one is damaged' "^damaged +objects/${artifact:0:2}/${artifact:2}"
try 'export leaves it out' 1 aoticache export "$work/damaged.tar"
try 'verify --repair' 0 aoticache verify --repair
try 'then all is well' 0 aoticache verify
prints 'with what is left' '^2 entries, 2 objects'
is 'it was set aside' 1 "$(find "$AOTICACHE_DIR/quarantine" -type f | wc -l)"

rm -f "$AOTICACHE_DIR"/index.sqlite3*
try 'without the index' 0 aoticache ls --json
member 'both are there' entries.1.op fill::op2
key=$(field entries.0.key)
try 'rm' 0 aoticache rm "$key" --yes
is 'its file goes with it' 1 "$(objects | wc -l)"
try 'gc' 0 aoticache-gc --max-size 1B
is 'and the last' 0 "$(objects | wc -l)"
finish
