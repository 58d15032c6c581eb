# Completion for aoticache, aoticache-gc and aoticache-stat in bash. Commands and options are asked of the programs
# themselves, so that what is offered is what there is.
_aoticache_options() { # PROGRAM [COMMAND]
    if [ $# -gt 1 ]; then "$1" help "$2" 2>/dev/null; else "$1" --help 2>/dev/null; fi |
        sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'
}

_aoticache_keys() {
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"key": *"([0-9a-f]{12}).*/\1/p'
}

_aoticache_operators() {
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"op": *"([^"]*)".*/\1/p' | sort -u
}

_aoticache() {
    local program=$1 word=$2 previous=$3 command= words=
    COMPREPLY=()
    [ "${program##*/}" = aoticache ] && [ "$COMP_CWORD" -gt 1 ] && command=${COMP_WORDS[1]}
    case $previous in
    --cache-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word"); compopt -o filenames 2>/dev/null; return ;;
    --prometheus | --html | --python | --cc) mapfile -t COMPREPLY < <(compgen -f -- "$word"); compopt -o filenames 2>/dev/null; return ;;
    --color) words='auto always never' ;;
    --policy) words='lru cost' ;;
    *)
        if [ "${program##*/}" = aoticache ] && [ "$COMP_CWORD" -eq 1 ]; then
            words="$("$program" help 2>/dev/null | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) .*/\1/p') --help --version"
        elif [[ $word == -* ]]; then
            words=$(_aoticache_options "$program" ${command:+"$command"})
        else
            case $command in
            show | rm | pin | unpin | tag) words=$(_aoticache_keys) ;;
            ls | why | run | compile) words=$(_aoticache_operators) ;;
            help) words=$("$program" help 2>/dev/null | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) .*/\1/p') ;;
            add | run-package | inspect | warm | export | import | merge | copy)
                mapfile -t COMPREPLY < <(compgen -f -- "$word"); compopt -o filenames 2>/dev/null; return ;;
            esac
        fi ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    # Operators have colons, at which bash splits words.
    declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$word"
    return 0
}

complete -F _aoticache aoticache aoticache-gc aoticache-stat
