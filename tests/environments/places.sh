#!/usr/bin/env bash
# Tests a cache in unusual environments: on file systems that are full, failing, unusual or unmounted while in use, and in
# processes that have low limits, are stopped, are many, or have a clock that jumps. In each, eight processes put, look up,
# compile, remove, collect and verify for some seconds, and some are killed (tests/environments/place_work.c). Then the
# environment is restored. All entries that were reported as stored must be there with their bytes, `aoticache verify` must find
# nothing wrong, and all operations must work.
#
# usage: bash tests/environments/places.sh [PLACE...]   only those; all without a name
#        bash tests/environments/places.sh --list
#
# PLACE_SECONDS: how long each work takes, 10 by default; 1 leaves out some ways to fail. SHOW=1: prints each kind of failure,
# too. Mounts and their loop devices end with the script: it has its own mount namespace. An environment that this kernel, machine
# or user cannot provide is skipped with the reason.
if [ "${1:-}" != --list ] && [ -z "${AOTICACHE_TEST_NAMESPACE:-}" ]; then
    for way in -m -Urm; do
        # shellcheck disable=SC2016 # for the inner shell
        unshare $way sh -c 'mount -t tmpfs -o size=1m tmpfs /mnt' >/dev/null 2>&1 || continue
        # shellcheck disable=SC2093 # the next way, if this one fails
        exec env AOTICACHE_TEST_NAMESPACE=1 unshare $way bash "$0" "$@"
    done
    echo 'skip - odd places: nothing can be mounted here (it takes root, or user namespaces)'
    exit 77
fi
other_users=1
. tests/cli/lib.sh
seconds=${PLACE_SECONDS:-10}
PATH=$PATH:/usr/sbin:/sbin
programs=$BUILD/tests/environments
mounts=()
with=() # precedes the command in works
mkdir -m 1777 "$work/temporary"
export TMPDIR=$work/temporary # files that killed processes leave are removed with the script

leave() {
    jobs -p | xargs -r kill -KILL 2>/dev/null
    wait 2>/dev/null
    for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do umount -l "${mounts[i]}" 2>/dev/null; done
    cleanup
}
trap leave EXIT

# ---- functions that the environments share ----

# mounts NAME MOUNT-ARGUMENT...: mounts at $place, a new directory; if that fails, skips NAME with the reason. is_mounted: only
# mounts.
is_mounted() { # NAME MOUNT-ARGUMENT...
    place=$work/$1
    mkdir -p "$place" && mount "${@:2}" "$place" 2>"$err" || return 1
    mounts+=("$place")
    chmod 700 "$place" 2>/dev/null || true
}
mounts() {
    is_mounted "$@" && return
    skip "$1" "cannot be mounted here: $(tail -n 1 "$err" | sed "s|$work/||g")"
    return 1
}
# disk NAME SIZE MAKER ARGUMENT...: makes a file $image of that size with a file system; skips NAME if that is impossible.
disk() {
    image=$work/$1.image
    command -v "$3" >/dev/null || { skip "$1" "there is no $3"; return 1; }
    [ -e /dev/loop-control ] || { skip "$1" 'there are no loop devices'; return 1; }
    truncate -s "$2" "$image" && "${@:3}" "$image" >"$out" 2>"$err" || { skip "$1" "$3 fails: $(tail -n 1 "$err")"; return 1; }
}
unmount() { # unmounts $place; a killed process may keep it busy for a moment longer
    for _ in $(seq 100); do
        umount "$place" 2>"$err" && return
        sleep 0.1
    done
    not_ok "$name" "the place cannot be unmounted: $(cat "$err")"
    return 1
}

