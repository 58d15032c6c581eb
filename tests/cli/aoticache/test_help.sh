#!/usr/bin/env bash
# The help of each program and command, short and long; and each option that it names, with its value in the next word and
# after '='.
. tests/cli/lib.sh

commands=$(aoticache help all | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) .*/\1/p' | grep -vx help)
programs=(aoticache-gc aoticache-stat)
for command in $commands; do programs+=("aoticache $command"); done
holds 'the commands are found' [ "${#programs[@]}" -ge 29 ]

# ---- short and long ----

whole_of() { $1 --help all; }
options_of() { whole_of "$1" | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'; }

for program in aoticache "${programs[@]}"; do
    try "$program --help" 0 $program --help
    is "$program --help: a screen" '' "$(awk 'length($0) > 80 { print } END { if (NR > 30) print NR " lines" }' "$out")"
    prints "$program --help: it says where the rest is" 'help all'
    cp "$out" "$work/short"
    try "$program --help all" 0 $program --help all
    prints "$program --help all: it has the exit codes" '^  7  the specified cache directory does not exist'
    is "$program --help all: 80 columns" '' "$(awk 'length($0) > 80' "$out")"
    cp "$out" "$work/whole"
    try "$program --help=all" 0 $program --help=all
    holds "$program --help=all: the same" cmp -s "$work/whole" "$out"
    missing=
    for option in $(options_of "$program"); do
        tr -s ' \n' ' ' <"$work/short" | grep -qE -- "$option([],. =[]|\$)" || missing="$missing $option"
    done
    is "$program --help: it names each option" '' "$missing"
    is "$program: each letter stands for one option" '' \
        "$(sed -nE 's/^  (-[a-zA-Z]), --.*/\1/p' "$work/whole" | sort | uniq -d)"
done
for command in $commands; do
    try "help $command" 0 aoticache help "$command"
    cp "$out" "$work/short"
    run aoticache "$command" --help
    holds "help $command: what $command --help prints" cmp -s "$work/short" "$out"
    run aoticache help "$command" all
    cp "$out" "$work/whole"
    run aoticache "$command" --help all
    holds "help $command all: what $command --help all prints" cmp -s "$work/whole" "$out"
done
run aoticache help
for command in $commands; do
    tr -s ' \n' ' ' <"$out" | grep -qE "[ ,:]$command[ ,]" || not_ok "help names $command" 'it does not'
done
try 'another word' 2 aoticache-gc --help=some
says 'is refused' "option --help: unknown value 'some'; the only value is all"

# ---- the value of an option ----

# Prints a value of each kind that the help knows, which an option of that kind takes.
value_for() { # PLACEHOLDER
    case $1 in
    *'|'*) tr '|' '\n' <<<"${1%]}" | sed 's/^\[=//' | grep -vE '^[A-Z]|:' | head -n 1 ;;
    DIR | DIRECTORY) echo "$work/absent" ;;
    FILE | PATH | '[=FILE]') echo "$work/absent/file" ;;
    SIZE) echo 10G ;;
    AGE | WHEN) echo 3d ;;
    TIME) echo 90s ;;
    N | SECONDS | NUMBER | '[=SECONDS]') echo 7 ;;
    DEVICE) echo cpu ;;
    DTYPE) echo int64 ;;
    LAYOUT) echo strided ;;
    FORMAT) echo channels_last ;;
    LEVEL) echo x86-64-v3 ;;
    SPEC | SPEC,*) echo float32:2 ;;
    RE,IM) echo 1,2 ;;
    V,V,*) echo 1,2 ;;
    NAME=PATTERN) echo 'a=b*' ;;
    KEY | PUBLIC-KEY) echo 0123456789ab ;;
    *) echo word ;;
    esac
}
# Prints a program's output and status, with a directory that does not exist, so that it does nothing.
outcome() { # COMMAND...
    (cd "$work" && "$@") </dev/null >"$work/told" 2>&1
    echo "status $?" && cat "$work/told"
}
for program in "${programs[@]}"; do
    differing= walked=0
    while read -r letter option value; do
        for word in "$(value_for "$value")" ''; do
            [ -n "$word" ] || word='~' # a value that no option of a checked kind accepts
            after=$(outcome $program "$option=$word")
            next=$(outcome $program "$option" "$word")
            short=$after
            [ "$letter" = - ] || short=$(outcome $program "$letter" "$word")
            walked=$((walked + 1))
            [[ "$after" == "$next" && "$after" == "$short" && "$after" != *"needs a value"* ]] ||
                differing="$differing
$option=$word: $after
$option $word: $next"
        done
    done < <(whole_of "$program" | sed -nE 's/^  (-[a-zA-Z]|   )[, ] ?--([a-z-]+)( |\[=)([^] ]+).*/\1 --\2 \4/p' |
        sed 's/^    /- /' | grep -vE -- '--(none|help) ')
    is "$program: --option VALUE and --option=VALUE" '' "$differing"
    holds "$program: its options are found" [ "$walked" -ge 4 ]
done
# For a program with operands, an optional value must follow '=': the next word is the operand.
aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
try '--none before an operator' 3 aoticache compile --none aten::abs --hook none
says 'takes no word' 'no kernel for these arguments of aten::abs'
try '--prometheus FILE' 0 env -u AOTICACHE_DIR HOME="$work/home" aoticache-stat --quiet --prometheus "$work/figures"
holds 'is written' [ -s "$work/figures" ]
try '--prometheus alone' 0 env -u AOTICACHE_DIR HOME="$work/home" aoticache-stat --quiet --prometheus
prints 'prints them' '^aoticache_hits_total'
try '--prometheus before another option' 0 env -u AOTICACHE_DIR HOME="$work/home" aoticache-stat --prometheus --by operator --quiet
prints 'prints them, too' '^aoticache_hits_total'
finish
