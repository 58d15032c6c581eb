# Completion for aoticache, aoticache-gc and aoticache-stat in bash. Commands, options and their values come from the
# programs themselves, so that only existing ones are offered.
_aoticache_help() { # PROGRAM [COMMAND]
    if [ $# -gt 1 ]; then "$1" help "$2" all 2>/dev/null; else "$1" --help all 2>/dev/null; fi
}

_aoticache_options() { # PROGRAM [COMMAND]
    _aoticache_help "$@" | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'
}

# Prints the help's name for the value of an option, --long or -s: DIR, auto|always|never; nothing if it takes none.
_aoticache_value() { # OPTION PROGRAM [COMMAND]
    local option=$1
    shift
    _aoticache_help "$@" | sed -nE "/^  (    $option|$option, --[a-z-]+|-[a-zA-Z], $option)([[ ]|$)/s/^ +(-[a-zA-Z], )?--[a-z-]+(\[=| )([^] ]+).*/\3/p"
}

_aoticache_keys() {
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"key": *"([0-9a-f]{12}).*/\1/p'
}

_aoticache_operators() {
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"op": *"([^"]*)".*/\1/p' | sort -u
}

_aoticache_tags() {
    aoticache tag --list --json 2>/dev/null | sed -nE 's/.*"tag": *"([^"]*)".*/\1/p'
}

_aoticache_settings() {
    aoticache config --json 2>/dev/null | sed -nE 's/^.*"name": *"([a-z_]+)".*/\1/p'
}

_aoticache_models() {
    aoticache model ls --json 2>/dev/null | sed -nE 's/^.*"name": *"([^"\\]+)".*/\1/p'
}

_aoticache_commands() { # PROGRAM [HEADING]
    "$1" help all 2>/dev/null | sed -nE "/^(Commands${2:+|$2}):/,/^\$/"'s/^  ([a-z-]+) .*/\1/p'
}

# Prints words for a value with this name in the help; "files" and "directories" tell the shell to list them.
_aoticache_words() { # VALUE OPTION
    case $1 in
    DIR | DIRECTORY) echo directories ;;
    FILE | PATH) echo files ;;
    KEY) _aoticache_keys ;;
    TAG) _aoticache_tags ;;
    OPERATOR) _aoticache_operators ;;
    PATTERN) case $2 in --op | --keep) _aoticache_operators ;; esac ;;
    DEVICE) echo cpu cuda ;;
    DTYPE) echo float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 ;;
    LAYOUT) echo strided ;;
    FORMAT) echo contiguous_format channels_last channels_last_3d preserve_format ;;
    *"|"*) tr '|' '\n' <<<"$1" | sed -E 's/[A-Z]+$//; /^$/d' ;;
    esac
}

# Prints words for an operand. POSITION is the number of words before it, since for some commands operands differ.
_aoticache_operands() { # COMMAND POSITION
    case $1 in
    show | rm | pin | unpin) _aoticache_keys ;;
    tag) if [ "$2" -le 2 ]; then _aoticache_keys; else _aoticache_tags; fi ;;
    ls | why | run | compile) _aoticache_operators ;;
    config) _aoticache_settings ;;
    help) _aoticache_commands aoticache Topics && echo all ;;
    inspect | run-package) _aoticache_keys && echo files ;;
    model) if [ "$2" -le 2 ]; then echo ls show run rm why compile; else _aoticache_models && echo files; fi ;;
    key) if [ "$2" -le 2 ]; then echo generate rotate public trust distrust list sign verify; else _aoticache_keys; fi ;;
    copy | merge) echo directories ;;
    add | warm | prefetch | export | import | record) echo files ;;
    esac
}

_aoticache() {
    local program=$1 line=${COMP_LINE:0:COMP_POINT} command= previous= word= value= words= head=
    local -a typed
    COMPREPLY=()
    # bash splits words at ':' and '=', which operators and options contain: so they are read from the line itself.
    read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=('')
    word=${typed[-1]}
    [ "${#typed[@]}" -gt 1 ] && previous=${typed[-2]}
    [ "${program##*/}" = aoticache ] && [ "${#typed[@]}" -gt 2 ] && command=${typed[1]}
    if [[ $word == --*=* ]]; then
        previous=${word%%=*} head=${word%%=*}= word=${word#*=}
    fi
    [[ $previous == -?* && $previous != -- ]] && value=$(_aoticache_value "$previous" "$program" ${command:+"$command"})
    # An optional value can only follow a '='.
    if [ -n "$value" ] && [ -z "$head" ] && _aoticache_help "$program" ${command:+"$command"} | grep -q -- "$previous\\[="; then
        value=
    fi
    if [ -n "$value" ]; then
        words=$(_aoticache_words "$value" "$previous")
    elif [ -n "$head" ]; then
        return 0
    elif [[ $word == -* ]]; then
        words=$(_aoticache_options "$program" ${command:+"$command"})
    elif [ "${program##*/}" = aoticache ] && [ -z "$command" ]; then
        words="$(_aoticache_commands "$program") --help --version"
    else
        words=$(_aoticache_operands "$command" "$((${#typed[@]} - 1))")
    fi
    if [[ $words == *files || $words == directories ]]; then
        local kind=-f
        [[ $words == directories ]] && kind=-d
        mapfile -t COMPREPLY < <(compgen "$kind" -- "$word")
        [ "${#COMPREPLY[@]}" -eq 0 ] || compopt -o filenames 2>/dev/null
        words=${words%files} words=${words#directories}
    fi
    [ -z "$words" ] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$words" -- "$word")
    # For bash the part before the last ':' or '=' is a separate word, and stays.
    [[ $COMP_WORDBREAKS == *=* ]] && head=
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        head=${word%"${word##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$head"}")
    elif [ -n "$head" ]; then
        COMPREPLY=("${COMPREPLY[@]/#/$head}")
    fi
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -F _aoticache aoticache aoticache-gc aoticache-stat
