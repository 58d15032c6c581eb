#!/usr/bin/env bash
# `make install` and `make uninstall` update the dynamic linker's cache, or say that this must be
# done.
. tests/cli/lib.sh

if is_instrumented; then
    skip 'the linker knows what was installed' 'this build is instrumented, and programs that are not cannot be linked with it'
    finish
fi

# A stand-in for ldconfig, which searches one directory and records that it was called to change
# something.
prefix=$work/prefix
mkdir "$work/stand-in"
cat >"$work/stand-in/ldconfig" <<'SCRIPT'
#!/bin/sh
[ $# = 0 ] || { printf '%s: (from a file)\n\tlibx.so.1 -> libx.so.1.0\n' "$SEARCHED" && exit 0; }
echo called >>"$CALLS"
exit "${LDCONFIG_FAILS:-0}"
SCRIPT
chmod 755 "$work" "$work/stand-in" "$work/stand-in/ldconfig"
export PATH=$work/stand-in:$PATH CALLS=$work/calls SEARCHED=$prefix/lib
calls() { wc -l <"$CALLS"; }
: >"$CALLS"

try 'a directory that the linker looks in' 0 install_to '' "$prefix"
if [ "$(id -u)" = 0 ]; then
    is 'root: ldconfig runs' 1 "$(calls)"
    prints_not 'root: and nothing more is said' 'ldconfig|linker'
    try 'root: and again' 0 uninstall_from '' "$prefix"
    is 'when it is taken back' 2 "$(calls)"
    LDCONFIG_FAILS=1 try 'root: ldconfig fails' 1 scripts/update-linker-cache "$prefix/lib"
    says 'which is an error' 'ldconfig failed; run it as root'
    cp scripts/update-linker-cache "$work/stand-in"
    : >"$CALLS"
    try 'another user' 0 setpriv --reuid 10003 --regid 10003 --clear-groups -- "$work/stand-in/update-linker-cache" "$prefix/lib"
    prints 'is told in one line' "^run 'ldconfig' as root: until then the dynamic linker knows the libraries of $prefix/lib"
    is 'nothing is run' 0 "$(calls)"
else
    prints 'another user is told in one line' "^run 'ldconfig' as root: until then"
    is 'nothing is run' 0 "$(calls)"
fi
: >"$CALLS"
ln -s "$work/prefix" "$work/other-name"
SEARCHED=$work/other-name/lib
mkdir -p "$prefix/lib"
run scripts/update-linker-cache "$prefix/lib"
prints_not 'a directory by another of its names is found' 'does not look'
SEARCHED=/usr/lib
: >"$CALLS"
try 'a directory that it does not look in' 0 install_to '' "$prefix"
prints 'is said, with what to do' "^the dynamic linker does not look in $prefix/lib: link programs with -Wl,-rpath,$prefix/lib"
try 'below DESTDIR' 0 install_to "$work/staged" /usr
prints 'it is needed where that is unpacked' "^run 'ldconfig' as root where this is unpacked"
try 'taken back from there' 0 uninstall_from "$work/staged" /usr
prints_not 'without a word on it' 'ldconfig'
try 'taken back from a directory that it does not look in' 0 uninstall_from '' "$prefix"
prints_not 'likewise' 'linker'
is 'neither runs it' 0 "$(calls)"
PATH=${PATH#*:}

# With the real one, in a mount namespace in which /usr/local and /etc are copies.
inside() { # COMMAND
    unshare -m bash -c 'mount --bind "$0/local" /usr/local && mount --bind "$0/etc" /etc && mount --bind "$0/ldconfig" /var/cache/ldconfig &&
        '"$1" "$work"
}
mkdir -p "$work/local/lib" "$work/etc" "$work/ldconfig"
cp -r /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/passwd /etc/group /etc/alternatives "$work/etc/" 2>/dev/null
if [ "$(id -u)" != 0 ] || ! inside true 2>/dev/null || ! inside 'ldconfig -v -N -X 2>/dev/null | grep -q ^/usr/local/lib:' || ! command -v gcc >/dev/null; then
    skip 'a program starts after make install' 'it needs root, a name space for mounts, and /usr/local/lib in /etc/ld.so.conf'
    finish
fi
example README.md c >"$work/example.c"
cat >"$work/try-it" <<SCRIPT
set -e
BUILD=$BUILD DESTDIR= libdir=/usr/local/lib bindir=/usr/local/bin includedir=/usr/local/include datadir=/usr/local/share \
    mandir=/usr/local/share/man unitdir=/usr/local/lib/systemd manifest=/usr/local/share/aoticache/installed-files scripts/install-files
/usr/bin/gcc $work/example.c -I/usr/local/include/aoticache -L/usr/local/lib -laoticache -o $work/program
env -u AOTICACHE_HOME AOTICACHE_DIR=$work/cache $work/program
DESTDIR= manifest=/usr/local/share/aoticache/installed-files scripts/uninstall-files
! ldconfig -p | grep libaoticache
SCRIPT
try 'make install, a program, make uninstall' 0 inside "bash $work/try-it"
prints 'the program starts without ldconfig' '^1 3 5$'
holds 'the machine itself is as it was' [ ! -e /usr/local/share/aoticache/installed-files ]
finish
