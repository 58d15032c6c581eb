#!/usr/bin/env bash
# Tests what docs/kubernetes.md says about pods, without Kubernetes. A container is a root directory in its own mount
# namespace, with a user, a group and supplementary groups. A volume is a directory with the owner and the mode that the
# kubelet gives it. No mount is visible outside the containers.
# Not a quick test: it is a trial of containers.
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

lacks() { skip 'pods' "$1" && finish; }
[ "$(id -u)" = 0 ] || lacks 'only root can run as several users'
for program in unshare setpriv chroot; do command -v $program >/dev/null || lacks "there is no $program"; done
setpriv --reuid 1000650000 --regid 0 --clear-groups true 2>"$err" || lacks "no random user: $(tail -n 1 "$err")"

page=docs/kubernetes.md
directory=/var/cache/kernels
mounts=()   # VOLUME:PATH[:ro], for the following containers
settings=() # their variables
path=/opt/aoticache/bin:/usr/bin:/bin
network=()
mkdir "$work/volumes" "$work/root"

# Runs in the new mount namespace: makes a root directory with the system and the build, read-only, and the volumes in it.
# shellcheck disable=SC2016 # for the inner shell
container='root=$1 build=$2 volumes=$3 mounts=$4 user=$5 group=$6 groups=$7 && shift 7 &&
mount -t tmpfs -o mode=755 tmpfs "$root" && cd "$root" && mkdir -p usr etc proc dev opt/aoticache app && mkdir -m 1777 tmp || exit 125
for name in bin lib lib64 sbin; do
    if [ -L "/$name" ]; then cp -a "/$name" .; elif [ -d "/$name" ]; then mkdir "$name" && mount --bind "/$name" "$name"; fi
done
mount --bind -o ro /usr usr && mount --bind /proc proc && mount --bind /dev dev || exit 125
cp -a /etc/ld.so.cache /etc/alternatives etc 2>/dev/null
echo "root:x:0:0:root:/root:/bin/sh" >etc/passwd
for name in bin lib share include; do
    mkdir "opt/aoticache/$name" && mount --bind -o ro "$build/$name" "opt/aoticache/$name" || exit 125
done
for mounted in $mounts; do
    IFS=: read -r volume target mode <<<"$mounted"
    mkdir -p ".$target" && case $volume in
        tmpfs=*) mount -t tmpfs -o "mode=0777,size=${volume#tmpfs=}" tmpfs ".$target" ;;
        *) mount --bind "$volumes/$volume" ".$target" && { [ -z "$mode" ] || mount -o remount,bind,ro ".$target"; } ;;
    esac || exit 125
done
case $groups in "") groups=--clear-groups ;; *) groups="--groups $groups" ;; esac
drop="--inh-caps=-all --bounding-set=-all"
[ "$user" != 0 ] || drop=
exec chroot . /usr/bin/setpriv --reuid "$user" --regid "$group" $groups $drop -- /usr/bin/env -i "$@"'

# as USER:GROUP[:GROUPS] COMMAND...: runs it in a container with $mounts and $settings, without any other variable
as() {
    local user group groups
    IFS=: read -r user group groups <<<"$1"
    unshare -m "${network[@]}" bash -c "$container" - "$work/root" "$BUILD" "$work/volumes" "${mounts[*]}" "$user" "$group" "$groups" \
        PATH="$path" ${ASAN_OPTIONS:+"ASAN_OPTIONS=$ASAN_OPTIONS"} ${UBSAN_OPTIONS:+"UBSAN_OPTIONS=$UBSAN_OPTIONS"} \
        ${TSAN_OPTIONS:+"TSAN_OPTIONS=$TSAN_OPTIONS"} "${settings[@]}" "${@:2}"
}
as 0:0 true 2>"$err" || lacks "a container cannot be made: $(tail -n 1 "$err")"

