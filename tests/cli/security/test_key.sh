#!/usr/bin/env bash
# aoticache key, and which kernels are accepted: two people, Ann and Bob, each with a cache and keys, as they would
# do it.
. tests/cli/lib.sh

ann() { AOTICACHE_KEYS=$work/ann AOTICACHE_DIR=$work/cache-of-ann "$@"; }
bob() { AOTICACHE_KEYS=$work/bob AOTICACHE_DIR=$work/cache-of-bob "$@"; }
archive=$work/kernels.tar.zst

for size in 4 5; do
    run ann aoticache run aten::abs --input "float32:$size=-2" --hook c --json
    [ "$status" = 0 ] || { not_ok 'set-up' 'the kernel does not compile' && finish; }
done
key=$(field key)
run aoticache key generate probe --output "$work/probe"
if [ "$status" != 0 ] && grep -q 'libcrypto' "$err"; then
    skip 'keys' 'there is no libcrypto' && finish
fi

# ---- making keys ----

# Commands that do not sign make no key, and so change no identity.
try 'public makes no key' 3 ann aoticache key public
says 'and says what does' '^aoticache key: you have no key to sign with yet; create one: aoticache key generate$'
prints_nothing 'nothing that a script could take for a key'
try 'nor does one without a home' 1 env -u HOME AOTICACHE_KEYS= aoticache key public
says 'which says what to set' 'set HOME, or AOTICACHE_KEYS$'
try 'list makes none' 0 ann aoticache key list
try 'nor ls with signatures' 0 ann aoticache ls --signatures
try 'nor show' 0 ann aoticache show "$key"
try 'nor verify' 0 ann aoticache verify
try 'nor key verify' 0 ann aoticache key verify
try 'nor doctor' 0 ann aoticache doctor
try 'nor a push that sends nothing' 0 ann aoticache push --all --dry-run --remote "http://127.0.0.1:9/"
try 'nor one without a remote' 3 ann aoticache push --all
try 'nor an import' 1 ann aoticache import /dev/null
try 'nor signing of nothing' 3 ann aoticache key sign --op 'none::*'
holds 'none is there' [ ! -e "$work/ann/secret-key" ]
run ann aoticache export "$archive"
if [ "$status" != 0 ] && grep -q 'libarchive' "$err"; then
    skip 'archives' 'there is no libarchive' && finish
fi
is 'an export signs, and makes one' 0 "$status"
says 'says so, with the fingerprint' "^aoticache export: made the key '.*@.*-1' \(SHA256:[A-Za-z0-9+/]{43}\) to sign with, in $work/ann/secret-key; on other machines: aoticache key trust [^ ]+$"
announced=$(sed -nE 's/.*aoticache key trust ([^ ]+)$/\1/p' "$err")
try 'public prints it from then on' 0 ann aoticache key public
is 'as it was said' "$announced" "$(cat "$out")"
says_nothing 'and nothing else'
is 'the secret key is for its owner alone' '600 700' "$(stat -c %a "$work/ann/secret-key") $(stat -c %a "$work/ann")"
public=$(cat "$out")
prints 'in the form of Nix' '^[^: ]+:[A-Za-z0-9+/]{43}=$'
holds 'no secret is printed' sh -c '! grep -qF "$(cut -d: -f2 "$1" | head -c 40)" "$2" "$3"' - "$work/ann/secret-key" "$out" "$err"
try 'the same key again' 0 ann aoticache key public
is 'the same' "$public" "$(cat "$out")"
try 'a key of one'\''s own stays' 1 ann aoticache key generate another
says 'with what to do' '--output FILE creates another'
try 'generate with a name' 0 aoticache key generate builder-1 --output "$work/builder-1"
prints 'prints the public part' '^builder-1:[A-Za-z0-9+/]{43}=$'
builder=$(cat "$out")
try 'a file is never replaced' 1 aoticache key generate builder-1 --output "$work/builder-1"
try 'a name that is none' 1 aoticache key generate 'a b' --output "$work/x"
try 'public of a file' 0 aoticache key public "$work/builder-1"
is 'of the same key' "$builder" "$(cat "$out")"
chmod 640 "$work/builder-1"
try 'a secret key that others can read' 1 aoticache key public "$work/builder-1"
says 'is refused, with what to do' 'is accessible to others \(mode 0640\): chmod 600 it'
chmod 600 "$work/builder-1"
try 'no action' 2 aoticache key
try 'an action that is none' 2 aoticache key generat
says 'with what is meant' 'unknown command .key generat. \(did you mean generate\?\)'

