#!/usr/bin/env bash
# aoticache ls, show and rm.
. tests/cli/lib.sh

try 'ls where nothing was ever stored' 3 aoticache ls
says 'names the directory' "$AOTICACHE_DIR"
holds 'and does not create it' [ ! -e "$AOTICACHE_DIR" ]

for size in 2 3; do
    run aoticache compile aten::abs --input float32:$size --hook c --json
    [ "$status" = 0 ] || { not_ok "compile $size" 'needed for the rest' && finish; }
done
key=$(field key) library=$(field entry.library) artifact=$(field entry.artifact)
aoticache compile aten::mm --input float32:8x8 --input float32:8x8 --hook c --quiet >/dev/null

try 'ls' 0 aoticache ls
prints 'has a heading' '^KEY +KERNEL +SIZE +AGE +USED +USES +PRODUCER +CPU$'
prints 'has a row for each entry' "^${key:0:12}  aten::abs\(float32\[3\]\) on cpu +[0-9.]+ KiB"
is 'four lines' 4 "$(wc -l <"$out")"
try 'ls of one operator' 0 aoticache ls aten::mm
is 'has its entries only' 2 "$(wc -l <"$out")"
try 'ls of an operator that is not there' 3 aoticache ls aten::nothing
try 'ls --json' 0 aoticache ls --json
is 'has all entries' 3 "$(field entries | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')"
member 'sorted by operator' entries.2.op aten::mm
try 'ls sorted by age' 0 aoticache ls --sort age --json
member 'the newest first' entries.0.op aten::mm
try 'reversed' 0 aoticache ls --sort age --reverse --json
member 'the newest last' entries.2.op aten::mm
try 'a wrong order' 2 aoticache ls --sort colour
says 'lists what there is' 'op, size, age, used or uses'
try 'a use is counted' 0 aoticache run aten::mm --input float32:8x8 --input float32:8x8 --hook c --quiet
try 'ls sorted by uses' 0 aoticache ls --sort uses --json
member 'the used one first' entries.0.op aten::mm
member 'one use' entries.0.uses 1

try 'show by a prefix of the key' 0 aoticache show "${key:0:10}"
prints 'the key in full' "^key +$key\$"
prints 'the artifact' "^artifact +$artifact\$"
prints 'the argument with strides' '^argument 0 +float32\[3\] strides \[1\] on cpu$'
prints 'the environment' '^environment +arch = '
prints 'the files' "$library .* "
prints 'what the library needs' '^needs +.*libc'
prints 'that PyTorch is not needed' '^PyTorch +not needed'
try 'show in upper case' 0 aoticache show "$(tr a-f A-F <<<"${key:0:10}")"
try 'show by the library' 0 aoticache show "${library:0:16}"
try 'show by the artifact, as JSON' 0 aoticache show "$artifact" --json
member 'the entry' entries.0.key "$key"
member 'the manifest' entries.0.manifest.key "$key"
member 'no problem' entries.0.problem null
member 'nothing is missing' entries.0.library_description.missing '[]'
try 'a prefix of nothing' 3 aoticache show ffffffffffffffff0000
try 'a prefix that is too short' 2 aoticache show ab
try 'no hexadecimal digits' 2 aoticache show zzzzzz
try 'no key' 2 aoticache show

# Two keys with the very same library: sources that look at nothing of the request.
kernel "$work/same" aten_abs.c <<<'int answer(void); int answer(void) { return 42; }'
for size in 5 6; do
    run aoticache compile aten::abs --input float32:$size --hook c --kernels "$work/same" --json
done
shared=$(field entry.library)
try 'a prefix of two keys' 2 aoticache show "$shared"
says 'is called ambiguous' "prefix $shared is ambiguous"
is 'and both are named' 2 "$(grep -c 'aten::abs' "$err")"

# ---- rm ----
try 'rm of one key' 0 aoticache rm "${key:0:12}" --yes
prints 'says what went' "^removed ${key:0:12} aten::abs\(float32\[3\]\) on cpu\$"
try 'it is gone' 3 aoticache show "$key"
holds 'and so is its library' [ ! -e "$(object_path "$library")" ]
try 'rm again' 3 aoticache rm "${key:0:12}"
try 'rm of two prefixes, one wrong' 3 aoticache rm "${key:0:12}" ffffffff
try 'rm of an operator' 0 aoticache rm --op aten::abs --json
is 'three entries' 3 "$(field removed | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')"
holds 'the shared library is gone with the last' [ ! -e "$(object_path "$shared")" ]
try 'rm of an operator that is not there' 3 aoticache rm --op aten::abs
try 'rm --all asks, and here is nobody to ask' 2 aoticache rm --all
says 'and says so' '--yes'
is 'nothing was removed' 2 "$(aoticache ls | wc -l)"
try 'rm --all --yes' 0 aoticache rm --all --yes
try 'ls of an empty cache' 0 aoticache ls
prints_nothing 'prints nothing'
says 'but a note' 'is empty'
try 'rm of nothing' 2 aoticache rm
try 'rm of everything at once' 2 aoticache rm --all --op aten::abs
finish