# works WHAT [place_work's options]: runs eight processes in $place, for $seconds.
works() {
    local what=$1
    run "${with[@]}" timeout $((seconds + 120)) "$programs/place_work" "$work/$name.state" work "$place/cache" "$seconds" "${@:2}"
    grep '^#' "$out" | sed "s/^# /# $name: /"
    holds "$name: $what" [ "$status" = 0 ]
    if [ "$status" != 0 ]; then grep -v '^log' "$out" | head -n 20 | sed 's/^/#   /'; fi
    cp "$out" "$work/$name.work"
    [ -z "${SHOW:-}" ] || cut -c 1-250 "$out"
}
# fails_with WHAT PATTERN: checks that something failed in that work, and each failure's line matches the pattern.
fails_with() {
    if [ "$seconds" -le 1 ] && ! grep -q '^failure' "$work/$name.work"; then
        skip "$name: $1: something fails" 'a second was not enough to come to its limit'
    else
        holds "$name: $1: something fails" grep -q '^failure' "$work/$name.work"
    fi
    is "$name: $1: each message says so" '' "$(grep '^failure' "$work/$name.work" | grep -vE -- "$2" | cut -c 1-300 | head -n 5)"
}
fails_with_nothing() { is "$name: nothing fails" '' "$(grep '^failure' "$work/$name.work" | grep -v LOCKED | cut -c 1-300 | head -n 5)"; }
# is_well WHAT [place_work's options]: checks that all entries are there, and all operations work.
is_well() {
    [ -z "${REPAIR_FIRST:-}" ] || AOTICACHE_DIR=$place/cache aoticache verify --repair >/dev/null 2>&1
    run timeout 300 "$programs/place_work" "$work/$name.state" check "$place/cache" "${@:2}"
    grep '^#.*reported' "$out" | sed "s/^# /# $name: /"
    holds "$name: $1: all is there and works" [ "$status" = 0 ]
    if [ "$status" != 0 ]; then sed 's/^/#   /' "$out" | head -n 20; fi
    AOTICACHE_DIR=$place/cache aoticache verify --repair >/dev/null 2>&1 # stores manifests of killed processes
    try "$name: $1: verify" 0 env AOTICACHE_DIR="$place/cache" aoticache verify
}
# is_readable WHAT CACHE STATE [options]: checks that all entries in STATE are there.
is_readable() {
    run timeout 300 "$programs/place_work" "$3" read "$2" "${@:4}"
    grep '^#.*reported' "$out" | sed "s/^# /# $name: $1: /"
    holds "$name: $1: all is there" [ "$status" = 0 ]
    if [ "$status" != 0 ]; then sed 's/^/#   /' "$out" | head -n 20; fi
}
# is_undamaged WHAT CACHE: checks without repairing. A killed process may leave a kernel that is not yet in the index.
is_undamaged() {
    run env AOTICACHE_DIR="$2" aoticache verify
    prints "$name: $1: nothing is damaged" 'all is well$|: 0 damaged, 0 missing, 0 foreign, [0-9]+ not in the index$'
}
no_space='No space left on device|disk is full|there is no space'

# ---- local file systems, as they are ----

plain() {
    works 'work' kill=1
    fails_with_nothing
    is_well 'afterwards'
}
place_ext4() { disk ext4 256M mkfs.ext4 -q -F && mounts ext4 -o loop "$image" && plain && unmount; }
place_xfs() { disk xfs 400M mkfs.xfs -q -f && mounts xfs -o loop "$image" && plain && unmount; }
place_btrfs() { disk btrfs 400M mkfs.btrfs -q -f && mounts btrfs -o loop "$image" && plain && unmount; }

# ---- power: the file system is shut down while it is in use, as if the disk were removed ----

shut_down() { # FS_IOC_SHUTDOWN, without writing cached data, not even the log
    python3 - "$place" <<'PYTHON'
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))
PYTHON
}
pulled_away() { # MOUNT-ARGUMENT...
    local rounds=0 delay=$((seconds > 4 ? 1 : 0)).5
    : >"$work/$name.work"
    while [ $rounds -lt $((seconds > 4 ? seconds : 2)) ]; do
        timeout $((seconds + 120)) "$programs/place_work" "$work/$name.state" work "$place/cache" $((${delay%.*} + 2)) >"$work/round" 2>&1 &
        sleep "${delay%.*}.$((RANDOM % 900 + 99))"
        shut_down || { skip "$name" 'it cannot be shut down'; wait; return 1; }
        wait $!
        is "$name: power cut $((rounds + 1)): processes go on" 0 $?
        grep '^#.*stored' "$work/round" | sed "s/^# /# $name: /"
        cat "$work/round" >>"$work/$name.work"
        unmount && mount "$@" "$place" || { not_ok "$name: the file system comes back" "$(cat "$err")"; return 1; }
        is_readable "after power cut $((rounds + 1))" "$place/cache" "$work/$name.state"
        rounds=$((rounds + 1))
    done
    fails_with 'shut down' 'Input/output error|disk I/O error|Read-only file system|open for reading only|malformed|log cannot be opened for writing|could not be read'
    is_well "after $rounds power cuts" quarantine=1
}
place_ext4_power() { disk ext4_power 256M mkfs.ext4 -q -F && mounts ext4_power -o loop "$image" && pulled_away -o loop "$image" && unmount; }
place_xfs_power() { disk xfs_power 400M mkfs.xfs -q -f && mounts xfs_power -o loop "$image" && pulled_away -o loop "$image" && unmount; }

