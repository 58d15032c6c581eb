# Completion for fish. Commands, options and their values come from the programs themselves, so that only existing ones are
# offered.

function __aoticache_commands
    set -l headings (string join '|' Commands $argv)
    aoticache help all 2>/dev/null | sed -nE "/^($headings):/,/^\$/"'s/^  ([a-z-]+) +(.*)/\1\t\2/p'
end

function __aoticache_command
    set -l words (commandline -opc)
    test (basename $words[1]) = aoticache; and test (count $words) -gt 1; and echo $words[2]
end

function __aoticache_help
    set -l words (commandline -opc)
    set -l command (__aoticache_command)
    if test -n "$command"
        aoticache help $command all 2>/dev/null
    else
        $words[1] --help all 2>/dev/null
    end
end

function __aoticache_options
    __aoticache_help | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'
end

# Prints the help's name for the value of an option, --long or -s: DIR, auto|always|never; nothing if it takes none.
function __aoticache_value # OPTION
    __aoticache_help | sed -nE "/^  (    $argv[1]|$argv[1], --[a-z-]+|-[a-zA-Z], $argv[1])([[ ]|\$)/s/^ +(-[a-zA-Z], )?--[a-z-]+(\[=| )([^] ]+).*/\3/p"
end

# Prints the option whose value is being typed: --name VALUE or --name=VALUE; nothing if none is.
function __aoticache_option
    set -l current (commandline -ct)
    if string match -q -- '--*=*' $current
        string replace -r '=.*' '' -- $current
        return
    end
    set -l words (commandline -opc)
    # An optional value can only follow a '='.
    if string match -qr -- '^-.' $words[-1]; and not __aoticache_help | grep -q -- "$words[-1]\["
        test -n "$(__aoticache_value $words[-1])"; and echo -- $words[-1]
    end
end

function __aoticache_keys
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"key": *"([0-9a-f]{12}).*/\1/p'
end

function __aoticache_operators
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"op": *"([^"]*)".*/\1/p' | sort -u
end

function __aoticache_tags
    aoticache tag --list --json 2>/dev/null | sed -nE 's/.*"tag": *"([^"]*)".*/\1/p'
end

function __aoticache_settings
    aoticache config --json 2>/dev/null | sed -nE 's/^.*"name": *"([a-z_]+)".*/\1/p'
end

function __aoticache_models
    aoticache model ls --json 2>/dev/null | sed -nE 's/^.*"name": *"([^"\\]+)".*/\1/p'
end

function __aoticache_words # VALUE OPTION
    switch $argv[1]
        case DIR DIRECTORY
            __fish_complete_directories (string replace -r '^--[a-z-]*=' '' -- (commandline -ct))
        case FILE PATH
            __fish_complete_path (string replace -r '^--[a-z-]*=' '' -- (commandline -ct))
        case KEY
            __aoticache_keys
        case TAG
            __aoticache_tags
        case OPERATOR
            __aoticache_operators
        case PATTERN
            contains -- $argv[2] --op --keep; and __aoticache_operators
        case DEVICE
            printf '%s\n' cpu cuda
        case DTYPE
            printf '%s\n' float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128
        case LAYOUT
            echo strided
        case FORMAT
            printf '%s\n' contiguous_format channels_last channels_last_3d preserve_format
        case '*|*'
            string split '|' -- $argv[1] | string replace -r '[A-Z]+$' '' | string match -v ''
    end
end

function __aoticache_values
    set -l option (__aoticache_option)
    set -l head (string match -r -- '^--[a-z-]*=' (commandline -ct))
    __aoticache_words (__aoticache_value $option) $option | string replace -r '^' -- "$head"
end

function __aoticache_operands
    set -l words (commandline -opc)
    switch (__aoticache_command)
        case show rm pin unpin
            __aoticache_keys
        case tag
            test (count $words) -le 2; and __aoticache_keys; or __aoticache_tags
        case ls why run compile
            __aoticache_operators
        case config
            __aoticache_settings
        case help
            __aoticache_commands Topics
            echo all
        case model
            test (count $words) -le 2; and printf '%s\n' ls show run rm why compile; or __aoticache_models
        case inspect run-package
            __aoticache_keys
            __fish_complete_path (commandline -ct)
        case key
            test (count $words) -le 2; and printf '%s\n' generate rotate public trust distrust list sign verify; or __aoticache_keys
        case copy merge
            __fish_complete_directories (commandline -ct)
        case add warm prefetch export import record
            __fish_complete_path (commandline -ct)
    end
end

for program in aoticache aoticache-gc aoticache-stat
    complete -c $program -f
    complete -c $program -n 'test -n "$(__aoticache_option)"' -a '(__aoticache_values)'
    complete -c $program -n 'test -z "$(__aoticache_option)"; and string match -q -- "-*" (commandline -ct)' -a '(__aoticache_options)'
end
complete -c aoticache -n 'test -z "$(__aoticache_command)"' -a '(__aoticache_commands)'
complete -c aoticache -n 'test -n "$(__aoticache_command)"; and test -z "$(__aoticache_option)"' -a '(__aoticache_operands)'
