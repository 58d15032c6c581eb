# Completion for fish. Commands and options are asked of the programs themselves, so that what is offered is what there is.

function __aoticache_commands
    aoticache help 2>/dev/null | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) +(.*)/\1\t\2/p'
end

function __aoticache_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and echo $words[2]
end

function __aoticache_options
    set -l words (commandline -opc)
    set -l command (__aoticache_command)
    if test (basename $words[1]) = aoticache -a -n "$command"
        aoticache help $command 2>/dev/null
    else
        $words[1] --help 2>/dev/null
    end | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z-]+).*/\2/p'
end

function __aoticache_keys
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"key": *"([0-9a-f]{12}).*/\1/p'
end

function __aoticache_operators
    aoticache ls --json 2>/dev/null | sed -nE 's/.*"op": *"([^"]*)".*/\1/p' | sort -u
end

complete -c aoticache -n 'test -z (__aoticache_command)' -f -a '(__aoticache_commands)'
complete -c aoticache -n 'contains -- (__aoticache_command) show rm pin unpin tag' -f -a '(__aoticache_keys)'
complete -c aoticache -n 'contains -- (__aoticache_command) ls why run compile' -f -a '(__aoticache_operators)'
for program in aoticache aoticache-gc aoticache-stat
    complete -c $program -n 'string match -q -- "-*" (commandline -ct)' -a '(__aoticache_options)'
end