# ---- full, quota, read-only ----

full_of() { # WHAT COMMAND...: work on the full file system, then the command that frees space
    works "full of $1" kill=1
    fails_with "full of $1" "$no_space|Disk quota exceeded|open for reading only|readonly database"
    holds "$name: room again" "${@:2}"
    is_well 'with room'
}
place_inodes() {
    mounts inodes -t tmpfs -o size=64m,nr_inodes=250 tmpfs || return 0
    full_of inodes mount -o remount,nr_inodes=100k "$place"
}
place_blocks() {
    mounts blocks -t tmpfs -o size=3m tmpfs || return 0
    full_of blocks mount -o remount,size=300m "$place"
}
ballast() { # KIB: fills the disk except for that
    dd if=/dev/zero of="$place/ballast" bs=64k >/dev/null 2>&1
    truncate -s "-$1K" "$place/ballast" 2>/dev/null
    true
}
place_ext4_blocks() {
    disk ext4_blocks 64M mkfs.ext4 -q -F && mounts ext4_blocks -o loop "$image" || return 0
    ballast 2000
    full_of blocks rm "$place/ballast"
    unmount
}
place_ext4_inodes() {
    disk ext4_inodes 64M mkfs.ext4 -q -F -N 1200 && mounts ext4_inodes -o loop "$image" || return 0
    mkdir "$place/ballast"
    (cd "$place/ballast" && for i in $(seq 700); do : >"$i"; done) 2>/dev/null
    full_of inodes rm -r "$place/ballast"
    unmount
}
place_btrfs_blocks() {
    disk btrfs_blocks 128M mkfs.btrfs -q -f --mixed && mounts btrfs_blocks -o loop "$image" || return 0
    seconds=1 works 'filling'
    ballast 500
    full_of blocks rm "$place/ballast"
    unmount
}
place_btrfs_quota() {
    disk btrfs_quota 400M mkfs.btrfs -q -f && mounts btrfs_quota -o loop "$image" || return 0
    if ! { btrfs quota enable "$place" && btrfs subvolume create "$place/sub" && btrfs qgroup limit 4M "$place/sub"; } >"$out" 2>"$err"; then
        skip btrfs_quota "no quota: $(tail -n 1 "$err")"
        return 0
    fi
    chmod 700 "$place/sub"
    local disk=$place
    place=$disk/sub
    full_of quota btrfs qgroup limit none "0/$(btrfs subvolume list "$disk" | awk '{ print $2 }')" "$disk"
    place=$disk
    unmount
}
place_ext4_quota() { # quotas do not apply to root: another user
    disk ext4_quota 128M mkfs.ext4 -q -F -O quota && mounts ext4_quota -o loop,usrquota "$image" || return 0
    local uid=54321 own=$programs
    if ! setquota -u $uid 0 3000 0 0 "$place" 2>"$err"; then
        skip ext4_quota "no quota: $(tail -n 1 "$err")"
        return 0
    fi
    chmod 755 "$work"
    cp "$own/place_work" "$work/place_work" && chmod 755 "$work/place_work"
    : >"$work/$name.state" && mkdir "$work/$name.state.sources"
    chown -R $uid "$place" "$work/$name.state"*
    with=(setpriv --reuid $uid --clear-groups --) programs=$work
    works 'quota' kill=1
    with=() programs=$own
    fails_with 'quota' "$no_space|Disk quota exceeded|open for reading only|readonly database"
    chown -R 0 "$place"
    is_well 'with room'
    unmount
}
# The kernel makes it read-only while it is in use, as on a failing disk. An administrator cannot: files are open for writing.
# ext4 of Linux 6.18 may then report success for an fsync whose journal transaction it abandons (66 of 360 files of a program that
# only appends and syncs). So what must be there afterwards is what was stored before that moment.
place_read_only() {
    disk read_only 256M mkfs.ext4 -q -F && mounts read_only -o loop,errors=remount-ro "$image" || return 0
    local trigger
    trigger=/sys/fs/ext4/$(basename "$(findmnt -no SOURCE "$place")")/trigger_fs_error
    [ -w "$trigger" ] || { skip read_only 'ext4 has no trigger_fs_error here'; unmount; return 0; }
    timeout $((seconds + 120)) "$programs/place_work" "$work/$name.state" work "$place/cache" $((seconds + 1)) wait=30 kill=1 >"$work/$name.work" 2>&1 &
    sleep $(((seconds + 1) / 2)).5
    cp "$work/$name.state" "$work/$name.before"
    echo 'a trial' >"$trigger"
    is 'read_only: the kernel makes it so' ro "$(findmnt -no OPTIONS "$place" | grep -oE 'ro,|ro$|emergency_ro' | head -n 1 | tr -d , | sed 's/emergency_ro/ro/')"
    AOTICACHE_DIR=$place/cache run aoticache ls
    holds 'read_only: ls' [ "$status" = 0 ]
    AOTICACHE_DIR=$place/cache run aoticache rm --all --yes
    holds 'read_only: rm is refused' [ "$status" != 0 ]
    says 'read_only: and why' 'Read-only file system|open for reading only|Input/output error'
    wait $!
    is 'read_only: processes go on' 0 $?
    grep '^#' "$work/$name.work" | sed "s/^# /# $name: /"
    fails_with 'read-only' 'Read-only file system|open for reading only|readonly database|log cannot be opened for writing|Input/output error'
    is_readable 'read-only' "$place/cache" "$work/$name.state"
    if unmount && mount -o loop "$image" "$place"; then
        cp "$work/$name.before" "$work/$name.state"
        is_well 'writable again'
        unmount
    fi
}
place_image() { # an image that is not written to again
    disk image 128M mkfs.ext4 -q -F && mounts image -o loop "$image" || return 0
    seconds=1 works 'filling'
    unmount && mount -o loop,ro "$image" "$place" || return 0
    is_readable 'a read-only image' "$place/cache" "$work/$name.state"
    AOTICACHE_DIR=$place/cache try 'image: verify' 0 aoticache verify
    unmount
}

