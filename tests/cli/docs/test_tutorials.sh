#!/usr/bin/env bash
# The tutorials for binding authors and operators, as printed, against an installation as a user has it: every sh block in order,
# in one shell. (The one for PyTorch users: tests/python/docs/test_torch_examples.py.)
. tests/cli/lib.sh

install_for_examples 'tutorials'
export prefix=$stage PATH=$stage/bin:$PATH LD_LIBRARY_PATH=$stage/lib

# all_blocks FILE LANGUAGE: prints the lines of all its blocks.   follow PAGE DIRECTORY [FAILURE]: runs those of a tutorial in
# the directory; one command fails as the page says
all_blocks() { awk -v fence="\`\`\`$2" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "$1"; }
follow() {
    { echo 'trap '"'"'echo "$? from $BASH_COMMAND" >&2'"'"' ERR' && all_blocks "docs/tutorials/$1" sh; } >"$2/blocks"
    run env -C "$2" bash blocks
    # Some are expected to fail: `aoticache why` ends with 3 if it explains a miss.
    is "$1: every command works" "${3:-}" "$(grep -E '^[0-9]+ from ' "$err" | grep -v '^3 from aoticache why ')"
}

mkdir "$work/author"
example docs/tutorials/binding-author.md program >"$work/author/abs.c"
example docs/tutorials/binding-author.md twice >"$work/author/twice.c"
AOTICACHE_DIR=$work/author/kernels follow binding-author.md "$work/author"
is 'the program runs twice, recorded, and after a warm start' 4 "$(grep -c '^1 2 3$' "$out")"
prints 'the first run compiles' '^compiles +1 \('
prints 'the second run does not' '^hits +1 \(50.0 %\)$'
prints 'a kernel of the program itself' '^2 6 4 8 $'
prints 'a miss is explained' 'argument 0: sizes  \[4\]    \[3\]'
prints 'a list is compiled beforehand' '^0 there, 1 compiled, 0 failed, 0 unsupported'
try 'statistics of the warm start' 0 env AOTICACHE_DIR="$work/author/image" aoticache-stat --json
member 'it compiled what was recorded and nothing else' counters.compiles 1

mkdir "$work/operator"
unset AOTICACHE_DIR AOTICACHE_KEYS # the page's configurations have them
mkdir "$work/home"
# shellcheck disable=SC2016 # as the page has it
HOME=$work/home follow operator.md "$work/operator" '1 from AOTICACHE_CONFIG=$PWD/second.conf aoticache import kernels.tar.zst'
prints 'the puts have collected' '^entries +4$'
prints 'what is pinned stays' '^removed 0 of 4 entries .* 4 due but pinned$'
prints 'a dry run says what would go' '^would remove 2 of 4 entries '
prints 'what is not pinned goes' '^removed 2 of 4 entries '
prints 'what is left is whole' '^2 entries, 4 objects, .*: all is well$'
says 'the other machine trusts nobody' "^aoticache import: warning: the archive: 2 entries refused \\(.*\\): signed by '.*', a key that is not trusted here; .* repeat this after: aoticache key trust .*"
is 'and takes nothing in' 1 "$(grep -c '^imported 0 entries, .*; 2 refused, 2 of them because no trusted key signed them$' "$out")"
is 'until it does' 1 "$(grep -c '^imported 2 entries, 4 objects' "$out")"
is 'the other machine compiles nothing' 2 "$(grep -c '^source       found in the cache' "$out")"
holds 'this one trusts nobody else' [ ! -e "$work/operator/keys/trusted_keys" ]
is 'the other one trusts this one alone' "$(AOTICACHE_KEYS=$work/operator/keys aoticache key public)" \
    "$(grep -v '^#' "$work/operator/second/keys/trusted_keys")"
holds 'and has no key of its own' [ ! -e "$work/operator/second/keys/secret-key" ]
holds 'the home has nothing of it' [ -z "$(find "$work/home" -type f)" ]

# `make check-quickstart` runs whole pages in fresh systems, by hand: this checks that it finds all commands of a page.
example docs/tutorials/operator.md share >"$work/share"
for page in binding-author operator pytorch-user; do
    try "$page.md: its commands are found" 0 scripts/packaging/check-quickstart --commands "docs/tutorials/$page.md"
    holds 'they are a script' bash -n "$out"
    prints 'they begin with what the page needs' '^scripts/install-deps --for build$'
    all_blocks "docs/tutorials/$page.md" sh | grep -vxFf "$out" >"$work/missing"
    is 'no sh block is left out' '' "$(cat "$work/missing")"
    # Blocks of commands have no language if the tests do not run them; the last of the author's has a placeholder.
    # cli/test_sharing.sh runs those that need a server.
    awk '/^```/ { if (on) { on = 0 } else { on = 1; first = $0 == "```" } next } on && first { print; first = 0 }' \
        "docs/tutorials/$page.md" | grep -E '^(aoticache[a-z-]* [a-z]|python|pip|make|scripts/)' | grep -v '^aoticache [a-z]*: ' |
        grep -vxFf "$out" | grep -vxFf "$work/share" >"$work/missing"
    is 'nor one that only they run' '' "$(cat "$work/missing")"
done
finish