# ---- from Ann to Bob ----

# A pattern for the output of aoticache ls: the beginnings of all keys.
ids=$(ann aoticache ls --json | python3 -c 'import json, sys; print("|".join(e["key"][:12] for e in json.load(sys.stdin)["entries"]))')
try 'Bob, who does not know Ann, imports' 1 bob aoticache import "$archive"
prints 'nothing' '^imported 0 entries, .*; 2 refused, 2 of them because no trusted key signed them$'
is 'in one line' 1 "$(grep -c . "$err")"
says 'what was refused, as Ann'\''s ls shows it, who signed it and what to do' "^aoticache import: warning: the archive: 2 entries refused \(($ids), ($ids)\): signed by '${public%%:*}', a key that is not trusted here; if its owner may run code here, repeat this after: aoticache key trust [^ ]+$"
sed -n 's/.*repeat this after: //p' "$err" >"$work/remedy"
try 'each refusal is named if asked for' 1 bob aoticache import "$archive" --verbose
is 'by its key' 2 "$(grep -cE "refused: entry ($ids): no key that is trusted here signed it: " "$err")"
try 'a dry run says the same' 1 bob aoticache import "$archive" --dry-run
holds 'with the remedy' grep -qF "$(cat "$work/remedy")" "$err"
carol() { AOTICACHE_KEYS=$work/carol-keys AOTICACHE_DIR=$work/cache-of-carol-2 "$@"; }
try 'what it says to do can be typed as it is printed' 0 carol bash -e "$work/remedy"
try 'and works' 0 carol aoticache import "$archive"
prints 'for all of them' '^imported 2 entries'
# A key's creator chooses its name, and users type what is printed.
evil="it's;touch\${IFS}pwned;\$(touch\${IFS}pwned)"
try 'a name that a shell would run' 0 aoticache key generate "$evil" --output "$work/evil"
try 'signs' 0 ann aoticache export "$work/evil.tar" --sign-with "$work/evil"
dave() { AOTICACHE_KEYS=$work/dave-keys AOTICACHE_DIR=$work/cache-of-dave "$@"; }
try 'is refused' 1 dave aoticache import "$work/evil.tar"
sed -n 's/.*repeat this after: //p' "$err" >"$work/remedy"
try 'what is printed is one word of a shell' 0 dave env -C "$work" bash -e "$work/remedy"
holds 'and runs nothing' [ ! -e "$work/pwned" ]
holds 'it trusts that key' grep -qF "$evil:" "$work/dave-keys/trusted_keys"
try 'whose entries come in' 0 dave aoticache import "$work/evil.tar"
run ann aoticache key list
fingerprint=$(grep -oE 'SHA256:[A-Za-z0-9+/]{43}' "$out")
try 'a fingerprint that is none' 2 bob aoticache import "$archive" --trust SHA256:abc
try 'a stranger'\''s' 1 bob aoticache import "$archive" --trust "$builder"
try 'Ann'\''s' 0 bob aoticache import "$archive" --trust "$fingerprint"
prints 'all' '^imported 2 entries'
try 'and from now on' 0 bob aoticache key list
holds 'she is trusted' grep -qF "$fingerprint  you         trusted" "$out"
try 'the kernels run' 0 bob aoticache run aten::abs --input float32:5=-2 --hook none --json
member 'as they came' source index
try 'show says who signed' 0 bob aoticache show "$key"
prints 'by name' "^signed by +${public%%:*} \(trusted, SHA256:"
try 'ls too' 0 bob aoticache ls --signatures
prints 'in a column' "SIGNED BY"
try 'in JSON' 0 bob aoticache ls --signatures --json
member 'with the state' entries.0.signatures.0.state trusted
try 'key verify' 0 bob aoticache key verify "$key"
prints 'one line each' "^${key:0:12}  .* signed by ${public%%:*} \(trusted"
try 'of what nobody signed' 1 ann aoticache key verify "$key"
prints 'says so' 'signed by nobody$'
try 'unless all are asked for' 0 ann aoticache key verify
try 'counted' 0 env AOTICACHE_DIR="$work/cache-of-bob" aoticache-stat --json
member 'each refusal' counters.refused_untrusted 8

