# bash completion for holdfast

_holdfast_options() {
    holdfast "$1" --help 2>/dev/null | sed -n 's/^ \{1,6\}\(-[A-Za-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p'
}

# run and lead: the job behind -- is completed as a command of its own
_holdfast_job() {
    local i
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [ "${COMP_WORDS[i]}" = -- ] && declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
            return 0
        fi
    done
    return 1
}

# The keys of locks that continue the line. Others choose them, so they come quoted from the command,
# and nothing here expands them.
_holdfast_keys() {
    mapfile -t COMPREPLY < <(holdfast complete -- bash "${COMP_LINE:0:COMP_POINT}" "$1" 2>/dev/null)
}

# Whether -- stands before the cursor.
_holdfast_behind_options() {
    local i
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [ "${COMP_WORDS[i]}" = -- ]; then return 0; fi
    done
    return 1
}

# The lists of words are split at spaces and lines, whatever IFS the user has set.
_holdfast() {
    local IFS=$' \t\n'
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} subcommand=${COMP_WORDS[1]}
    local subcommands="run lead hold wait latch ls show top deadlocks doctor break ping bench acl help"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 2 ] && [ "$subcommand" = help ]; then
        mapfile -t COMPREPLY < <(compgen -W "${subcommands% help}" -- "$word")
        return
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$subcommands --help --version" -- "$word")
        return
    fi
    if [[ $subcommand == run || $subcommand == lead ]] && _holdfast_job; then return; fi
    case $previous in
    -w | --wait | -E | --busy-exit | --duplicate-exit | -c | --command | --lease | --grace | --min-hold | --max-runtime | --pause | --one-by-one | --idempotent | --once-per | \
        --permits | --name | --url | --servers | --restart-guard | --ca | --cert | --key | --tenant | --credentials-command | --interval | --cycles | --workers | --kinds | --user | --prefix)
        return
        ;;
    esac
    if [[ $subcommand == latch && $COMP_CWORD -eq 2 && $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "set down wait count delete" -- "$word")
        return
    fi
    if [[ $word == -* ]] && ! _holdfast_behind_options; then
        mapfile -t COMPREPLY < <(compgen -W "$(_holdfast_options "$subcommand") --help --" -- "$word")
    elif [[ $subcommand == show || $subcommand == break || $subcommand == hold || $subcommand == wait || $subcommand == lead ]]; then
        _holdfast_keys "$2"
    fi
}

complete -o default -F _holdfast holdfast
