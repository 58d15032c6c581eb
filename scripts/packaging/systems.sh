# Functions that the tests of packages share: fresh systems in directories, made by debootstrap. Bash scripts that set
# $release source it from the repository root; it sets WORK and MIRROR (check-deb describes them).
for program in debootstrap unshare; do
    command -v $program >/dev/null || { echo "${0##*/}: there is no $program" >&2; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "${0##*/}: only root can make a system in a directory" >&2; exit 77; }
WORK=$(realpath -m "${WORK:-/tmp/aoticache-systems}")
# shellcheck disable=SC2016 # apt-get's own variable
MIRROR=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' | head -n 1)}
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL BUILD
mkdir -p "$WORK"

failed=0
ok() { echo "ok - $1"; }
not_ok() { echo "not ok - $1${2:+: $2}"; failed=1; }
try() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$WORK/log" 2>&1; then ok "$name"; else not_ok "$name" "$(tail -n 15 "$WORK/log")"; fi
}

# inside SYSTEM COMMAND: runs it in a shell there. All mounts end with the process.
inside() {
    unshare --mount --pid --fork --kill-child bash -c '
        mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$1" /bin/bash -ec "cd /root; $2"' sh "$@"
}

# base_system makes the base system of $release once, and keeps it. fresh NAME makes a copy of it in $WORK/NAME.
base_system() {
    [ ! -f "$WORK/base-$release.made" ] || return 0
    rm -rf --one-file-system "$WORK/base-$release"
    debootstrap --variant=minbase "$release" "$WORK/base-$release" "$MIRROR" >"$WORK/log" 2>&1 ||
        { tail "$WORK/log" >&2; exit 1; }
    touch "$WORK/base-$release.made"
}
fresh() {
    rm -rf --one-file-system "${WORK:?}/$1"
    cp -a "$WORK/base-$release" "$WORK/$1"
    echo '127.0.0.1 localhost' >"$WORK/$1/etc/hosts" # an installed system has this line
}
