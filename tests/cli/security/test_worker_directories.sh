#!/usr/bin/env bash
# The directories in which a worker's PyTorch keeps its files: other users must be unable to put files into them. Uses
# a fake torch, which records its arguments.
. tests/cli/lib.sh

mkdir -p "$work/packages/torch/_inductor" "$work/tmp" "$work/xdg" "$work/cwd"
chmod 1777 "$work/tmp"
echo "__version__ = '9.8.7'" >"$work/packages/torch/version.py"
touch "$work/packages/torch/_inductor/__init__.py"
cat >"$work/packages/torch/__init__.py" <<PYTHON
import json, os, tempfile
__version__ = '9.8.7'
noted = {name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")}
with open("$work/noted", "w") as file:
    json.dump({**noted, "temporary": tempfile.gettempdir(), "cwd": os.getcwd()}, file)
PYTHON
unset TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR
export PYTHONPATH=$work/packages TMPDIR=$work/tmp XDG_CACHE_HOME=$work/xdg
compile() { # VARIABLE=VALUE...: starts a worker; its compile fails, since there is no PyTorch
    rm -f "$work/noted"
    (cd "$work/cwd" && env "$@" aoticache compile aten::abs --input float32:2 --hook worker --python "$interpreter" --retry) \
        >"$out" 2>"$err"
    status=$?
}
noted() { field "$1" "$work/noted"; }
mode() { stat -c %a "$1"; }
refused() { # NAME PATTERN
    says "$1" "$2"
    holds 'and PyTorch is not imported' [ ! -e "$work/noted" ]
}

compile A=
is 'with nothing set' "$work/xdg/aoticache-worker" "$(noted TORCHINDUCTOR_CACHE_DIR)"
is 'it is the user'"'"'s alone' 700 "$(mode "$work/xdg/aoticache-worker")"
is 'temporary files have a directory of their own' "$work/tmp/aoticache-worker-$(id -u)" "$(noted TMPDIR)"
is 'which is the user'"'"'s alone' 700 "$(mode "$work/tmp/aoticache-worker-$(id -u)")"
is 'and is what Python takes' "$(noted TMPDIR)" "$(noted temporary)"
is 'the working directory is nobody'"'"'s' / "$(noted cwd)"
before=$(ls -A "$work/tmp" "$work/xdg")
compile A=
is 'the next worker takes the same' "$before" "$(ls -A "$work/tmp" "$work/xdg")"
compile -u XDG_CACHE_HOME HOME="$work/home"
is 'without XDG_CACHE_HOME' "$work/home/.cache/aoticache-worker" "$(noted TORCHINDUCTOR_CACHE_DIR)"

compile TORCHINDUCTOR_CACHE_DIR="$work/own/directory"
is 'the user'"'"'s own word counts' "$work/own/directory" "$(noted TORCHINDUCTOR_CACHE_DIR)"
is 'and the directory is made for him alone' 700 "$(mode "$work/own/directory")"
chmod 775 "$work/own/directory"
compile TORCHINDUCTOR_CACHE_DIR="$work/own/directory"
refused 'not where the group can write' "TORCHINDUCTOR_CACHE_DIR=$work/own/directory has mode 0775.*chmod go-w"
compile TRITON_CACHE_DIR="$work/own/directory"
refused 'Triton'"'"'s neither' "TRITON_CACHE_DIR=$work/own/directory has mode 0775"
chmod 755 "$work/own/directory" && chmod 777 "$work/own"
compile TORCHINDUCTOR_CACHE_DIR="$work/own/directory"
refused 'nor where it can be replaced' "is in $work/own, which everyone may change"
chmod 755 "$work/own"
compile TORCHINDUCTOR_CACHE_DIR=own/directory
refused 'nor by a relative path' 'TORCHINDUCTOR_CACHE_DIR=own/directory is not an absolute path'
ln -s "$work/own/directory" "$work/link"
compile TORCHINDUCTOR_CACHE_DIR="$work/link"
is 'of a link its target is used' "$work/own/directory" "$(noted TORCHINDUCTOR_CACHE_DIR)"

if [ "$(id -u)" != 0 ]; then
    skip 'directories of somebody else' 'it takes root to make them'
    finish
fi
chown 65534 "$work/own/directory" "$work/xdg/aoticache-worker" "$work/tmp/aoticache-worker-0"
compile TORCHINDUCTOR_CACHE_DIR="$work/own/directory"
refused 'a directory of somebody else' 'belongs to user 65534, not to user 0'
compile A=
mine=$(noted TMPDIR)
holds 'a name taken in the temporary directory is left alone' [ "$mine" != "$work/tmp/aoticache-worker-0" ]
is 'another one is private' 700 "$(mode "$mine")"
is 'and has what the home cannot have' "$mine/inductor" "$(noted TORCHINDUCTOR_CACHE_DIR)"
finish