# ---- copies that a file system makes: overlayfs, snapshots ----

place_overlay() {
    mounts overlay_disk -t tmpfs -o size=256m tmpfs || return 0
    local disk=$place
    mkdir -m 700 "$disk/lower" "$disk/upper" "$disk/work" "$disk/none"
    place=$disk/lower
    seconds=2 works 'filling the lower layer' kill=1
    mounts overlay -t overlay -o "lowerdir=$disk/lower,upperdir=$disk/upper,workdir=$disk/work" overlay || return 0
    chmod 700 "$place"
    is_readable 'the lower layer through an upper one' "$place/cache" "$work/$name.state"
    works 'work in the upper layer' kill=1
    fails_with_nothing
    # Copying a file up breaks its hard links.
    AOTICACHE_DIR=$place/cache try 'overlay: repair' 0 aoticache verify --repair
    is_well 'afterwards'
    mounts overlay_ro -t overlay -o "lowerdir=$disk/lower:$disk/none" overlay || return 0
    cp "$work/$name.state" "$work/$name.lower" # entries that are stored later are not there
    is_readable 'only lower layers' "$place/cache" "$work/$name.lower" part=1
    is_undamaged 'only lower layers' "$place/cache"
    run env AOTICACHE_DIR="$place/cache" aoticache rm --all --yes
    holds 'overlay: only lower layers: rm is refused' [ "$status" = 1 ]
    says 'overlay: only lower layers: and why' 'Read-only file system|open for reading only'
}
place_snapshot() {
    disk snapshot 600M mkfs.btrfs -q -f && mounts snapshot -o loop "$image" || return 0
    local disk=$place taken=0 i
    btrfs subvolume create "$disk/sub" >/dev/null && chmod 700 "$disk/sub"
    place=$disk/sub
    timeout $((seconds + 120)) "$programs/place_work" "$work/$name.state" work "$place/cache" "$seconds" kill=1 >"$work/$name.work" 2>&1 &
    for i in $(seq $((seconds > 4 ? 6 : 3))); do
        sleep $((seconds > 4 ? seconds / 8 : 0)).4
        cp "$work/$name.state" "$work/$name.state$i"
        if [ $((i % 2)) = 0 ]; then btrfs subvolume snapshot -r "$place" "$disk/$i"; else btrfs subvolume snapshot "$place" "$disk/$i"; fi >/dev/null
        taken=$i
    done
    wait $!
    is 'snapshot: processes go on' 0 $?
    grep '^#' "$work/$name.work" | sed "s/^# /# $name: /"
    fails_with_nothing
    is_well 'the original'
    for i in $(seq $taken); do
        is_readable "snapshot $i" "$disk/$i/cache" "$work/$name.state$i"
        is_undamaged "$i" "$disk/$i/cache"
    done
    cp "$work/snapshot.state1" "$work/snapshot1.state"
    mkdir -p "$work/snapshot1.state.sources"
    place=$disk/1 name=snapshot1 is_well 'a snapshot that is used'
    place=$disk
    unmount
}