abs() { as "$1" aoticache run aten::abs --input "float32:$2=-2" --hook "$3" --json; } # USER SIZE HOOK
volume() { mkdir -p "$work/volumes/$1" && chown "$2" "$work/volumes/$1" && chmod "$3" "$work/volumes/$1"; } # NAME OWNER MODE
empty_dir() { if [ -n "${2:-}" ]; then volume "$1" "0:$2" 2777; else volume "$1" 0:0 0777; fi; } # NAME [FSGROUP]
# projected NAME FILE MODE GROUP <contents: makes a file of a Secret or a ConfigMap, or replaces it by its next version, with
# a link
projected() {
    local place=$work/volumes/$1 version
    volume "$1" 0:0 0755
    version=$(cd "$place" && mktemp -d ..version.XXXXXX) && chmod 755 "$place/$version"
    [ ! -e "$place/..data" ] || cp -p "$place/..data/"* "$place/$version/"
    rm -f "$place/$version/$2"
    cat >"$place/$version/$2"
    chown "0:$4" "$place/$version/$2"
    chmod "$3" "$place/$version/$2"
    ln -s "$version" "$place/..new" && mv -T "$place/..new" "$place/..data"
    [ -L "$place/$2" ] || ln -s "..data/$2" "$place/$2"
}
# take COMMAND-LIST: puts "[...]" of a container into the array $command
take() { mapfile -t command < <(python3 -c 'import json, sys; print("\n".join(json.loads(sys.argv[1])))' "$1"); }
# take_from BLOCK: takes the command in a block of the page; take_like WORDS: the list in its text that begins with these
take_from() { take "$(example $page "$1" | sed -n 's/.*command: \(\[[^]]*\]\).*/\1/p')"; }
take_like() { take "$(grep -o "\`\[$1[^]]*\]\`" $page | tr -d '\`')"; }

# ---- an emptyDir ----

for group in '' 2000; do
    kind="emptyDir${group:+, fsGroup}"
    empty_dir "plain$group" $group
    mounts=("plain$group:$directory")
    settings=(AOTICACHE_DIR=$directory)
    try "$kind: its directory is refused" 1 abs 1000:1000:$group 2 c
    says "$kind: for its mode" "$directory can be written by others .mode 0${group:+2}777.*allow_shared = true"
    settings=(AOTICACHE_DIR=$directory/mine)
    try "$kind: a directory below it, too" 1 abs 1000:1000:$group 2 c
    says "$kind: for the mode of the upper one" "$directory can be written by others .*who could replace the cache directory"
    try "$kind: its user cannot change the mode" 1 as 1000:1000:$group chmod go-w $directory
    settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true)
    try "$kind, allow_shared: a kernel is stored" 0 abs 1000:1000:$group 2 c
    member "$kind, allow_shared: it is" stored true
    try "$kind, allow_shared: and found" 0 abs 1000:1000:$group 2 none
    run as 1000:1000:$group aoticache doctor
    prints "$kind, allow_shared: doctor warns of the mode" "^WARN +mode +${group:+2}0?777: everyone may write"
    settings=(AOTICACHE_DIR=$directory/mine AOTICACHE_ALLOW_SHARED=true)
    run as 1000:1000:$group rm -rf $directory/format
    try "$kind, a directory below, allow_shared: a kernel is stored" 0 abs 1000:1000:$group 2 c
    is "$kind, a directory below, allow_shared: for the user alone" 700 "$(stat -c %a "$work/volumes/plain$group/mine" | tail -c 4)"
    try "$kind, a directory below, allow_shared: another user" 1 abs 1001:1001:$group 2 none
    says "$kind, a directory below, allow_shared: cannot open it" "cannot open the cache directory $directory/mine: Permission denied"
done
empty_dir owned
mounts=("owned:$directory")
settings=(AOTICACHE_DIR=$directory/mine)
take_from own # docs/kubernetes.md own
try 'an init container of root makes the directory' 0 as 0:0 "${command[@]}"
try 'the program stores there without allow_shared' 0 abs 1000:1000 2 c
try 'and finds' 0 abs 1000:1000 2 none

# ---- one volume for many pods ----

shared() { # WHAT VOLUME: two users of the group
    mounts=("$2:$directory")
    settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true)
    try "$1: one user stores" 0 as 1000:1000:2000 sh -c 'umask 077; exec aoticache run aten::abs --input float32:2 --hook c --quiet'
    try "$1: another finds it" 0 abs 1001:1001:2000 2 none
    try "$1: and stores" 0 abs 1001:1001:2000 3 c
    try "$1: which the first finds" 0 abs 1000:1000:2000 3 none
    is "$1: directories are open to the group" '' "$(find "$work/volumes/$2" -mindepth 1 -type d ! -perm 2770)"
    is "$1: files, too" '' "$(find "$work/volumes/$2" -type f ! -path '*/objects/*' ! -perm 660)"
    is "$1: objects are read-only" '' "$(find "$work/volumes/$2/objects" -type f ! -perm 444)"
    try "$1: a user outside the group" 1 abs 1002:1002 2 none
    says "$1: is refused" 'Permission denied'
}
volume claim 0:2000 2775
shared 'a claim' claim
# The kubelet does this at each start of a pod, without OnRootMismatch
chown -R :2000 "$work/volumes/claim"
find "$work/volumes/claim" -type f -exec chmod ug+rw {} + -o -type d -exec chmod ug+rwx,g+s {} +
try 'after the kubelet has changed all modes: all is well' 0 as 1001:1001:2000 aoticache verify
try 'after the kubelet has changed all modes: kernels are found' 0 abs 1001:1001:2000 2 none
try 'after the kubelet has changed all modes: and stored' 0 abs 1000:1000:2000 4 c
take_like '"aoticache-gc"'
try 'the collector, as another user of the group' 0 as 1003:1003:2000 "${command[@]}"
try 'the collector may remove what others stored' 0 as 1003:1003:2000 aoticache-gc --max-entries 1 --json
member 'the collector has done so' entries_after 1
volume node 0:0 755
mounts=("node:/var/cache")
try 'root makes the directory of a hostPath' 0 as 0:0 sh -c "$(example $page host)" # docs/kubernetes.md host
shared 'a hostPath' node/kernels

# ---- kernels in the image ----

volume layer 0:0 755
volume lists 0:0 755
echo 'aten::abs(float32[2]) on cpu' >"$work/volumes/lists/kernels.txt"
mounts=(layer:/opt/kernels lists:/app)
settings=()
try 'the image is built' 0 as 0:0 sh -ec "$(example $page image)" # docs/kubernetes.md image
volume closed 0:0 755
mounts=(closed:/opt/kernels lists:/app)
try 'and one without the chmod' 0 as 0:0 sh -ec "$(example $page image | grep -v '^chmod')"
cp -a "$work/volumes/layer" "$work/volumes/foreign" && chown -R 1005:1005 "$work/volumes/foreign"
settings=(AOTICACHE_DIR=/opt/kernels)
mounts=(closed:/opt/kernels:ro)
try 'an image without the chmod' 1 abs 1000:1000 2 none
says 'an image without the chmod: cannot be read' 'Permission denied'
mounts=(foreign:/opt/kernels:ro)
try 'an image that another user made' 1 abs 1000:1000 2 none
says 'an image that another user made: is refused' '/opt/kernels belongs to user 1005, but this process runs as user 1000'
mounts=(layer:/opt/kernels:ro)
for user in 1000:1000 1000650000:0; do
    try "the image, user $user: a kernel is found" 0 abs $user 2 none
    is "the image, user $user: one warning" 1 "$(wc -l <"$err")"
    says "the image, user $user: it says why" '/opt/kernels cannot be written .*the cache stores nothing'
    try "the image, user $user: a miss" 0 abs $user 3 c
    member "the image, user $user: is compiled" source compiled
    member "the image, user $user: and not stored" stored false
    try "the image, user $user: so it is one again" 3 abs $user 3 none
done
settings+=(TMPDIR=/app)
try 'the image, TMPDIR cannot be written: a kernel is found' 0 abs 1000:1000 2 none
try 'the image, TMPDIR cannot be written: a miss' 1 abs 1000:1000 3 c
says 'the image, TMPDIR cannot be written: it is said' 'cannot create a temporary directory in /app; set TMPDIR'
settings=(AOTICACHE_DIR=/opt/kernels)
try 'the image: nothing can be collected' 1 as 1000:1000 aoticache-gc --max-size 1G
says 'the image: as it is said' 'open for reading only'
empty_dir both
mounts=(layer:/opt/kernels:ro "both:$directory")
settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true)
take_from merge # docs/kubernetes.md merge
try 'the image is merged into a volume' 0 as 1000650000:0 "${command[@]}"
prints 'merged: without signatures' '^merged 1 entry'
try 'merged: the kernel is found' 0 abs 1000650000:0 2 none
try 'merged: a miss' 0 abs 1000650000:0 3 c
member 'merged: is stored' stored true
try 'merged again' 0 as 1000650000:0 "${command[@]}"
prints 'merged again: what is there stays' '^merged 0 entries.* 1 was there already'

# ---- random user ids ----

mounts=()
settings=()
try 'no HOME, no directory' 3 abs 1000650000:0 2 c
says 'no HOME, no directory: it is said' 'no cache directory is chosen: set AOTICACHE_DIR'
settings=(HOME=/)
try 'HOME is /' 1 abs 1000650000:0 2 c
says 'HOME is /: it is said' 'cannot create .*choose a directory with AOTICACHE_DIR'
empty_dir random
empty_dir keys
mounts=("random:$directory" keys:/keys)
settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true)
try 'a random user stores' 0 abs 1000650000:0 2 c
member 'a random user: it is' stored true
try 'another one finds it: both are in group 0' 0 abs 1000990000:0 2 none
trust="builder-1:$(head -c 32 /dev/zero | base64)"
try 'without a directory of keys none is trusted by command' 1 as 1000650000:0 aoticache key trust "$trust"
says 'without a directory of keys: it is said' 'no key directory: set HOME, or `keys`'
settings+=(AOTICACHE_KEYS=/keys/mine)
try 'with AOTICACHE_KEYS a key is made' 0 as 1000650000:0 aoticache key generate pod-1
install -m 600 "$work/volumes/keys/mine/secret-key" "$work/secret-key"
settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true AOTICACHE_SIGN_WITH=/etc/aoticache-secret/secret-key)
projected signing secret-key 0440 0 <"$work/secret-key"
empty_dir copied
mounts=("random:$directory" copied:/keys signing:/etc/aoticache-secret)
try 'a key in a Secret' 1 as 1000650000:0 aoticache export /tmp/archive
says 'a key in a Secret: is refused, for its owner' 'belongs to user 0; it must belong to this user'
take_from key # docs/kubernetes.md key
try 'an init container copies it' 0 as 1000650000:0 "${command[@]}"
settings[2]=AOTICACHE_SIGN_WITH=/keys/secret-key
try 'then the pod signs' 0 as 1000650000:0 aoticache export /keys/archive

# ---- space ----

settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true)
mounts=("tmpfs=500k:$directory")
try 'a full tmpfs: programs go on' 0 as 1000:1000 sh -c 'for n in 1 2 3 4 5 6 7 8 9; do
    aoticache run aten::abs --input float32:$n --hook c --json || exit; done'
says 'a full tmpfs: nothing more is stored' 'No space left|is full|no space'
is 'a full tmpfs: all kernels ran' 9 "$(grep -c '"source": "compiled"' "$out")"
empty_dir small
mounts=("small:$directory")
settings+=(AOTICACHE_MAX_SIZE=120K)
run as 1000:1000 sh -c 'for n in 1 2 3 4; do aoticache run aten::abs --input float32:$n --hook c; done'
try 'max_size' 0 as 1000:1000 aoticache ls --json
holds 'max_size: programs collect by themselves' [ "$(grep -c '"artifact"' "$out")" -le 2 ]

# ---- a remote: pull before the start, secrets ----

[ -e "$BUILD/lib/libaoticache_remote_redis.so" ] || { skip 'a remote' 'the module for Redis is not built: no libhiredis-dev'; finish; }
start_redis || { skip 'a remote' 'there is no redis-server'; finish; }
redis() { redis-cli -s "$redis_socket" "$@" >/dev/null; }
example docs/remotes.md redis-users | while read -r line; do
    # shellcheck disable=SC2086 # words
    redis $line
done
echo writes-secret >"$work/writer" && chmod 600 "$work/writer"
aoticache key generate builder-1 >"$out" 2>&1
for n in 2 3; do # on the building machine
    AOTICACHE_REMOTE="redis://127.0.0.1:$redis_port user=writer secret-file=$work/writer" run aoticache compile aten::abs --input float32:$n --hook c
done
aoticache tag --op 'aten::*' release-4 >"$out"
AOTICACHE_REMOTE="redis://127.0.0.1:$redis_port user=writer secret-file=$work/writer" try 'two kernels are on a server' 0 aoticache push --all
example $page settings | sed -e "s|cache.kernels.svc:6379|127.0.0.1:$redis_port|" -e "s|builder-1:.*|$(aoticache key public | head -n 1)|" \
    >"$work/aoticache.conf" # docs/kubernetes.md settings
try 'the settings are right' 0 aoticache config --check "$work/aoticache.conf"
projected settings aoticache.conf 0644 0 <"$work/aoticache.conf"
settings=(AOTICACHE_CONFIG=/etc/aoticache/aoticache.conf)
take_from pull # docs/kubernetes.md pull
pull=("${command[@]}")
default_mode=$(example $page secret | sed -n 's/.*defaultMode: \(0[0-7]*\).*/\1/p') # docs/kubernetes.md secret

empty_dir pod 2000
mounts=("pod:$directory" settings:/etc/aoticache secret:/etc/aoticache-secret)
secret() { echo "$1" | projected secret redis-password "$2" "$3"; } # SECRET MODE GROUP
pull_as() { as "$1" "${pull[@]}" "${@:2}"; }
secret reads-secret 0644 2000
try 'a Secret with its default mode' 1 pull_as 1001:1001:2000
says 'a Secret with its default mode: is refused' 'redis-password: the secret is not used: .*others must not be able to read or write it .chmod 600'
for case in 0440:1001:1001:1 0440:1000650000:0:0 0400:1000650000:0:1 0400:0:0:0; do
    IFS=: read -r mode user group expected <<<"$case"
    secret reads-secret "$mode" 0
    empty_dir "secret-$mode-$user"
    mounts[0]="secret-$mode-$user:$directory"
    try "a Secret without fsGroup, mode $mode, user $user in group $group" "$expected" pull_as "$user:$group"
    [ "$expected" = 0 ] || says "mode $mode, user $user: cannot read it" 'Permission denied'
done
mounts[0]=pod:$directory
secret reads-secret "$default_mode" 2000
try 'the init container pulls' 0 pull_as 1001:1001:2000
prints 'the init container has both kernels' '^fetched 2 entries'
try 'the directory of the settings' 0 as 1001:1001:2000 aoticache config directory
is 'is that of the ConfigMap' $directory "$(cat "$out")"
unshare -n true 2>/dev/null && network=(-n)
path=/opt/aoticache/bin
for user in 1000:1000:2000 1000650000:0:2000; do
    try "the main container, user $user, without network and compiler" 0 abs $user 2 none
    member "the main container, user $user: finds it" source index
    says_nothing "the main container, user $user: says nothing"
done
try 'a main container outside the group' 1 abs 1002:1002 2 none
says 'a main container outside the group: may not read it' 'Permission denied'
try 'there is no compiler' 5 abs 1000:1000:2000 5 c
network=()
empty_dir other 2000
mounts[0]=other:$directory
try 'without a hook no remote is asked' 3 abs 1000:1000:2000 2 none
path=/opt/aoticache/bin:/usr/bin:/bin
try 'with a hook one is' 0 abs 1000:1000:2000 2 c
member 'and the kernel is fetched' source fetched
try 'pull of a tag' 0 as 1000:1000:2000 aoticache pull --tag release-4
try 'pull of what is not there' 3 as 1000:1000:2000 aoticache pull --tag release-5
mounts=(layer:/opt/kernels:ro settings:/etc/aoticache secret:/etc/aoticache-secret)
settings+=(AOTICACHE_DIR=/opt/kernels)
try 'a read-only directory' 0 abs 1000:1000:2000 3 c
member 'a read-only directory: never asks its remotes' source compiled
try 'a read-only directory: pull' 1 as 1000:1000:2000 aoticache pull --all
says 'a read-only directory: pull: fails' 'open for reading only'
unset 'settings[1]'
mounts=(other:"$directory" settings:/etc/aoticache secret:/etc/aoticache-secret copied:/keys)
sed -i "s/builder-1:.*/$(head -c 32 /dev/urandom | base64 | sed 's|[/&]|\\&|g; s|^|builder-2:|')/" "$work/aoticache.conf"
projected settings aoticache.conf 0644 0 <"$work/aoticache.conf"
empty_dir distrustful
mounts[0]=distrustful:$directory
try 'a pull of what nobody trusted signed' 1 pull_as 1000:1000:2000
prints 'takes nothing' '^fetched 0 entries'

# An archive in the image, with the key of the settings
projected settings aoticache.conf 0644 0 < <(sed "s|builder-2:.*|$(aoticache key public | head -n 1)|" "$work/aoticache.conf")
run aoticache export "$work/volumes/lists/kernels.tar.zst"
if [ "$status" = 0 ]; then
    mounts+=(lists:/app)
    try 'an archive in the image' 0 as 1000:1000:2000 aoticache import /app/kernels.tar.zst
else
    skip 'an archive in the image' 'there is no libarchive'
fi

# A Secret changes while a program runs.
redis acl setuser rotating on '>old' '~aoticache/*' '&aoticache/*' +@all
echo old | projected secret rotating 0440 2000
for n in $(seq 40 51); do echo "aten::abs(float32[$n]) on cpu"; done >"$work/volumes/lists/many"
empty_dir rotation 2000
mounts=("rotation:$directory" secret:/etc/aoticache-secret lists:/app)
settings=(AOTICACHE_DIR=$directory AOTICACHE_ALLOW_SHARED=true
    "AOTICACHE_REMOTE=redis://127.0.0.1:$redis_port namespace=rotating unsigned=allow user=rotating secret-file=/etc/aoticache-secret/rotating")
as 1000:1000:2000 aoticache warm /app/many --hook c --jobs 1 >"$out" 2>"$err" &
program=$!
sent() { [ "$(redis-cli -s "$redis_socket" --scan --pattern 'aoticache/rotating/ac/*' | wc -l)" -ge "$1" ]; }
holds 'a Secret that changes: the program sends' until_it sent 2
echo new | projected secret rotating 0440 2000
redis acl setuser rotating resetpass '>new'
redis client kill user rotating
wait "$program"
is 'a Secret that changes: the program goes on, and says nothing' '0 ' "$? $(grep -v 'signature' "$err")"
holds 'a Secret that changes: everything is sent' sent 12
settings[2]="AOTICACHE_REMOTE=redis://127.0.0.1:$redis_port namespace=rotating user=rotating secret-file=/etc/aoticache-secret/rotating"
try 'a pod without a key' 0 abs 1000:1000:2000 59 c
says 'a pod without a key: sends unsigned' 'kernels are sent there without a signature, and other machines refuse them'
redis acl setuser rotating resetpass '>newer'
try 'the server has another secret first' 0 abs 1000:1000:2000 60 c
member 'the server has another secret first: the kernel is compiled' source compiled
says 'the server has another secret first: it is said' 'the server refuses: WRONGPASS.*for a while'

stop_servers
servers=()
settings=(AOTICACHE_CONFIG=/etc/aoticache/aoticache.conf)
mounts=("pod:$directory" settings:/etc/aoticache secret:/etc/aoticache-secret)
try 'pull without the server' 1 pull_as 1001:1001:2000
take_like '"sh", "-c", "aoticache pull'
try 'the pod starts anyway' 0 as 1001:1001:2000 "${command[@]}"
finish
