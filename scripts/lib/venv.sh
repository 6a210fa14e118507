# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Virtual environments below build/venv, made from Debian's own Python and kept for the next run.

readonly triton_version=3.9.0
readonly old_triton_version=2.1.0

# A stamp that names the packages, written last, tells a whole one from a broken one.
ensure_venv() { # NAME REQUIREMENT…: sets venv_path
    local name=$1 stamp
    shift
    venv_path=$repo/build/venv/$name
    stamp="$(/usr/bin/python3 --version) $*"
    if [ "$(cat "$venv_path/stamp" 2> /dev/null)" = "$stamp" ]; then
        return 0
    fi
    rm -rf "$venv_path"
    mkdir -p "$repo/build/venv" "$repo/build/logs"
    quietly "making a virtual environment with $*" "$repo/build/logs/venv-$name.log" \
        _make_venv "$venv_path" "$@" || return 1
    printf '%s\n' "$stamp" > "$venv_path/stamp"
}

_make_venv() { # PATH REQUIREMENT…
    local path=$1
    shift
    /usr/bin/python3 -m venv "$path" &&
        "$path/bin/python" -m pip install --disable-pip-version-check --no-input "$@" &&
        chmod -R a+rX "$path"
}

system_python_is_at_most() { # MAJOR MINOR
    /usr/bin/python3 -c "import sys; sys.exit(sys.version_info[:2] > ($1, $2))"
}
