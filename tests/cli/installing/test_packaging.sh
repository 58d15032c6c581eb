#!/usr/bin/env bash
# The tarball of the sources, the version in all files, the Python package for distributions, and the list of the library's
# components. Packages themselves are tested in fresh systems, by hand (docs/packaging.md).
. tests/cli/lib.sh

try 'all files say the same version' 0 scripts/packaging/version --check
version=$(scripts/packaging/version)
is 'it is that of the tools' "$version" "$(aoticache --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)"

# ---- the badges ----

# badge_check FILE EXPRESSION: runs --check in a copy in which sed has changed this file, and prints its output
badge_check() {
    rm -rf "$work/copy"
    mkdir -p "$work/copy/scripts/packaging" "$work/copy/base" "$work/copy/docs"
    cp scripts/packaging/badges "$work/copy/scripts/packaging"
    cp scripts/install-deps "$work/copy/scripts" && cp base/base.h "$work/copy/base" && cp LICENSE "$work/copy"
    cp -r docs/images "$work/copy/docs"
    sed -i "$2" "$work/copy/$1"
    run "$work/copy/scripts/packaging/badges" --check
}
badge_check LICENSE ''
is 'each badge says what its source says' 0 "$status"
while read -r source badge expression; do
    badge_check "$source" "$expression"
    is "another $badge is noticed" 1 "$status"
    says "and named: $badge" "^docs/images/badge-$badge.svg does not say"
done <<'CHANGES'
base/base.h version s/AOTICACHE_VERSION ".*"/AOTICACHE_VERSION "9.9.9"/
LICENSE licence s/Version 2.0, January/Version 3.0, January/
scripts/install-deps pytorch s/torch==2[.][0-9]*/torch==9.9/
docs/images/badge-version.svg version s/[0-9][.][0-9][.][0-9]/9.9.9/
CHANGES
is 'README.md shows all of them, and three at most' "$(cd docs/images && ls badge-*.svg)" \
    "$(grep -o 'docs/images/badge-[a-z]*.svg' README.md | cut -d/ -f3 | sort)"
holds 'three' [ "$(find docs/images -name 'badge-*.svg' | wc -l)" -le 3 ]

# ---- the tarball ----

if [ -e .git ] && ! command -v git >/dev/null; then
    skip 'the tarball' 'there is no git'
else
    export SOURCE_DATE_EPOCH=1700000000
    try 'the sources are packed' 0 scripts/packaging/dist "$work/one"
    tarball=$work/one/aoticache-$version.tar.xz
    is 'its path is printed' "$tarball" "$(cat "$out")"
    tar tf "$tarball" >"$work/names"
    is 'all is in one directory' "aoticache-$version" "$(cut -d/ -f1 "$work/names" | sort -u)"
    is 'nothing of git, of CI or of Debian is in it' '' "$(grep -E '/(\.git|\.ci|debian)' "$work/names")"
    is 'nothing that was built is in it' '' "$(grep -E '/build/|\.(o|so|pyc)$' "$work/names" | grep -v /tests/)"
    mkdir "$work/unpacked"
    tar xf "$tarball" -C "$work/unpacked"
    cd "$work/unpacked/aoticache-$version" || exit 1
    holds 'files have the time that was given' [ "$(stat -c %Y Makefile)" = 1700000000 ]
    try 'what was unpacked is packed again, without git' 0 scripts/packaging/dist "$work/two"
    cd "$OLDPWD" || exit 1
    is 'with the same bytes' "$(sha256sum <"$tarball")" "$(sha256sum <"$work/two/aoticache-$version.tar.xz")"
    missing=
    for file in Makefile LICENSE pyproject.toml scripts/install-files scripts/packaging/dist tests/cli/lib.sh docs/man/aoticache.3; do
        [ -f "$work/unpacked/aoticache-$version/$file" ] || missing="$missing $file"
    done
    is 'what is needed is there' '' "$missing"
    # Checks without building that it can be built: make finds every file that a rule needs.
    try 'make finds all its sources' 0 make -C "$work/unpacked/aoticache-$version" -s -n BUILD="$work/unpacked/build" all tests