# ---- FUSE: a file system that fails on purpose ----

fails_on_purpose() { # SECONDS [direct_io]
    local back=$work/$name.back way
    [ -x "$programs/failing_fs" ] || { skip "$name" 'there was no libfuse3 to build failing_fs with'; return 0; }
    [ -w /dev/fuse ] || { skip "$name" 'there is no /dev/fuse'; return 0; }
    place=$work/$name
    mkdir -m 700 "$back" "$place"
    if ! "$programs/failing_fs" "$back" "$place" ${2:+"$2"} 2>"$err"; then
        skip "$name" "cannot be mounted here: $(tail -n 1 "$err")"
        return 0
    fi
    mounts+=("$place")
    works 'passed on' kill=1
    fails_with_nothing
    is_well 'passed on'
    local seconds=$1
    while IFS='|' read -r way pattern; do
        [ "$seconds" -gt 1 ] || [[ $way =~ ^ENOSPC ]] || continue
        echo "$way" >"$place/.control" || not_ok "$name: $way" 'cannot be set'
        works "$way" kill=1
        if [ -n "$pattern" ]; then fails_with "$way" "$pattern"; else fails_with_nothing; fi
        echo "# $name: $way: $(cat "$place/.control") calls failed"
        echo well >"$place/.control"
        is_well "after $way" quarantine=1
    done <<WAYS
EIO 7 all|Input/output error|disk I/O error|malformed|open for reading only|readonly database|unreadable|replaced the index again and again|cannot read|could not be read
EIO 3 changes|Input/output error|disk I/O error|malformed|open for reading only|readonly database|unreadable|could not be read
ENOSPC 3 changes|$no_space|database or disk is full|open for reading only|readonly database
EDQUOT 2 write,create,mkdir|Disk quota exceeded|disk I/O error|disk is full|open for reading only|readonly database
EROFS 1 changes|Read-only file system|open for reading only|readonly database
EINTR 5 all|Interrupted system call|File exists|disk I/O error|malformed|open for reading only|readonly database|replaced the index again and again|could not be read
short 2 read,write|
WAYS
    # A listing that fails is not one of an empty directory.
    echo 'EIO 1 list' >"$place/.control"
    run env AOTICACHE_DIR="$place/cache" aoticache verify
    holds "$name: verify that can list nothing does not say that all is well" [ "$status" = 1 -o "$status" = 6 ]
    says "$name: but what it could not list" 'cannot list.*: Input/output error'
    prints_not "$name: all is not well" 'all is well'
    echo well >"$place/.control"
    fusermount3 -u "$place" 2>/dev/null || umount "$place"
}
place_fuse() { fails_on_purpose $((seconds > 4 ? seconds / 2 : seconds)) ''; }
place_fuse_direct() { fails_on_purpose $((seconds > 4 ? seconds / 2 : seconds)) direct_io; }

