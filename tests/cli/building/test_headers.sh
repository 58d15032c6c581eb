#!/usr/bin/env bash
# The public headers in users' programs: each alone, and every initializer, in all standards of C and C++ that the
# installed compilers know, with warnings as errors.
. tests/cli/lib.sh

include=$BUILD/include/aoticache
strict=(-Wall -Wextra -Wpedantic -Werror "-I$include")

# Writes a program that makes one of each struct that has an initializer, and prints its bytes.
program() {
    local file=$1 macro type
    {
        echo '#include <aoticache.h>'
        find "$include" -name '*.h' -printf '#include "%P"\n' | sort
        echo '#include <stdio.h>'
        while read -r macro; do
            type=$(tr '[:upper:]' '[:lower:]' <<<"${macro%_INIT}")
            echo "static void print_$type(void) { static const $type made = $macro; const unsigned char *bytes = (const unsigned char *)&made;"
            echo "printf(\"$type\"); for (size_t i = 0; i < sizeof made; i++) printf(\" %02x\", bytes[i]); printf(\"\\n\"); }"
        done <"$work/macros"
        echo 'int main(void) {'
        while read -r macro; do echo "print_$(tr '[:upper:]' '[:lower:]' <<<"${macro%_INIT}")();"; done <"$work/macros"
        echo 'return 0; }'
    } >"$file"
}

grep -rhoE '^ *#define AOTICACHE_[A-Z_]+_INIT\b' "$include" | awk '{ print $2 }' | sort -u | grep -v SIZED_INIT >"$work/macros"
holds 'initializers are found' [ "$(wc -l <"$work/macros")" -ge 15 ]
program "$work/all.c"
cp "$work/all.c" "$work/all.cpp"

knows() { echo 'int main(void) { return 0; }' | "$@" -x "$language" -fsyntax-only - 2>/dev/null; }

compile() { # COMPILER STANDARD SOURCE
    knows "$1" "-std=$2" || { skip "$1 $2" 'this compiler does not know it'; return; }
    try "$1 -std=$2" 0 "$1" "-std=$2" "${strict[@]}" -fsyntax-only "$3"
}

for language in c c++; do
    if [ $language = c ]; then
        compilers='gcc clang' standards='c11 c17 c2x gnu11' source=$work/all.c
    else
        compilers='g++ clang++' standards='c++11 c++14 c++17 c++20 c++2b' source=$work/all.cpp
    fi
    for compiler in $compilers; do
        if ! command -v "$compiler" >/dev/null; then
            skip "$compiler" 'it is not installed'
            continue
        fi
        for standard in $standards; do compile "$compiler" "$standard" "$source"; done
        while IFS= read -r header; do # each alone
            echo "#include \"$header\"" >"$work/one.${source##*.}"
            try "$compiler, $header alone" 0 "$compiler" "${strict[@]}" -fsyntax-only "$work/one.${source##*.}"
        done < <(find "$include" -name '*.h' -printf '%P\n' | sort)
    done
done

# Headers that are only part of another say of which.
names_its_header() { # HEADER
    local outer
    outer=$(sed -n 's/^ \* Users include <\(aoticache.*\.h\)>\.$/\1/p' "$include/$1")
    [ "$outer" ] && printf '#include <%s>\n' "$outer" | gcc -I"$include" -M -x c - | grep -qF "$include/$1"
}
while IFS= read -r header; do
    case $header in aoticache.h | aoticache/* | runtime/kernel.h | cache/remote/module.h) continue ;; esac
    [ -f "$header" ] || continue # left over from an older build
    holds "$header names the header to include" names_its_header "$header"
done < <(find "$include" -name '*.h' -printf '%P\n' | sort)

# Comments, documents and manual pages are in plain English.
try 'no word or pattern that stops a reader' 0 scripts/check-english

# The library exports what they declare, and nothing else.
try 'the map of exports, and docs/api.md, are those of the headers' 0 scripts/check-exports
nm -D --defined-only "$BUILD/lib/libaoticache.so" | sed -n 's/.* \(aoticache_[a-z0-9_]*\)@.*/\1/p' | LC_ALL=C sort >"$work/exported"
grep -oE 'aoticache_[a-z0-9_]+' scripts/link/libaoticache.map | LC_ALL=C sort >"$work/listed"
holds 'the library has each function of the map, and no other' cmp "$work/exported" "$work/listed"

# An author of a binding keeps <aoticache.h> in mind.
count=$(gcc -I"$include" -E "$include/aoticache.h" | grep -oE 'aoticache_[a-z0-9_]+' | LC_ALL=C sort -u | comm -12 - "$work/listed" | wc -l)
holds "aoticache.h declares $count functions, at most 60" [ "$count" -gt 40 -a "$count" -le 60 ]

# The contents of an initializer are the same in both languages.
try 'compiled as C' 0 gcc "${strict[@]}" "$work/all.c" -o "$work/as_c"
try 'compiled as C++' 0 g++ -std=c++11 "${strict[@]}" "$work/all.cpp" -o "$work/as_cpp"
"$work/as_c" >"$work/c.txt"
"$work/as_cpp" >"$work/cpp.txt"
holds 'initializers are the same in C and C++' cmp "$work/c.txt" "$work/cpp.txt"
# A new message is written next to its neighbours; scripts/list-messages says how to add it.
try 'the messages are those of tests/messages.txt' 0 scripts/list-messages --check
try 'nothing is visible to other files without a user' 0 scripts/check-unused "$BUILD"
finish
