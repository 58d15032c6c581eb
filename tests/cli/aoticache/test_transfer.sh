#!/usr/bin/env bash
# aoticache export, import, merge and copy: kernels move between caches and run there; no partial entry appears.
. tests/cli/lib.sh

for size in 4 5 6; do
    run aoticache run aten::abs --input "float32:$size=-2" --hook c --json
    [ "$status" = 0 ] || { not_ok 'set-up' 'the kernel does not compile' && finish; }
done
key=$(field key)
at() { aoticache "$1" "${@:3}" --cache-dir "$2"; } # COMMAND DIRECTORY ARGUMENT...
tree() { (cd "$1" && find . -type f ! -name 'index*' -print | LC_ALL=C sort); }
archive=$work/kernels.tar.zst

run aoticache export "$work/probe"
if [ "$status" != 0 ] && grep -q 'libarchive' "$err"; then
    skip 'archives' 'there is no libarchive'
else
    try 'export' 0 aoticache export "$archive"
    prints 'what went' '^exported 3 entries, 6 objects, .*; the archive has '
    holds 'no temporary file is left' [ "$(ls "$work" | grep -c 'new-')" = 0 ]
    try 'export again' 0 aoticache export "$work/again.tar.zst" --json
    member 'counts' entries 3
    holds 'the same bytes' cmp -s "$archive" "$work/again.tar.zst"
    if tar --zstd -tf "$archive" >"$out" 2>/dev/null; then
        is 'tar reads it' 11 "$(wc -l <"$out")"
        is 'the first member' aoticache.json "$(head -n 1 "$out")"
        prints 'objects have the names of the store' '^objects/[0-9a-f]{2}/[0-9a-f]{62}$'
        prints 'signatures have the names of their manifests' '^signatures/[0-9a-f]{64}$'
    else
        skip 'tar reads it' 'this tar has no zstd'
    fi

    try 'import' 0 at import "$work/second" "$archive"
    prints 'what came' '^imported 3 entries, 6 objects'
    holds 'the same objects' [ "$(tree "$AOTICACHE_DIR/objects")" = "$(tree "$work/second/objects")" ]
    try 'the target is sound' 0 at verify "$work/second"
    try 'a kernel runs there without a compiler' 0 at run "$work/second" aten::abs --input float32:6=-2 --hook none --json
    member 'from the index' source index
    member 'the result is right' outputs.0.values '[2.0, 2.0, 2.0, 2.0, 2.0, 2.0]'
    try 'import again' 0 at import "$work/second" "$archive"
    prints 'all was there' '^imported 0 entries, 0 objects, 0 B; .*3 were there already'
    aoticache export - 2>"$err" | at import "$work/third" - >"$out"
    prints 'through a pipe' '^imported 3 entries'
    says 'the summary does not go into the pipe' '^exported 3 entries'

    try 'a dry run' 0 at import "$work/nowhere" "$archive" --dry-run
    prints 'says what it would do' '^would have imported 3 entries'
    holds 'and makes nothing' [ ! -e "$work/nowhere" ]
    try 'a choice' 0 at import "$work/fourth" "$archive" --key "${key:0:12}"
    prints 'of one' '^imported 1 entry, 2 objects'
    try 'export by operator' 3 aoticache export "$work/none.tar.zst" --op 'prims::*'
    says 'nothing matches' 'nothing matches'
    holds 'then there is no file' [ ! -e "$work/none.tar.zst" ]

    head -c $(($(stat -c %s "$archive") * 2 / 3)) "$archive" >"$work/cut"
    try 'an archive that was cut off' 1 at import "$work/fifth" "$work/cut"
    says 'is named so' 'damaged or truncated after'
    try 'what came before is sound' 0 at verify "$work/fifth"
    try 'no archive' 1 at import "$work/fifth" /etc/passwd
    try 'a limit' 1 at import "$work/sixth" "$archive" --max-size 10K
    says 'with what to do' 'more than the allowed 10240 bytes'
    try 'no such file' 1 aoticache import "$work/no-such-file"
    try 'a full device' 1 aoticache export /dev/full
    holds 'a device is not replaced' [ -c /dev/full ]
    try 'a directory that cannot be written' 1 aoticache export "$work/no/such/file"

    try 'with --replace what is the same stays' 0 at import "$work/second" "$archive" --replace --json
    member 'none came' entries 0
    member 'all were there' entries_present 3
    member 'none was passed over' entries_passed_over 0

    # Interrupted while waiting for data that never arrives.
    mkfifo "$work/pipe"
    aoticache import - --cache-dir "$work/waiting" <"$work/pipe" >/dev/null 2>"$work/interrupted" &
    importer=$!
    exec 3>"$work/pipe"
    sleep 0.5
    kill -TERM "$importer"
    wait "$importer"
    is 'an import that waits for a pipe ends by its signal' 143 "$?"
    exec 3>&-
    holds 'and says so' grep -q stopped "$work/interrupted"

    if command -v python3 >/dev/null && command -v zstd >/dev/null; then
        python3 - "$archive" "$work/hostile.tar" <<'PYTHON'
