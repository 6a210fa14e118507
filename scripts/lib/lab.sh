# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Runs the Triton storm (tests/storm) in namespaces of its own.

storm() { # MODE [ARGUMENT…]: as tests/storm/storm.py; call ensure_triton before
    local work options=()
    mkdir -p "$repo/build/storm"
    _sweep_storm_folders
    work=$(mktemp -d "$repo/build/storm/XXXXXX")
    at_exit rm -rf "$work"
    # Held as long as somebody works there: what has no holder is swept by the next run.
    exec {storm_lock}> "$work.lock"
    at_exit rm -f "$work.lock"
    flock -n "$storm_lock"
    if [ -n "${old_triton_venv:-}" ]; then
        options+=(--triton-old "$old_triton_venv")
    fi
    mkdir "$work/disk"
    # In the background, so that a signal to this script is acted upon at once.
    "$repo/tests/storm/enter-lab.sh" "$work" /usr/bin/python3 -B "$repo/tests/storm/storm.py" "$@" \
        --repo "$repo" --work "$work/disk" --triton "$triton_venv" "${options[@]}" &
    storm_pid=$!
    at_exit _end_storm
    wait "$storm_pid"
}

_end_storm() {
    kill -KILL "$storm_pid" 2> /dev/null || return 0
    wait "$storm_pid" 2> /dev/null || true
}

_sweep_storm_folders() {
    local lock
    for lock in "$repo"/build/storm/*.lock; do
        [ -e "$lock" ] || continue
        flock -n "$lock" rm -rf "${lock%.lock}" "$lock" || true
    done
}

ensure_triton() {
    ensure_venv triton "triton==$triton_version" || die "cannot get Triton $triton_version"
    triton_venv=$venv_path
}

# Has wheels for Python up to 3.11: without them its scenarios say that they are left out.
ensure_old_triton() {
    system_python_is_at_most 3 11 || return 0
    ensure_venv triton-old "triton==$old_triton_version" ||
        die "cannot get Triton $old_triton_version"
    old_triton_venv=$venv_path
}
