#!/usr/bin/env bash
# What helps to run it: completions of the shells, units for systemd, the line for cron, man pages.
. tests/cli/lib.sh

aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
key=$(aoticache ls --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["entries"][0]["key"][:12])')

# ---- bash ----

complete_bash() { # WORD...: what is offered for the last one, one per line
    bash -c '. scripts/completion/aoticache.bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _aoticache "$1" "${@: -1}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}
run complete_bash aoticache ru
prints 'bash completes commands' '^run$'
run complete_bash aoticache ls --s
prints 'bash completes options of a command' '^--sort$'
run complete_bash aoticache-gc --max-
prints 'bash completes options of aoticache-gc' '^--max-age$'
run complete_bash aoticache show ''
prints 'bash completes keys' "^$key\$"
run complete_bash aoticache ls ate
prints 'bash completes operators' '^aten::abs$'

# ---- the others ----

if command -v zsh >/dev/null; then
    try 'the completion of zsh is well formed' 0 zsh -n scripts/completion/_aoticache
else
    skip 'the completion of zsh is well formed' 'there is no zsh'
fi
if command -v fish >/dev/null; then
    complete_fish() { fish -c "source scripts/completion/aoticache.fish; complete -C '$1'"; }
    run complete_fish 'aoticache ru'
    prints 'fish completes commands' '^run'
    run complete_fish 'aoticache ls --s'
    prints 'fish completes options of a command' '^--sort'
    run complete_fish 'aoticache show '
    prints 'fish completes keys' "^$key"
else
    skip 'fish completes' 'there is no fish'
fi

# ---- what is installed, and taken back ----

stage=$work/stage
try 'what is built is installed' 0 install_to "$stage" /usr
for file in lib/systemd/user/aoticache-gc.service lib/systemd/user/aoticache-gc.timer \
    lib/systemd/system/aoticache-gc@.service lib/systemd/system/aoticache-gc@.timer \
    share/bash-completion/completions/aoticache-stat share/zsh/site-functions/_aoticache \
    share/fish/vendor_completions.d/aoticache-gc.fish share/doc/aoticache/crontab.example \
    share/doc/aoticache/aoticache.conf.example share/man/man1/aoticache-gc.1; do
    holds "installs $file" [ -s "$stage/usr/$file" ]
done
run grep -h ExecStart "$stage/usr/lib/systemd/user/aoticache-gc.service" "$stage/usr/lib/systemd/system/aoticache-gc@.service"
prints 'the units name the installed program' '^ExecStart=/usr/bin/aoticache-gc '
prints_not 'no place is left open' '@bindir@'

if command -v systemd-analyze >/dev/null; then
    # The program must be there for the check to pass: the units are looked at with the one that was built.
    mkdir "$work/units"
    for unit in "$stage"/usr/lib/systemd/user/* "$stage"/usr/lib/systemd/system/*; do
        sed "s|/usr/bin/aoticache-gc|$BUILD/bin/aoticache-gc|; /^Documentation=man:/d" "$unit" >"$work/units/${unit##*/}"
    done
    sed -i "s/^User=%i/User=$(id -un)/" "$work/units/aoticache-gc@.service"
    cp "$work/units/aoticache-gc@.service" "$work/units/aoticache-gc@x.service"
    run systemd-analyze verify --man=no "$work/units/aoticache-gc.service" "$work/units/aoticache-gc.timer" \
        "$work/units/aoticache-gc@x.service"
    is 'systemd finds nothing wrong with the units' '' "$(grep -i 'aoticache' "$err" || true)"
else
    skip 'systemd finds nothing wrong with the units' 'there is no systemd-analyze'
fi
# The command lines of the units and of cron are ones that the program takes.
while IFS= read -r line; do
    # shellcheck disable=SC2086
    try "the program takes: ${line#*aoticache-gc }" 0 aoticache-gc ${line#*aoticache-gc }
done < <(sed -n 's/^ExecStart=//p' "$stage"/usr/lib/systemd/*/*.service; sed -n '/^[0-9]/p' "$stage/usr/share/doc/aoticache/crontab.example")

try 'it is uninstalled' 0 uninstall_from "$stage" /usr
is 'and all of it is gone' '' "$(find "$stage" -type f)"

# ---- man pages ----

if command -v mandoc >/dev/null; then
    for page in docs/man/*.[1-8]; do
        try "mandoc: ${page##*/}" 0 mandoc -T lint -W warning "$page"
    done
else
    skip 'man pages' 'there is no mandoc'
fi
for program in aoticache-gc aoticache-stat; do
    missing=
    for option in $("$program" --help | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'); do
        sed 's/\\-/-/g' "docs/man/$program.1" | grep -q -- "$option" || missing="$missing $option"
    done
    is "the page of $program has all its options" '' "$missing"
done
missing=
for command in $(aoticache help | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) .*/\1/p'); do
    sed 's/\\-/-/g' docs/man/aoticache.1 | grep -q "$command" || missing="$missing $command"
done
is 'the page of aoticache has all its commands' '' "$missing"

finish
