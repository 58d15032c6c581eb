# Makes a small disk for a test: a tmpfs in its own mount namespace, which ends with the script. Sourced instead of lib.sh, which
# it sources, with DISK_TEST (named if the script is skipped) and DISK_SIZE (as mount takes it) set. $disk is its directory,
# $AOTICACHE_DIR a cache on it, not created.
if [ -z "${AOTICACHE_TEST_NAMESPACE:-}" ]; then
    for way in -m -Urm; do
        # shellcheck disable=SC2016 # for the inner shell
        unshare $way sh -c 'mount -t tmpfs -o size=1m tmpfs /mnt' >/dev/null 2>&1 || continue
        exec env AOTICACHE_TEST_NAMESPACE=1 unshare $way bash "$0" "$@"
    done
    echo "skip - $DISK_TEST: no tmpfs can be mounted here (it takes root, or user namespaces)"
    exit 77
fi
. tests/cli/lib.sh

disk=$work/disk
leave() {
    umount "$disk" 2>/dev/null
    cleanup
}
trap leave EXIT
mkdir "$disk" && mount -t tmpfs -o size="$DISK_SIZE",mode=700 tmpfs "$disk" || { not_ok 'set-up' 'no tmpfs' && finish; }
export AOTICACHE_DIR=$disk/cache
