# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Every script sources this file first. It sets the paths, and defines functions that print messages and that register
# cleanup commands.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly repo

# Debian's programs come first: a user's own python3 or g++ in PATH may lack the files that Debian's packages install.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
export LC_ALL=C.UTF-8
# The caller's variables must not affect the tests: for example, CACHESHIM_JOB would determine the
# names of their jobs.
unset PYTHONPATH PYTHONHOME LD_PRELOAD "${!CACHESHIM_@}" "${!TRITON_@}"
# Other users must be able to read the build, whatever the caller's umask is.
umask 022

say() { # TEXT: prints a progress message
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() { # TEXT
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# If one of the arguments is --help or -h, prints the comment at the head of the script, and exits.
answer_help() { # [ARGUMENT…]
    case " $* " in
        *' --help '* | *' -h '*)
            sed -n '4,/^[^#]/s/^# \{0,1\}//p' "$0"
            exit 0
            ;;
    esac
}

require_root() {
    [ "$(id -u)" = 0 ] || die 'must be run as root: it starts jobs of several users'
}

_at_exit=()
at_exit() { # COMMAND…: runs the command at the end, even after Ctrl-C; the command that was added last runs first
    _at_exit+=("$(printf '%q ' "$@")")
}

_run_at_exit() {
    local index
    for ((index = ${#_at_exit[@]} - 1; index >= 0; index--)); do
        eval "${_at_exit[index]}" || true
    done
}
trap _run_at_exit EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a command and shows its output only if it fails. Prints every 10 s that the command is still running.
quietly() { # WHAT LOG COMMAND…
    local what=$1 log=$2 ticker status=0
    shift 2
    mkdir -p "${log%/*}"
    say "$what …"
    _tick "$what" &
    ticker=$!
    "$@" > "$log" 2>&1 < /dev/null || status=$?
    kill "$ticker" 2> /dev/null || true
    wait "$ticker" 2> /dev/null || true
    if [ "$status" != 0 ]; then
        tail -n 60 "$log" >&2
        say "$what: failed with status $status; all of its output: $log"
    fi
    return "$status"
}

_tick() { # WHAT
    local seconds=0
    trap - EXIT
    while sleep 10; do
        seconds=$((seconds + 10))
        say "$1 … $seconds s"
    done
}