import io, subprocess, sys, tarfile
plain = subprocess.run(["zstd", "-dc", sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout
with tarfile.open(fileobj=io.BytesIO(plain)) as source, tarfile.open(sys.argv[2], "w") as target:
    for number, member in enumerate(source):
        target.addfile(member, source.extractfile(member))
        if number == 0:
            for name, kind, link in [("../escaped", tarfile.REGTYPE, ""), ("objects/aa/" + "b" * 62, tarfile.SYMTYPE, "/etc/passwd")]:
                odd = tarfile.TarInfo(name)
                odd.type, odd.linkname, odd.size = kind, link, 5 if kind == tarfile.REGTYPE else 0
                target.addfile(odd, io.BytesIO(b"hello") if odd.size else None)
PYTHON
        try 'an archive with foreign members' 1 at import "$work/seventh" "$work/hostile.tar"
        says 'is refused by name' 'refused: ../escaped'
        says 'links too' 'a symbolic link'
        prints 'the rest comes' '^imported 3 entries, .*; 2 refused'
        holds 'nothing escaped' [ ! -e "$work/escaped" ]
        try 'and the cache is sound' 0 at verify "$work/seventh"

        python3 - "$work/bomb.tar.zst" "$work/grown.tar.zst" <<'PYTHON'
import hashlib, io, json, subprocess, sys, tarfile
def text(kind, objects, size):
    return (json.dumps(dict(kind=kind, format=1, library="0", entries=1, objects=objects, bytes=size)) + "\n").encode()
def write(path, size, member, length):
    zstd = subprocess.Popen(["zstd", "-q", "-o", path], stdin=subprocess.PIPE)
    with tarfile.open(fileobj=zstd.stdin, mode="w|") as target:
        def add(name, file, size):
            odd = tarfile.TarInfo(name)
            odd.size = size
            target.addfile(odd, file)
        head = text("aoticache archive", 1, size)
        add("aoticache.json", io.BytesIO(head), len(head))
        try:
            add(member, length if hasattr(length, "read") else io.BytesIO(length), size)
        except BrokenPipeError:
            pass
    zstd.stdin.close()
    zstd.wait()
grown = b'{"a":[' + b"{}," * (12 << 20)
digest = hashlib.sha256(grown).hexdigest()
write(sys.argv[2], len(grown), "objects/" + digest[:2] + "/" + digest[2:], grown)
write(sys.argv[1], 5 << 28, "foreign", open("/dev/zero", "rb"))
PYTHON
        try 'an archive of nothing but zeros' 1 at import "$work/eighth" "$work/bomb.tar.zst"
        says 'is not unpacked to its end' 'times its own size'
        if [ -x /usr/bin/time ]; then
            /usr/bin/time -f '%M' -o "$work/memory" aoticache import --cache-dir "$work/ninth" "$work/grown.tar.zst" >/dev/null 2>&1
            holds 'a manifest that would grow takes little memory' [ "$(tail -n 1 "$work/memory")" -lt 200000 ]
        else
            skip 'a manifest that would grow takes little memory' 'there is no /usr/bin/time'
        fi
    else
        skip 'an archive with foreign members' 'there is no python3 or no zstd'
    fi
fi

try 'copy' 0 aoticache copy "$work/copied"
prints 'what went there' '^copied 3 entries, 6 objects'
try 'the copy is sound' 0 at verify "$work/copied"
holds 'files are not shared' [ "$(find "$AOTICACHE_DIR/objects" -type f -links +1 | wc -l)" = 0 ]
try 'merge' 0 at merge "$work/merged" "$work/copied"
prints 'what came from there' '^merged 3 entries'
try 'merge of the same' 1 at merge "$work/merged" "$work/merged"
says 'is refused' 'same cache'
try 'merge from nowhere' 7 aoticache merge "$work/no-such-cache"
try 'an argument is needed' 2 aoticache merge
try 'not to a terminal, not with --json' 2 aoticache export - --json
try 'a level that is none' 2 aoticache export "$work/x" --level 0

# In containers every export has the same process id, and a killed one leaves its file.
try 'an export after one that was killed with this id' 0 \
    sh -c ': >"$1.new-$$" && exec aoticache export "$1"' sh "$work/again.tar.zst"
holds 'the archive is whole' [ -s "$work/again.tar.zst" ]

# Killed at any instant: the imported part is sound.
for round in $(seq "${AOTICACHE_KILLS:-6}"); do
    rm -rf "$work/killed"
    aoticache merge "$AOTICACHE_DIR" --cache-dir "$work/killed" --quiet >/dev/null 2>&1 &
    child=$!
    sleep "0.0$((round * 7 % 40 + 10))"
    kill -9 "$child" 2>/dev/null
    wait "$child" 2>/dev/null
    [ ! -d "$work/killed" ] && continue
    run aoticache verify --repair --cache-dir "$work/killed"
    run aoticache verify --json --cache-dir "$work/killed"
    [ "$status" = 0 ] || { not_ok "killed merge $round leaves a sound cache" 'verify found something' && break; }
    run aoticache merge "$AOTICACHE_DIR" --cache-dir "$work/killed"
    [ "$status" = 0 ] || { not_ok "killed merge $round can be done again" 'it failed' && break; }
done
[ "$failed" -gt 0 ] || ok 'a merge that is killed leaves a sound cache, and can be done again'
finish
