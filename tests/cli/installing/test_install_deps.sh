#!/usr/bin/env bash
# The arguments that scripts/install-deps passes to apt-get, on simulated machines: nothing is installed on them, and
# apt-get and apt-cache are scripts that answer for a release and record their arguments. (Real ones: make
# check-quickstart.)
. tests/cli/lib.sh

tree=$work/tree bin=$work/bin
mkdir -p "$tree/scripts" "$bin"
cp scripts/install-deps "$tree/scripts"
for program in awk bash cat cut date dirname env find grep head mkdir mktemp paste realpath rm sed sort tail tr; do
    ln -s "$(command -v $program)" "$bin/$program"
done
kernel "$bin" id <<<$'#!/bin/sh\necho 0'
# Prints the commands, one per line; "lacks NAME" in $work/release: this release has no such package.
kernel "$bin" apt-get <<EOT
#!/bin/sh
echo "\$@" | sed 's/^-o [^ ]* -qq //' >>$work/commands
EOT
kernel "$bin" apt-cache <<EOT
#!/bin/sh
command=\$1; shift
case \$command in
pkgnames) sed -n "s/^has \(\$1.*\)/\1/p" $work/release ;;
policy) for name; do
    case \$name in libdnnl*) grep -qxF "has \$name" $work/release || continue ;; esac
    grep -qxF "lacks \$name" $work/release || printf '%s:\n  Installed: (none)\n  Candidate: 1.0\n' "\$name"
    done ;;
depends) printf 'clang\n  Depends: clang-19\n  Breaks: clang-1\n' ;;
esac
EOT
kernel "$bin" ldconfig <<<'#!/bin/sh'
chmod +x "$bin"/id "$bin"/ldconfig "$bin"/apt-get "$bin"/apt-cache

# deps RELEASE ARGUMENT...: runs it on such a machine; the arguments of apt-get are in $work/commands
deps() {
    printf '%s\n' "$1" >"$work/release"
    : >"$work/commands"
    shift
    run env -i PATH="$bin" HOME="$work" VENV="$work/venv" bash "$tree/scripts/install-deps" "$@"
}
installed() { sed -n 's/^install -y --no-install-recommends //p' "$work/commands" | tr ' ' '\n' | sort | paste -sd' '; }

deps 'has libdnnl2' --for demo --no-torch
is 'one update and one install' 'update install' "$(cut -d' ' -f1 "$work/commands" | paste -sd' ')"
# Two packages are recognised by files, which this machine may have.
is 'a demo gets what it needs and nothing else' \
    'binutils g++ gcc libarchive-dev libjansson-dev libopenblas0-pthread libsqlite3-dev libssl-dev libzip-dev make pkg-config python3 python3-venv' \
    "$(installed | sed 's/ca-certificates //; s/libxxhash-dev //')"
says 'what is missing afterwards is an error that names it' '^install-deps: still missing, and needed: gcc g\+\+ make '
is 'and ends it' 1 "$status"

deps 'has libdnnl2' --for test --no-torch
holds 'tests have headers of Python' grep -qw python3-dev <<<"$(installed)"
holds 'and the runtime of the sanitizers, named after the version of clang' grep -qw libclang-rt-19-dev <<<"$(installed)"
holds 'not what only a few tests use' test -z "$(installed | grep -w chromium)"
deps 'has libdnnl2' --for all --no-torch
holds 'which the level all brings' grep -qw chromium <<<"$(installed)"

# ---- oneDNN has another name in each release ----

for release in libdnnl2 libdnnl3 libdnnl3.6; do
    deps "has $release" --for build
    is "$release is found" "$release" "$(installed | tr ' ' '\n' | grep libdnnl)"
done
deps $'has libdnnl3.6\nhas libdnnl3.10\nhas libdnnl-dev\nhas libdnnl3.10-dbg' --for build
is 'the newest is taken' libdnnl3.10 "$(installed | tr ' ' '\n' | grep libdnnl)"
deps $'has libdnnl.*\nhas libdnnl3.*' --for build
is 'what is a pattern does not reach apt-get' '' "$(grep -E '\.\*|libdnnl' "$work/commands")"
deps 'has gcc' --for build
is 'if there is none, all else is installed' '' "$(grep libdnnl "$work/commands")"
holds 'all else' grep -qw libsleef3 <<<"$(installed)"
says 'and that is said' '^install-deps: libdnnl: .* no such package; going on without it$'

# ---- packages that a release lacks ----

deps $'has libdnnl2\nlacks libsleef3' --for build
says 'a package that is wanted only is named' '^install-deps: libsleef3: .* no such package; going on without it$'
is 'and left out' '' "$(grep -w libsleef3 "$work/commands")"
deps $'has libdnnl2\nlacks libzip-dev' --for build
says 'one that is needed, too' '^install-deps: libzip-dev: .* no such package, and it is needed$'

# ---- options ----

try 'an unknown level is refused' 2 bash "$tree/scripts/install-deps" --for nothing
says 'with the levels that there are' "^install-deps: --for: there is no level 'nothing'; build, demo, test or all$"
try 'as is an unknown option' 2 bash "$tree/scripts/install-deps" --build-only
deps 'has libdnnl2' --for demo --check
is '--check calls no apt-get' '' "$(cat "$work/commands")"
prints 'and names what is missing' '^missing: gcc g\+\+ make '
prints 'PyTorch too' '^missing: torch==[0-9.]+ in '
is 'status 1' 1 "$status"
finish