fi

# ---- the Python package with a library of the system ----

if python3 -c 'import tomllib' 2>/dev/null; then
    try 'the Python package is put into a directory' 0 python3 scripts/packaging/install-python "$work/packages"
    run env PYTHONPATH="$work/packages" AOTICACHE_LIBRARY="$BUILD/lib/libaoticache.so.0" "$interpreter" -I -c "
import sys; sys.path.insert(0, '$work/packages')
import importlib.metadata as metadata, aoticache
print(aoticache.__file__, metadata.version('aoticache'))
print([entry.value for entry in metadata.entry_points(group='torch.backends') if entry.name == 'aoticache'])"
    prints 'it is imported from there, with its version' "^$work/packages/aoticache/__init__.py $version\$"
    prints 'PyTorch finds its entry point' "^\['aoticache_autoload:autoload'\]\$"
else
    skip 'the Python package' 'this Python is older than 3.11'
fi

# ---- packages of Debian ----

# The packages that building needs are checked first. A stand-in for dpkg reports the missing ones.
mkdir -p "$work/dpkg"
stand_in() { # NAME: a program with these lines
    { echo '#!/bin/sh' && cat; } >"$work/dpkg/$1" && chmod +x "$work/dpkg/$1"
}
stand_in dpkg-buildpackage <<<'echo built; exit 1'
stand_in dpkg-checkbuilddeps <<'SCRIPT'
echo 'dpkg-checkbuilddeps: error: Unmet build dependencies: debhelper-compat (= 13) dh-python pkgconf | pkg-config (>= 2) python3:native' >&2
exit 1
SCRIPT
try 'missing packages are named before anything is made' 1 env PATH="$work/dpkg:$PATH" scripts/packaging/deb "$work/packages.deb"
is 'in one line for apt-get' \
    'deb: packages that building needs are missing: apt-get install --no-install-recommends debhelper dh-python pkgconf python3' "$(cat "$err")"
prints_nothing 'nothing is built'
holds 'nothing is made' [ ! -e "$work/packages.deb" ]
stand_in dpkg-checkbuilddeps <<<'echo "dpkg-checkbuilddeps: error: cannot read debian/control" >&2; exit 1'
try 'another error of dpkg' 1 env PATH="$work/dpkg:$PATH" scripts/packaging/deb "$work/packages.deb"
says 'is passed on' 'cannot read debian/control'
if command -v dpkg-checkbuilddeps >/dev/null && ! dpkg-checkbuilddeps debian/control 2>"$err"; then
    try 'the real one' 1 scripts/packaging/deb "$work/packages.deb"
    says 'names packages alone' '^deb: packages that building needs are missing: apt-get install --no-install-recommends( [a-z0-9.+-]+)+$'
else
    skip 'the real dpkg-checkbuilddeps' 'there is none here, or nothing is missing'
fi

# ---- the components ----

if is_instrumented; then
    skip 'what it is made of' 'this build is instrumented'
else
    try 'what it is made of is written' 0 env BUILD="$BUILD" scripts/packaging/sbom "$work/sbom"
    for kind in cdx:components spdx:packages; do
        file=$work/sbom/aoticache-$version.${kind%:*}.json
        names=$(python3 -c 'import json, sys; print(" ".join(p["name"] for p in json.load(open(sys.argv[1]))[sys.argv[2]]))' "$file" "${kind#*:}")
        for name in SQLite Jansson OpenSSL xxHash pocketfft; do
            holds "${kind%:*} has $name" grep -qw "$name" <<<"$names"
        done
    done
    cp -r "$work/sbom" "$work/sbom.first"
    BUILD="$BUILD" scripts/packaging/sbom "$work/sbom" >/dev/null
    holds 'twice the same' diff -r "$work/sbom" "$work/sbom.first"
    for licence in jansson openssl pocketfft sqlite xxhash; do
        holds "there is a licence text of $licence" [ -s "scripts/packaging/licenses/$licence.txt" ]
    done
fi
finish