# ---- NFS, by the kernel's server and client on one machine ----

place_nfs() {
    modprobe nfsd 2>/dev/null
    modprobe nfs 2>/dev/null
    modprobe nfsv4 2>/dev/null
    grep -qw nfs /proc/filesystems || { skip nfs 'this kernel has no NFS client'; return 0; }
    grep -qw nfsd /proc/filesystems || { skip nfs 'this kernel has no NFS server'; return 0; }
    command -v rpc.nfsd >/dev/null || { skip nfs 'there is no rpc.nfsd (nfs-kernel-server)'; return 0; }
    mounts nfs_disk -t ext4 -o loop "$(disk nfs_disk 256M mkfs.ext4 -q -F >/dev/null && echo "$work/nfs_disk.image")" || return 0
    local disk=$place
    mkdir -m 700 "$disk/export"
    mount -t nfsd nfsd /proc/fs/nfsd 2>/dev/null
    if ! { mkdir -p /var/lib/nfs/v4recovery && exportfs -o rw,no_root_squash,fsid=0,no_subtree_check "localhost:$disk/export" &&
        rpc.nfsd --grace-time 10 --lease-time 10 --no-nfs-version 3 2 && rpc.mountd --no-nfs-version 3; } >"$out" 2>"$err"; then
        skip nfs "the server does not start: $(tail -n 1 "$err")"
        return 0
    fi
    mounts nfs -t nfs4 -o vers=4.2 localhost:/ || return 0
    sleep 12 # the grace period of a server that has just started, for its earlier clients
    plain
    unmount
    rpc.nfsd 0
    exportfs -ua
}

# ---- machines: memory, processes and threads, limits, locks, clocks ----

