# Functions that the tests of the command-line tools share. Bash scripts source it from the repository root.
#
# BUILD says where the build is (default build). Every script gets its own directory ($work), a cache in it ($AOTICACHE_DIR, not
# created), a home and a TMPDIR in it; all of it is removed at the end. The script fails if the tools have left files in that
# home or TMPDIR. A script prints "ok - name", "not ok - name" or "skip - name: reason" for each check and ends with 0, 1, or 77
# if all were skipped.
#
# A script that starts tools as other users sets other_users=1 before it sources this: then $work is in a directory that they
# can enter.
set -u
BUILD=$(cd "${BUILD:-build}" && pwd) || exit 1
VENV=${VENV:-build/venv}
case $VENV in /*) ;; *) VENV=$PWD/$VENV ;; esac
[ -x "$BUILD/bin/aoticache" ] || { echo "not ok - $BUILD/bin/aoticache is not built" && exit 1; }
place=${TMPDIR:-/tmp}
[ -z "${other_users:-}" ] || setpriv --reuid 65534 --clear-groups test -x "$place" 2>/dev/null || place=/tmp
work=$(mktemp -d "$place/aoticache-cli.XXXXXX") || exit 1
chmod 700 "$work"
passed=0 failed=0 skipped=0
out=$work/out err=$work/err status=0

unset NO_COLOR XDG_CACHE_HOME AOTICACHE_HOME AOTICACHE_PYTHON AOTICACHE_CC CLICOLOR
export AOTICACHE_CONFIG= AOTICACHE_KEYS=$work/keys AOTICACHE_DIR=$work/cache TERM=dumb PATH=$BUILD/bin:$PATH LC_ALL=C
export HOME=$work/.home TMPDIR=$work/.tmp
mkdir -m 700 "$HOME" "$TMPDIR"
# Files that PyTorch's compiler makes once for all processes stay in the build. It keeps precompiled headers below TMPDIR, those
# of a worker in a separate directory: links lead to the build.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$BUILD/inductor-cache}
for name in "aoticache-worker-$(id -u)" "torchinductor_${LOGNAME:-${USER:-$(id -un)}}"; do
    mkdir -m 700 -p "$BUILD/inductor-cache" "$BUILD/inductor-cache/tmp" "$BUILD/inductor-cache/tmp/$name" 2>/dev/null &&
        ln -s "$BUILD/inductor-cache/tmp/$name" "$TMPDIR/$name"
done
umask 022

# `python3` may be a script that looks up the interpreter each time (pyenv), and tests start it hundreds of times.
interpreter=$(python3 -c 'import sys; print(sys.executable)') || exit 1
python3() { "$interpreter" "$@"; }

cleanup() {
    chmod -R u+rwX "$work" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
# bash calls this in a separate process. Without it a mistyped check would check nothing.
command_not_found_handle() { echo "$1" >>"$work/not-found" && echo "$1: command not found" >&2 && return 127; }
trap 'exit 130' INT TERM

ok() { passed=$((passed + 1)) && echo "ok - $1"; }
skip() { skipped=$((skipped + 1)) && echo "skip - $1: $2"; }
not_ok() { # NAME WHY
    failed=$((failed + 1))
    echo "not ok - $1"
    { echo "# $2" && echo "# status $status; standard output:" && head -c 2000 "$out" && echo "# standard error:" && head -c 2000 "$err"; } >&2
}

# run COMMAND...: runs it; puts its status into $status and its output into the files $out and $err.
run() {
    "$@" >"$out" 2>"$err" </dev/null
    status=$?
}

# try NAME STATUS COMMAND...: runs it and compares the status. Returns 0 if they are equal.
try() {
    local name=$1 expected=$2
    shift 2
    run "$@"
    if [ "$status" = "$expected" ]; then ok "$name"; else not_ok "$name" "expected status $expected: $*"; return 1; fi
}

# prints NAME PATTERN: checks that the last command's output has a matching line (extended regular expression). says: its
# errors.
prints() { if grep -Eq -- "$2" "$out"; then ok "$1"; else not_ok "$1" "no line in the output matches: $2"; fi; }
says() { if grep -Eq -- "$2" "$err"; then ok "$1"; else not_ok "$1" "no line on standard error matches: $2"; fi; }
prints_not() { if grep -Eq -- "$2" "$out"; then not_ok "$1" "a line in the output matches: $2"; else ok "$1"; fi; }
says_nothing() { if [ -s "$err" ]; then not_ok "$1" "standard error is not empty"; else ok "$1"; fi; }
prints_nothing() { if [ -s "$out" ]; then not_ok "$1" "standard output is not empty"; else ok "$1"; fi; }

# field PATH [FILE]: prints a member of the JSON in FILE (default the last output), by a dotted path: outputs.0.sizes
field() {
    python3 - "$1" "${2:-$out}" <<'PYTHON'
import json, sys
value = json.load(open(sys.argv[2]))
for part in filter(None, sys.argv[1].split(".")):
    value = value[int(part)] if isinstance(value, list) else value[part]
print(value if isinstance(value, str) else json.dumps(value))
PYTHON
}
# is NAME EXPECTED ACTUAL
is() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected '$2', got '$3'"; fi; }
# member NAME PATH EXPECTED: compares a member of the last output
member() { is "$1" "$3" "$(field "$2" 2>&1 | tail -n 1)"; }
holds() { # NAME COMMAND...
    local name=$1
    shift
    if "$@"; then ok "$name"; else not_ok "$name" "false: $*"; fi
}

# without_capabilities COMMAND...: root is then subject to the permissions of its own files, as any owner is.
without_capabilities() { if [ "$(id -u)" = 0 ]; then setpriv --inh-caps=-all --bounding-set=-all "$@"; else "$@"; fi; }

finish() {
    local left
    left=$(cd "$work" && find .home .tmp -mindepth 1 ! -lname "$BUILD/inductor-cache/*" | head -n 20)
    [ -z "$left" ] || not_ok 'nothing is left in the home or TMPDIR' "$left"
    [ ! -e "$work/not-found" ] || not_ok 'each command of this script is there' "not found: $(sort -u "$work/not-found")"
    echo "# $passed passed, $failed failed, $skipped skipped" >&2
    [ "$failed" -eq 0 ] || exit 1
    [ "$passed" -gt 0 ] || exit 77
    exit 0
}

# ---- functions that several scripts need ----

# on_terminal TERM COMMAND: runs it with a pseudo-terminal for its output. has_terminal: whether one is available.
on_terminal() { TERM=$1 script -qec "$2" /dev/null </dev/null; }
has_terminal() { on_terminal dumb true >/dev/null 2>&1; }
no_terminal='there is no script(1), or no pseudo-terminal for it'

# kernel DIRECTORY NAME <source: adds a source to a directory of kernels; each source is the library itself, or an error
kernel() { mkdir -p "$1" && cat >"$1/$2"; }

# install_to DESTDIR PREFIX, uninstall_from DESTDIR PREFIX: do what `make install` and `make uninstall` do with the tested
# build, without building anything: make would recompile the files that contain the prefix, and without the sanitizers.
install_to() {
    env BUILD="$BUILD" DESTDIR="$1" libdir="$2/lib" bindir="$2/bin" includedir="$2/include" datadir="$2/share" \
        mandir="$2/share/man" unitdir="$2/lib/systemd" manifest="$1$2/share/aoticache/installed-files" scripts/install-files
}
# Whether this is `make test`, which is to take ten minutes: what compiles much is left to `make test-all`.
is_quick() { [ "${TEST_QUICK:-}" ]; }
# Whether the build needs a sanitizer's runtime, which other programs (Python, or programs that get LD_PRELOAD) do not have.
is_instrumented() { nm -D "$BUILD/lib/libaoticache.so.0" | grep -qE ' __(asan|tsan)_init'; }

# install_for_examples WHAT: installs to $stage, as a user has it, for examples of documents; pkg-config finds it. Ends the
# script with a skip if that is impossible.
install_for_examples() {
    if is_instrumented; then
        skip "$1" 'this build is instrumented, a program that is not cannot link it'
        finish
    fi
    stage=$work/stage
    sed -e "s|^prefix=.*|prefix=$stage|" -e "s|^\(pkg\)*libdir=.*|\1libdir=$stage/lib|" -e "s|^includedir=.*|includedir=$stage/include|" \
        "$BUILD/aoticache.pc" >"$work/aoticache.pc"
    export PKG_CONFIG_PATH=$work
    try 'installed' 0 install_to '' "$stage"
}
# example DOCUMENT NAME: prints the block of a document that follows <!-- example: NAME -->
example() {
    awk -v mark="<!-- example: $2 -->" '/^```/ { if (on) exit; if (marked) { on = 1; next } } on
        NF { marked = $0 == mark }' "$1"
}
# plays NAME <block: runs a session as printed. The commands after "$ " must print the lines below; "..." stands for any lines.
plays() {
    local name=$1 session=$work/session differences
    cat >"$session"
    differences=$(python3 - "$session" 2>&1 <<'PYTHON'
import fnmatch, subprocess, sys
for step in ("\n" + open(sys.argv[1], encoding="utf-8").read()).split("\n$ ")[1:]:
    command, _, expected = step.partition("\n")
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pattern = "".join("*" if line == "..." else "".join(f"[{c}]" if c in "*?[" else c for c in line) + "\n"
                      for line in expected.splitlines())
    if expected.strip() and not fnmatch.fnmatchcase(done.stdout, pattern):
        print(f"$ {command}\n{done.stdout}")
    elif not expected.strip() and done.returncode != 0:
        print(f"$ {command}\n{done.stdout}exit status {done.returncode}")
PYTHON
    )
    is "$name" '' "$differences"
}
# compile_example SOURCE PROGRAM: compiles as a user does, without warnings
compile_example() {
    # shellcheck disable=SC2046 # several words
    try 'it compiles as printed, without warnings' 0 cc -Wall -Wextra -Werror "$1" $(pkg-config --cflags --libs aoticache) \
        -Wl,-rpath,"$stage/lib" -o "$2"
}
uninstall_from() { env DESTDIR="$1" manifest="$1$2/share/aoticache/installed-files" scripts/uninstall-files; }

# object_path DIGEST: prints where it is stored
object_path() { echo "$AOTICACHE_DIR/objects/${1:0:2}/${1:2}"; }

# damage FILE: flips one bit, as a disk would
damage() {
    chmod u+w "$1"
    python3 - "$1" <<'PYTHON'
import os, sys
with open(sys.argv[1], "r+b") as file:
    file.seek(os.path.getsize(sys.argv[1]) // 2)
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
PYTHON
    chmod 444 "$1"
}
