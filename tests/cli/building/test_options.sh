#!/usr/bin/env bash
# tests/unit/base/test_options.c walks every public struct that begins with its size, and every public function that takes one:
# this compares its list with the public headers.
. tests/cli/lib.sh

test=tests/unit/base/test_options.c
# Prints every declaration of the public headers on a separate line, without comments.
(cd "$BUILD/include/aoticache" && find . -name '*.h' | sort) | while read -r header; do
    # headers that have been removed are skipped
    [ -e "$header" ] && "${CC:-cc}" -fpreprocessed -dD -E -P "$header" 2>/dev/null
done | grep -v '^ *#' | tr '\n' ' ' | sed 's/;/;\n/g' | tr -s ' ' >"$work/declarations"

# A bridge and its host announce their versions as a number.
grep -oE 'typedef struct aoticache_[a-z_]+ \{ size_t size;' "$work/declarations" | awk '{ print $3 }' |
    grep -vE '^aoticache_bridge(_host)?$' | sort -u >"$work/structs"
holds 'structs are found' [ "$(wc -l <"$work/structs")" -ge 19 ]
while read -r struct; do
    holds "$struct is walked" grep -qE "^    X\($struct, AOTICACHE_[A-Z_]+_INIT\)" "$test"
    holds "$struct is read by the rule" \
        grep -rqzE "AOTICACHE_OPTIONS_READ\([[:space:]]*$struct," --include='*.c' base index cache loader eager
done <"$work/structs"

grep -oE "AOTICACHE_API .*" "$work/declarations" | grep -E "const ($(paste -sd'|' "$work/structs")) \*|struct aoticache_cache_options \*" |
    sed -E 's/^AOTICACHE_API [^(]*[ *](aoticache_[a-z_]+)\(.*/\1/' | sort -u >"$work/functions"
holds 'functions are found' [ "$(wc -l <"$work/functions")" -ge 30 ]
while read -r function; do
    holds "$function is called with all sizes" grep -qE "^    X\($function,|\(function: $function\)" "$test"
done <"$work/functions"
finish
