#!/usr/bin/env bash
# aoticache pin, unpin and tag; and rm of pinned entries.
. tests/cli/lib.sh

try 'pin where nothing was ever stored' 7 aoticache pin 0123456789
for size in 2 3; do
    run aoticache compile aten::abs --input float32:$size --hook c --json
    [ "$status" = 0 ] || { not_ok "compile $size" 'needed for the rest' && finish; }
    keys[size]=$(field key)
done
run aoticache compile aten::mm --input float32:8x8 --input float32:8x8 --hook c --json
mm=$(field key) mm_library=$(field entry.library)
a=${keys[2]} b=${keys[3]}
marks() { cat "$AOTICACHE_DIR/marks/$1"; }
rows() { python3 - "$AOTICACHE_DIR/index.sqlite3" <<'PYTHON'
import sqlite3, sys
index = sqlite3.connect(sys.argv[1])
for key, pinned in index.execute("SELECT hex(key), pinned FROM marks ORDER BY 1"):
    tags = [tag for (tag,) in index.execute("SELECT tag FROM tags WHERE hex(key) = ? ORDER BY 1", (key,))]
    print(key[:4].lower(), pinned, *tags)
PYTHON
}

# ---- pin and unpin ----
try 'pin by a prefix' 0 aoticache pin "${a:0:8}"
prints 'says what' "^pinned ${a:0:12} aten::abs\(float32\[2\]\) on cpu  \[pinned\]\$"
is 'its file' "{\"key\":\"$a\",\"pinned\":true,\"tags\":[]}" "$(marks "$a")"
is 'its mode' 600 "$(stat -c %a "$AOTICACHE_DIR/marks/$a")"
is 'its row' "${a:0:4} 1" "$(rows)"
try 'pin again' 0 aoticache pin "$a" --quiet
prints_nothing 'quietly'
try 'pin of two, one by its library, in upper case' 0 aoticache pin "${b:0:8}" "$(tr a-f A-F <<<"${mm_library:0:16}")" --json
is 'two keys' "$(printf '%s\n' "$b" "$mm" | sort | tr '\n' ' ')" \
    "$(python3 -c 'import json,sys; print("".join(k["key"] + " " for k in json.load(sys.stdin)["keys"]))' <"$out")"
member 'is pinned' keys.0.pinned true
member 'no tags' keys.0.tags '[]'
try 'pin --list' 0 aoticache pin --list
is 'three' 3 "$(grep -c '^pinned' "$out")"
try 'unpin by operator' 0 aoticache unpin --op 'aten::*'
is 'three were' 3 "$(grep -c '^unpinned' "$out")"
is 'no rows are left' '' "$(rows)"
is 'and no files' '' "$(ls "$AOTICACHE_DIR/marks")"
try 'nothing is pinned' 0 aoticache pin --list
says 'and it says so' 'nothing is pinned'
try 'pin of no such operator' 3 aoticache pin --op 'aten::x*'
try 'pin of no such tag' 3 aoticache pin --tag nightly
try 'pin of one that is there and one that is not' 3 aoticache pin "$a" abcdef0123
is 'does neither' '' "$(rows)"
try 'pin of a word' 2 aoticache pin hello
try 'pin of nothing' 2 aoticache pin
try 'pin of keys and an operator' 2 aoticache pin "$a" --op 'aten::abs'
none=$(printf 'f%.0s' $(seq 64))
try 'pin of a key that nothing is stored for' 0 aoticache pin "$none"
prints 'says so' '^pinned ffffffffffff \(nothing is stored for it yet\)'
try 'unpin it by a prefix' 0 aoticache unpin ffffff
try 'and it is unknown' 3 aoticache unpin ffffff

# ---- tags ----
try 'tag with two' 0 aoticache tag "${a:0:8}" v2 nightly
prints 'says which' '\[nightly v2\]$'
is 'in the file' "{\"key\":\"$a\",\"pinned\":false,\"tags\":[\"nightly\",\"v2\"]}" "$(marks "$a")"
try 'tag an operator' 0 aoticache tag --op 'aten::mm' nightly team/a:b
try 'tag --list' 0 aoticache tag --list
prints 'has the tag' '^nightly +2 +0$'
try 'tag --list as JSON' 0 aoticache tag --list --json
member 'has the tag' tags.0.tag nightly
member 'and how many keys' tags.0.keys 2
try 'tag --list of a key' 0 aoticache tag --list "$mm" --json
member 'its tags' keys.0.tags '["nightly", "team/a:b"]'
try 'pin by tag' 0 aoticache pin --tag nightly
try 'tag by tag' 0 aoticache tag --tag v2 v3
try 'take one away' 0 aoticache tag --delete "$a" v2 absent
is 'the others stay' "{\"key\":\"$a\",\"pinned\":true,\"tags\":[\"nightly\",\"v3\"]}" "$(marks "$a")"
for tag in 'a b' '' -x 'ä' "$(printf 'x%.0s' $(seq 64))"; do
    try "no tag: '${tag:0:8}'" 2 aoticache tag "$a" -- "$tag"