place_cgroup() { # below the script's own group, by version 2
    local own group=
    own=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    grep -qw memory "$own/cgroup.controllers" 2>/dev/null || { skip cgroup 'version 2 has no memory controller here'; return 0; }
    group=$own/aoticache-places-$$
    if ! { mkdir "$group" && { [ -w "$group/memory.max" ] || { echo +memory >"$own/cgroup.subtree_control"; }; } && echo 7M >"$group/memory.max"; } 2>"$err"; then
        skip cgroup "no group can be made: $(tail -n 1 "$err")"
        rmdir "$group" 2>/dev/null
        return 0
    fi
    echo 0 >"$group/memory.swap.max" 2>/dev/null
    place=$work/cgroup
    mkdir -m 700 "$place"
    # a process that the kernel kills for its memory counts as killed
    bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" timeout $((seconds + 120)) \
        "$programs/place_work" "$work/cgroup.state" work "$place/cache" "$seconds" kill=1 >"$work/cgroup.work" 2>&1
    holds 'cgroup: processes go on' [ $? = 0 ]
    grep '^#' "$work/cgroup.work" | sed 's/^# /# cgroup: /'
    echo "# cgroup: $(tr '\n' ' ' <"$group/memory.events")"
    is_well 'afterwards'
    rmdir "$group"
}
place_crowd() {
    place=$work/crowd
    mkdir -m 700 "$place"
    works '64 processes with 4 threads each' processes=64 threads=4 kill=1
    is "$name: nothing but waiting in vain" '' "$(grep '^failure' "$work/$name.work" | grep -vE 'LOCKED|locked by another|database is locked' | cut -c 1-300)"
    is_well 'afterwards'
}
place_clock() {
    place=$work/clock
    mkdir -m 700 "$place"
    works 'a clock that jumps' kill=1 jump=1
    fails_with_nothing
    is_well 'with the right clock'
}
limited() { # WHAT PATTERN COMMAND [work's options]: with the limits that the command sets; PATTERN empty: failures are optional
    local what=$1 pattern=$2
    with=(bash -c "$3; exec \"\$@\"" -)
    works "$what" "${@:4}"
    with=()
    [ -z "$pattern" ] || fails_with "$what" "$pattern"
    is_well "after $what" quarantine=1
}
place_limits() {
    place=$work/limits
    mkdir -m 700 "$place"
    local seconds=$((seconds > 4 ? seconds / 2 : seconds)) uid=54321
    seconds=1 works 'without limits'
    limited '16 descriptors' 'Too many open files|unable to open database file|open for reading only|disk I/O error' 'ulimit -n 16'
    # Exceeding the limit raises a signal, which ends the process, unless it is ignored.
    limited 'files of 256 KiB' '' 'ulimit -f 256'
    limited 'files of 256 KiB, no signal' 'File too large|disk I/O error|open for reading only|is full' 'trap "" XFSZ; ulimit -f 256'
    if is_instrumented; then
        skip limits 'memory: this build is instrumented, which takes terabytes of addresses'
    else
        limited '6 MB of addresses' '[Mm]emory|[Cc]annot allocate|unable to open a temporary database' 'ulimit -v 6000' threads=4
        [ "$seconds" -le 1 ] || limited '16 MB of addresses' '' 'ulimit -v 16000' threads=4
    fi
    # Limits on the number of processes do not apply to root.
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && chown -R $uid "$place" "$work/limits.state"* 2>/dev/null ||
        { skip limits 'processes: another user cannot be had here'; return 0; }
    chmod 755 "$work"
    cp "$programs/place_work" "$work/place_work" && chmod 755 "$work/place_work"
    local programs=$work
    with=(bash -c "ulimit -u 12; exec setpriv --reuid $uid --clear-groups -- \"\$@\"" -)
    works 'no more processes' threads=4
    with=()
    chown -R 0 "$place"
    is_well 'after no more processes' quarantine=1
}
stopped() { # LOCK EXPECTED: which operations fail while a process that holds it is stopped
    local lock=$1 holder i
    "$programs/place_locks" "$place/cache" hold "$lock" >"$work/holder" 2>&1 &
    holder=$!
    for i in $(seq 100); do
        grep -q '^[0-9]* (.*) T' "/proc/$holder/stat" 2>/dev/null && break
        sleep 0.05
    done
    run timeout 60 "$programs/place_locks" "$place/cache" ask
    is "stopped: $lock: who must wait" "$2" "$(grep -vE '^[a-z_]+ (OK|NOT_FOUND) ' "$out" | awk '{ print $1, $2 }' | tr '\n' ' ' | sed 's/ $//')"
    is "stopped: $lock: and is told why" '' "$(grep -E ' LOCKED ' "$out" | grep -vE 'is locked by another process|database is locked|another collection|is being compiled by another|compil')"
    is "stopped: $lock: nobody waits for long" '' "$(awk '$3 > 3000' "$out")"
    kill -CONT "$holder"
    wait "$holder"
    is "stopped: $lock: goes on with it" 0 $?
    run timeout 60 "$programs/place_locks" "$place/cache" ask
    is "stopped: $lock: then nobody waits" '' "$(grep -vE '^[a-z_]+ (OK|NOT_FOUND) ' "$out")"
}
place_stopped() {
    place=$work/stopped
    mkdir -m 700 "$place"
    seconds=1 works 'filling'
    stopped lease 'compile_held LOCKED'
    stopped collect 'collect LOCKED'
    stopped write 'put LOCKED pin LOCKED flush LOCKED'
    [ "$seconds" -gt 1 ] || { is_well 'afterwards'; return 0; }
    stopped object ''
    stopped store 'put LOCKED pin LOCKED unpin LOCKED remove LOCKED'
    stopped store_shared 'remove LOCKED'
    stopped gate 'put LOCKED pin LOCKED unpin LOCKED remove LOCKED'
    stopped index_gate ''
    stopped uses ''
    is_well 'afterwards'
}

places=$(sed -n 's/^place_\([a-z0-9_]*\)() .*/\1/p' "$0")
if [ "${1:-}" = --list ]; then
    echo "$places"
    exit 0
fi
{ # bash reads this whole block first, so the file may be edited while it runs
    for name in ${*:-$places}; do
        declare -F "place_$name" >/dev/null || { not_ok "$name" 'there is no such place (--list)'; continue; }
        begun=$SECONDS
        "place_$name"
        echo "# $name: $((SECONDS - begun)) s"
    done
    finish
}
