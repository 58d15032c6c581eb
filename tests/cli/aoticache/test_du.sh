#!/usr/bin/env bash
# aoticache du.
. tests/cli/lib.sh

for size in 2 3; do aoticache compile aten::abs --input float32:$size --hook c --quiet >/dev/null; done
run aoticache compile aten::mm --input float32:8x8 --input float32:8x8 --hook c --json
[ "$status" = 0 ] || { not_ok 'compile' 'needed for the rest' && finish; }
mm=$(field key) mm_bytes=$(field entry.bytes)

# The size of the whole directory is that of du(1): files with several names count once.
mkdir -p "$AOTICACHE_DIR/artifacts/x" "$AOTICACHE_DIR/quarantine"
object=$(find "$AOTICACHE_DIR/objects" -type f | head -n 1)
ln "$object" "$AOTICACHE_DIR/artifacts/x/1" && ln "$object" "$AOTICACHE_DIR/artifacts/x/2"
head -c 5000 /dev/zero >"$AOTICACHE_DIR/quarantine/5000"
ln -s /usr "$AOTICACHE_DIR/quarantine/link"
aoticache pin "$mm" --quiet
try 'du --json' 0 aoticache du --json
member 'as much as du(1) finds' total.disk_bytes "$(du -s --block-size=1 "$AOTICACHE_DIR" | cut -f 1)"
member 'as many files' total.files "$(find "$AOTICACHE_DIR" ! -type d -printf '%i\n' | sort -u | wc -l)"
member 'objects come first' parts.0.part objects
member 'all of them' parts.0.files "$(find "$AOTICACHE_DIR/objects" -type f | wc -l)"
member 'with their bytes' parts.0.bytes "$(find "$AOTICACHE_DIR/objects" -type f -printf '%s\n' | python3 -c 'import sys; print(sum(map(int, sys.stdin)))')"
member 'links to them count once' parts.1.files 0
member 'what was set aside, and the link itself' parts.3.bytes 5004
member 'marks' parts.6.files 1
try 'du' 0 aoticache du
prints 'has a heading' '^PART +FILES +SIZE +ON DISK +WHAT$'
prints 'and a total' "^total .*$AOTICACHE_DIR\$"
try 'du --bytes' 0 aoticache du --bytes
prints 'in bytes' "^quarantine +2 +5004 +[0-9]+  "

try 'du --by op' 0 aoticache du --by op --json
member 'the largest first' groups.0.op aten::abs
member 'two kernels' groups.0.entries 2
member 'and the other' groups.1.bytes "$mm_bytes"
try 'du --by op --limit' 0 aoticache du --by op --limit 1
is 'a heading and a line' 2 "$(wc -l <"$out")"
aoticache tag "$mm" fast nightly --quiet
try 'du --by tag' 0 aoticache du --by tag --json
member 'those without a tag' groups.0.tag null
member 'each tag' groups.1.tag fast
member 'has all that has it' groups.2.bytes "$mm_bytes"
try 'du --by device' 0 aoticache du --by device
prints 'all on the CPU' '^cpu +3 '
try 'du --by producer' 0 aoticache du --by producer
prints 'all by cc' '^cc .* +3 '

# Two keys with the very same library: it counts once in a group.
kernel "$work/same" aten_abs.c <tests/hosts/kernels/pointwise.c
for size in 5 6; do
    run aoticache compile aten::abs --input float32:$size --hook c --kernels "$work/same" --json
    shared_bytes=$(field entry.bytes)
done
library=$(stat -c %s "$(object_path "$(field entry.library)")")
last=$(field key)
run aoticache du --by op --json
before=$(field groups.0.bytes)
aoticache rm "$last" --yes --quiet
run aoticache du --by op --json
after=$(field groups.0.bytes)
is 'the one that goes gives back its manifest alone' $((shared_bytes - library)) $((before - after))
try 'du --by nothing' 2 aoticache du --by colour
says 'lists what there is' 'not one of operator, device, producer or tag'
try 'du --limit alone' 2 aoticache du --limit 1
aoticache unpin "$mm" --quiet && aoticache rm --all --yes --quiet
try 'du --by of an empty cache' 0 aoticache du --by op
says 'says so' 'is empty'
finish