done
try 'a tag of 63 letters' 0 aoticache tag "$a" "$(printf 'x%.0s' $(seq 63))"
try 'no tag at all' 2 aoticache tag "$a"
try 'more tags than a key may have' 1 aoticache tag "$b" $(seq -f t%g 65)
says 'says so' 'already has 64 tags'
try 'takes them away' 0 aoticache tag --delete "$b" $(seq -f t%g 65)

# ---- pins and tags in ls and rm ----
run aoticache ls
prints 'ls has a column' '  MARKS$'
prints 'with the marks' "^${a:0:12} .*  pinned nightly v3 x+\$"
run aoticache ls --pinned --tag v3 --json
member 'ls by tag' entries.0.key "$a"
member 'knows the tags' entries.0.pinned true
try 'rm of a pinned one' 1 aoticache rm "${a:0:8}" "$b" --yes
says 'is refused' "${a:0:12} is pinned \(aten::abs.*--force"
try 'nothing was removed' 0 aoticache show "$b"
try 'rm of an operator' 0 aoticache rm --op aten::abs --yes
says 'leaves the pinned one' '^aoticache rm: 1 entry is pinned and stays'
try 'the pinned one is there' 0 aoticache show "$a"
prints 'with its marks' '^marks +pinned'
try 'the other is not' 3 aoticache show "$b"
try 'rm --all' 0 aoticache rm --all --yes
is 'leaves two' 3 "$(aoticache ls | wc -l)"
try 'rm --force' 0 aoticache rm "$a" --force --yes
try 'it is gone' 3 aoticache show "$a"
holds 'its mark is not' [ -e "$AOTICACHE_DIR/marks/$a" ]
aoticache compile aten::abs --input float32:2 --hook c --quiet >/dev/null
run aoticache ls --pinned --json
is 'and holds for what comes after it' 2 "$(field entries | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')"

# ---- the index is lost; a pin is damaged ----
before=$(rows)
rm "$AOTICACHE_DIR"/index.sqlite3*
try 'the index is lost' 0 aoticache pin --list
is 'the marks are not' "$before" "$(rows)"
try 'verify' 0 aoticache verify
chmod u+w "$AOTICACHE_DIR/marks/$a" && echo '{"key":"0","pinned":1}' >"$AOTICACHE_DIR/marks/$a"
try 'a mark is damaged' 0 aoticache tag "$a" after
says 'one warning' 'warning: pins and tags of .*rewritten from the index'
is 'nothing is lost' "$(printf '%s\n' "${a:0:4} 1 after nightly v3 $(printf 'x%.0s' $(seq 63))")" "$(rows | grep "^${a:0:4}")"
holds 'the damaged one is set aside' sh -c 'ls "$AOTICACHE_DIR"/quarantine/'"$a-*"' >/dev/null'
echo nonsense >"$AOTICACHE_DIR/marks/$mm"
ln -sf /etc/passwd "$AOTICACHE_DIR/marks/$b"
rm "$AOTICACHE_DIR"/index.sqlite3*
try 'both are lost' 0 aoticache pin --list
says 'says that it cannot be had again' 'pin or tag the key again'
is 'the other is there' 1 "$(rows | wc -l)"
holds 'the link is not followed' [ ! -e "$AOTICACHE_DIR/marks/$b" ]

# ---- many concurrently ----
for i in 1 2 3 4 5 6 7 8; do aoticache tag "$mm" "many$i" --quiet & done
wait
is 'no change is lost' 8 "$(marks "$mm" | grep -o many | wc -l)"
is 'in the index neither' 8 "$(rows | grep -o many | wc -l)"
chmod -R a-w "$AOTICACHE_DIR"
try 'pin where nothing can be written' 1 without_capabilities aoticache pin "$mm"
chmod -R u+w "$AOTICACHE_DIR"
finish