# ---- an attacker changes the archive ----

if command -v python3 >/dev/null && command -v zstd >/dev/null; then
    cat >"$work/change.py" <<'PYTHON'
import io, subprocess, sys, tarfile
plain = subprocess.run(["zstd", "-dc", sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout
how = sys.argv[3]
with tarfile.open(fileobj=io.BytesIO(plain)) as source, tarfile.open(sys.argv[2], "w") as target:
    members = [(m, source.extractfile(m).read()) for m in source]
signed = [number for number, (m, _) in enumerate(members) if m.name.startswith("signatures/")]
if how == "strip":
    members = [pair for number, pair in enumerate(members) if number not in signed]
elif how == "swap":
    a, b = signed
    members[a], members[b] = (members[a][0], members[b][1]), (members[b][0], members[a][1])
elif how == "double":
    members[signed[0]] = (members[signed[0]][0], members[signed[0]][1] * 2)
elif how == "move":
    members.append(members.pop(signed[0]))
    members[-1], members[-2] = members[-2], members[-1]
with tarfile.open(sys.argv[2], "w") as target:
    for member, data in members:
        member.size = len(data)
        target.addfile(member, io.BytesIO(data))
PYTHON
    while read -r how count reason; do
        python3 "$work/change.py" "$archive" "$work/$how.tar" "$how"
        try "signatures: $how" 1 bob aoticache import "$work/$how.tar" --cache-dir "$work/cache-$how"
        prints "$how: refused" "^imported $((2 - count)) entr.*, $count of them because no trusted key signed them"
        says "$how: says why" "$reason"
        try "$how: what is there is sound" 0 bob aoticache verify --cache-dir "$work/cache-$how"
    done <<'CHANGES'
strip 2 2 entries refused .*: they are not signed; on the machine that made them, run: aoticache key sign --all$
swap 2 a signature is not valid for this entry
double 1 a key signed it twice
move 1 1 entry refused .*: it is not signed; on the machine that made it, run: aoticache key sign --all$
CHANGES
    try 'a moved signature is named' 1 bob aoticache import "$work/move.tar" --cache-dir "$work/cache-named"
    says 'by its manifest' 'the signatures of manifest [0-9a-f]{64} are not followed by that manifest'
    try 'a refusal is an error, quietly too' 1 bob aoticache import "$work/strip.tar" --quiet --cache-dir "$work/cache-quiet"
    says 'says how many' '^aoticache import: [0-9]+ refused; run without --quiet to see each'
    try '--allow-unsigned takes what is stripped' 0 bob aoticache import "$work/strip.tar" --allow-unsigned --cache-dir "$work/cache-allowed"
    try 'not what is wrong' 1 bob aoticache import "$work/swap.tar" --allow-unsigned --cache-dir "$work/cache-allowed-2"
else
    skip 'changed archives' 'there is no zstd'
fi

# ---- the configuration ----

try 'unsigned' 0 ann aoticache export "$work/unsigned.tar.zst" --no-sign
try 'is refused' 1 bob aoticache import "$work/unsigned.tar.zst" --cache-dir "$work/cache-3"
try 'unless no signatures are required' 0 env AOTICACHE_REQUIRE_SIGNATURES=false AOTICACHE_KEYS="$work/bob" \
    aoticache import "$work/unsigned.tar.zst" --cache-dir "$work/cache-3"
try 'keys of the environment' 0 env AOTICACHE_TRUSTED_KEYS="$public $builder" AOTICACHE_KEYS="$work/nobody" \
    aoticache import "$archive" --cache-dir "$work/cache-4"
try 'list makes no cache' 0 aoticache key list --cache-dir "$work/cache-none"
holds 'where there is none' [ ! -e "$work/cache-none" ]
try 'several are listed' 0 env AOTICACHE_TRUSTED_KEYS="$public $builder" AOTICACHE_KEYS="$work/nobody" aoticache key list --json
try 'a revoked one' 1 env AOTICACHE_TRUSTED_KEYS="$public" AOTICACHE_REVOKED_KEYS="$fingerprint" AOTICACHE_KEYS="$work/nobody" \
    aoticache import "$archive" --cache-dir "$work/cache-5"
says 'is refused whoever trusts it' 'a revoked key signed it'
try '--no-sign and --sign-with' 2 ann aoticache export "$work/x" --no-sign --sign-with "$work/builder-1"
try 'two keys sign' 0 ann aoticache export "$work/two.tar.zst" --sign-with "$work/builder-1" --sign-with "$work/ann/secret-key"
try 'either is enough' 0 env AOTICACHE_TRUSTED_KEYS="$builder" AOTICACHE_KEYS="$work/nobody" \
    aoticache import "$work/two.tar.zst" --cache-dir "$work/cache-6"
try 'a key that is not there' 3 ann aoticache export "$work/x" --sign-with "$work/nowhere"

# ---- signing in place, merge and copy ----

try 'sign says what to sign' 2 ann aoticache key sign
try 'sign all' 0 ann aoticache key sign --all
says 'counts' "^aoticache key: signed 2 entries with '"
try 'with another key too' 0 ann aoticache key sign "$key" --sign-with "$work/builder-1"
try 'copy keeps signatures' 0 ann aoticache copy "$work/copied"
try 'all of them' 0 ann aoticache show "$key" --cache-dir "$work/copied" --json
member 'the first' entries.0.signatures.0.name "${public%%:*}"
member 'the second, whose key is not known' entries.0.signatures.1.state 'unknown key'
rm "$work/copied/index.sqlite3"*
try 'a rebuilt index has them' 0 ann aoticache show "$key" --cache-dir "$work/copied" --json
member 'still' entries.0.signatures.1.name builder-1
chmod 770 "$work/copied"
try 'a directory that others may write is foreign' 1 env AOTICACHE_KEYS="$work/nobody" \
    aoticache merge "$work/copied" --allow-shared --cache-dir "$work/cache-7"
says 'and needs trusted signatures' "copied: 2 entries refused \\(.*\\): signed by '[^']+', a key that is not trusted here; .*run 'aoticache key public' there"
try 'which Bob has' 0 bob aoticache merge "$work/copied" --allow-shared --cache-dir "$work/cache-8"
chmod 700 "$work/copied"

# ---- no cost without signatures; the doctor ----

if LD_DEBUG=files aoticache --version 2>&1 | grep -q 'calling init'; then
    loads_libcrypto() { LD_DEBUG=files ann "$@" 2>&1 >/dev/null | grep -q 'calling init.*libcrypto'; }
    if ldd "$BUILD/bin/aoticache" "$BUILD/lib/libaoticache.so" | grep -q libcrypto; then
        skip 'libcrypto is loaded by signatures alone' 'this build links it'
    else
        loads_libcrypto aoticache run aten::abs --input float32:5=-2 --hook none --quiet
        is 'a hit loads no libcrypto, in a cache with signatures' 1 "$?"
        loads_libcrypto aoticache key verify
        is 'checking one does' 0 "$?"
    fi
fi
# A library of that name without functions replaces a missing one.
mkdir "$work/empty"
if "${CC:-cc}" -shared -nostdlib -Wl,-soname,libcrypto.so.3 -x c /dev/null -o "$work/empty/libcrypto.so.3" 2>/dev/null &&
    ! ldd "$BUILD/lib/libaoticache.so" | grep -q libcrypto; then
    without() { LD_LIBRARY_PATH=$work/empty "$@"; }
    try 'without libcrypto no key is made' 5 without aoticache key generate x --output "$work/x"
    says 'with what to install' 'install OpenSSL'
    ann aoticache key sign --all --quiet
    try 'nothing is taken in for want of a check' 5 without env AOTICACHE_TRUSTED_KEYS="$public" AOTICACHE_KEYS="$work/nobody" \
        aoticache merge "$work/cache-of-ann" --cache-dir "$work/cache-10"
    says 'and why' 'install OpenSSL'
    try 'a hit needs none' 0 without ann aoticache run aten::abs --input float32:5=-2 --hook none --quiet
else
    skip 'without libcrypto' 'no compiler, or this build links it'
fi
try 'doctor' 0 ann aoticache doctor
prints 'names the own key' "own key +'${public%%:*}'"
try 'doctor of one who requires none' 0 env AOTICACHE_REQUIRE_SIGNATURES=no AOTICACHE_DIR="$work/cache-of-bob" \
    AOTICACHE_KEYS="$work/bob" aoticache doctor
prints 'warns' 'signatures +not required'
chmod 644 "$work/ann/secret-key"
try 'a secret key that others can read' 0 ann aoticache doctor
prints 'is found' 'own key.*is accessible to others'
try 'and signs nothing' 1 ann aoticache export "$work/x"
holds 'no archive is there then' [ ! -e "$work/x" ]
chmod 600 "$work/ann/secret-key"

# ---- a compromised key ----

try 'Bob revokes Ann'\''s key by its name' 0 bob aoticache key distrust "${public%%:*}"
prints 'and is told what went' '^removed [0-9a-f]{12}: only the revoked key .* signed it$'
says 'and how much' '2 entries removed from '
holds 'the key itself is written down' grep -qxF "$public" "$work/bob/revoked_keys"
holds 'not the trusted one' sh -c '! grep -q . "$1"' - "$work/bob/trusted_keys"
try 'the kernels are gone' 3 bob aoticache show "$key"
try 'they do not come again' 1 bob aoticache import "$archive" --trust "$public"
says 'whatever is said' 'a revoked key signed it'
try 'another cache of his has them yet' 4 bob aoticache verify --cache-dir "$work/cache-8"
prints 'and says so' '^signature .*only the revoked key'
try 'repair removes them' 0 bob aoticache verify --repair --cache-dir "$work/cache-8"
try 'but for those that another trusted key signed' 0 bob aoticache ls --cache-dir "$work/cache-8"
try 'a change of mind' 0 bob aoticache key trust "$public"
try 'takes it back' 0 bob aoticache import "$archive"
artifact=$(bob aoticache show "$key" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["entries"][0]["artifact"])')
try 'one entry is revoked by its digest' 0 bob aoticache key distrust "$artifact"
prints 'alone' "^removed ${artifact:0:12}: the entry is revoked"
try 'and refused' 1 bob aoticache import "$archive"
says 'by name' 'the entry is revoked'
echo 'nonsense:nonsense' >>"$work/bob/revoked_keys"
try 'a damaged list of revoked keys' 1 bob aoticache import "$archive"
says 'stops everything, with its place' 'revoked_keys:[0-9]+: .*until this line is corrected'

# ---- a user's own key that is revoked, and its replacement ----

eve() { AOTICACHE_KEYS=$work/eve AOTICACHE_DIR=$work/cache-of-eve "$@"; }
frank() { AOTICACHE_KEYS=$work/frank AOTICACHE_DIR=$work/cache-of-frank "$@"; }
try 'no key, nothing to replace' 3 eve aoticache key rotate
says 'and what makes one' 'create one: aoticache key generate$'
try 'a key' 0 eve aoticache key generate eve@box-9
first=$(cat "$out")
for size in 4 5; do run eve aoticache run aten::abs --input "float32:$size=-2" --hook c; done
try 'one entry is signed' 0 eve aoticache key sign "$key"
try 'another key in its place' 0 eve aoticache key rotate
second=$(cat "$out")
is 'with the next number' "eve@box-10" "${second%%:*}"
says 'the old one stays' "the old key 'eve@box-9' is kept in $work/eve/secret-key.old-1, and its signatures are still accepted here"
says 'what it signed is signed again, and nothing else' "signed 1 entry that 'eve@box-9' had signed"
is 'files of its owner alone' '600 600' "$(stat -c %a "$work/eve/secret-key" "$work/eve/secret-key.old-1" | paste -sd' ')"
try 'it is the one that signs' 0 eve aoticache key public
is 'from now on' "$second" "$(cat "$out")"
try 'both signed the entry' 0 eve aoticache key verify "$key"
prints 'and both are trusted' "signed by eve@box-9 \(trusted, .*, eve@box-10 \(trusted"
try 'the same name twice' 1 eve aoticache key rotate eve@box-10
says 'is no new key' 'choose another name for the new key'
try 'nor a name that is none' 1 eve aoticache key rotate '#1'
is 'which changes nothing' "$second" "$(eve aoticache key public)"
is 'and leaves nothing' 'revoked_keys secret-key secret-key.old-1 trusted_keys' "$(touch "$work/eve/revoked_keys" && ls "$work/eve" | paste -sd' ')"
try 'her own key is revoked' 0 eve aoticache key distrust eve@box-10
says 'which is said' 'it is your own key and no longer signs'
try 'an entry of later' 0 eve aoticache run aten::neg --input float32:3=-2 --hook c
try 'export' 1 eve aoticache export "$work/of-eve.tar"
says 'says why it signs nothing' "key 'eve@box-10' \(SHA256:.*\): it is revoked and cannot sign; create another with 'aoticache key rotate'$"
holds 'and makes nothing' [ ! -e "$work/of-eve.tar" ]
try 'not if the file is named either' 1 eve aoticache export "$work/of-eve.tar" --sign-with "$work/eve/secret-key"
try 'key sign' 1 eve aoticache key sign --all
try 'nor with that file' 1 eve aoticache key sign --all --sign-with "$work/eve/secret-key"
try 'nor a push' 1 eve aoticache push --all --remote "http://127.0.0.1:9/"
try 'an export without a signature' 0 eve aoticache export "$work/of-eve.tar" --no-sign
try 'doctor' 0 eve aoticache doctor
prints 'tells' "own key.*'eve@box-10'.* is revoked"
prints_not 'and does not call it well' "ok +own key"
try 'generate makes another' 0 eve aoticache key generate eve@box-11
third=$(cat "$out")
says 'and keeps the old one, revoked' "eve@box-10' is kept in .*/secret-key.old-2, and is still revoked"
try 'which signs' 0 eve aoticache export "$work/of-eve.tar"
try 'what others take who trust it' 0 frank aoticache import "$work/of-eve.tar" --trust "$third"
try 'a key that is not revoked stays' 1 eve aoticache key generate eve@box-12
says 'with what replaces it' "'aoticache key rotate' replaces it"
# Two keys may have one name, if configuration and user each trust one.
run aoticache key generate twin --output "$work/twin-1" && one=$(cat "$out")
run aoticache key generate twin --output "$work/twin-2" && two=$(cat "$out")
try 'one key is trusted' 0 frank aoticache key trust "$one"
try 'a name that two keys have is revoked' 0 frank env AOTICACHE_TRUSTED_KEYS="$two" aoticache key distrust twin
holds 'both of them' sh -c 'grep -qxF "$2" "$1" && grep -qxF "$3" "$1"' - "$work/frank/revoked_keys" "$one" "$two"
# A '#' in a name does not begin a comment, but at its beginning it would.
try 'a name that is a comment' 1 aoticache key generate '#b' --output "$work/x"
says 'is none' "and must not begin with '#'"
try 'one with a # in it' 0 aoticache key generate 'x#y' --output "$work/x#y"
sharp=$(cat "$out")
try 'signs' 0 eve aoticache export "$work/sharp.tar" --sign-with "$work/x#y"
try 'is trusted' 0 frank aoticache import "$work/sharp.tar" --cache-dir "$work/cache-sharp" --trust "$sharp"
try 'and is revoked' 0 frank aoticache key distrust 'x#y' --cache-dir "$work/cache-sharp"
prints 'with what it signed' "^removed [0-9a-f]{12}: only the revoked key x#y signed it$"
try 'for good' 1 frank aoticache import "$work/sharp.tar" --cache-dir "$work/cache-sharp" --trust "$sharp"

# ---- a terminal ----

if command -v script >/dev/null; then
    ask() { # ANSWER DIRECTORY
        AOTICACHE_KEYS=$work/carol AOTICACHE_DIR=$work/cache-of-carol \
            script -qec "aoticache import '$archive'; echo status \$?" /dev/null <<<"$1" >"$out" 2>"$err"
    }
    ask no
    prints 'on a terminal a person is asked' 'Trust this key from now on \(yes/no\)\?'
    holds 'and shown the fingerprint' grep -qF "  $fingerprint" "$out"
    prints 'no is no' '^imported 0 entries'
    holds 'nobody is trusted' [ ! -e "$work/carol/trusted_keys" ]
    ask yes
    prints 'yes takes it in' '^imported 2 entries'
    try 'and is remembered' 0 env AOTICACHE_KEYS="$work/carol" aoticache import "$archive" --cache-dir "$work/cache-9"
else
    skip 'a terminal' 'there is no script(1)'
fi

# ---- the examples of docs/signatures.md ----

mkdir "$work/here"
for name in own fleet; do # docs/signatures.md own, docs/signatures.md fleet
    example docs/signatures.md "$name" >"$work/commands"
    (cd "$work/here" && HOME=$work/here ann bash -e "$work/commands") >"$out" 2>"$err"
    status=$?
    is "docs/signatures.md: $name" 0 "$status"
    [ "$status" = 0 ] || cat "$err" >&2
done
prints 'the fleet has them' '^imported 0 entries, .*2 were there already'
finish
