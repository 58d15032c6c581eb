#!/usr/bin/env bash
# aoticache add and run-package, on a package made here from a kernel that a C compiler makes. Packages from PyTorch
# are tested in tests/python/packages/test_packages.py.
. tests/cli/lib.sh

if ! ls "$BUILD"/tests/hosts/affine.so >/dev/null 2>&1; then
    skip 'packages' "tests/hosts/affine.so is not built (make tests)"
    finish
fi
pack() { # FILE: two models, one of them with metadata for another machine
    python3 - "$1" "$BUILD/tests/hosts/affine.so" <<'PYTHON'
import json, platform, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    for model, machine in (("model", platform.machine()), ("far", "vax")):
        at = f"top/data/aotinductor/{model}/"
        archive.write(sys.argv[2], at + "x.wrapper.so")
        archive.writestr(at + "x.wrapper.cpp", "int x;")
        archive.writestr(at + "x.wrapper_metadata.json", json.dumps({"AOTI_DEVICE_KEY": "cpu", "AOTI_MACHINE": machine}))
PYTHON
}
pack "$work/p.pt2" || exit 1

try 'the whole overview has the commands' 0 aoticache help all
holds 'both' grep -q '^  run-package ' "$out"
try 'add explains itself' 0 aoticache help add
try 'run-package explains itself' 0 aoticache run-package --help
try 'add needs a package' 2 aoticache add
try 'run-package needs a package' 2 aoticache run-package
try 'no such package' 3 aoticache add "$work/none.pt2"
says 'is named' none.pt2
try 'no such key' 3 aoticache run-package 0123456789ab --json
echo hello >"$work/text.pt2"
try 'no archive' 1 aoticache add "$work/text.pt2"
says 'says so' 'not a valid ZIP archive'

try 'both models are added' 0 aoticache add "$work/p.pt2"
holds 'two lines' [ "$(grep -c ': added$' "$out")" = 2 ]
try 'once' 0 aoticache add "$work/p.pt2" --json
holds 'neither again' [ "$(grep -c '"added": false' "$out")" = 2 ]
key=$(python3 -c 'import json, sys; print([m["key"] for m in json.load(open(sys.argv[1])) if m["model"] == "model"][0])' "$out")
try 'one model alone' 0 aoticache add "$work/p.pt2" --model model --json
holds 'one' [ "$(grep -c '"key"' "$out")" = 1 ]
try 'an unknown model' 3 aoticache add "$work/p.pt2" --model nobody
says 'those there are' 'far, model'
try 'an unknown feature' 2 aoticache add "$work/p.pt2" --cpu warp
holds 'nothing is left in tmp' [ -z "$(ls -A "$AOTICACHE_DIR/tmp")" ]

try 'it runs' 0 aoticache run-package "$work/p.pt2" --input float32:2x4=arange --json
member 'from the cache' added false
member 'without unpacking' add_ns 0
result=$(field outputs)
try 'by its key, without the file' 0 aoticache run-package "${key:0:12}" --input float32:2x4=arange --json --repeat 5
member 'the same key' key "$key"
member 'the same result' outputs "$result"
member 'repeated' repeat 5
try 'for people' 0 aoticache run-package "$work/p.pt2" --input float32:2x4=arange
holds 'with the source' grep -q 'found in the cache' "$out"
try 'too few inputs' 1 aoticache run-package "$work/p.pt2"
try "another machine's" 5 aoticache run-package "$work/p.pt2" --model far --input float32:2x4
says 'is named' vax
try 'a device it was not made for' 5 aoticache run-package "$work/p.pt2" --device cuda --input float32:2x4
try 'ls shows it' 0 aoticache ls aoticache::package
holds 'both models' [ "$(grep -c 'aoticache::package' "$out")" = 2 ]
try 'rm removes it' 0 aoticache rm "$key"
try 'the key is gone' 3 aoticache run-package "$key" --input float32:2x4
try 'the package brings it back' 0 aoticache run-package "$work/p.pt2" --input float32:2x4 --json
member 'added' added true
try 'what is stored is sound' 0 aoticache verify
finish
