# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Runs the Triton storm (tests/storm), and everything else that mounts, in separate namespaces.

storm() { # MODE [ARGUMENT…]: the arguments of tests/storm/storm.py. Requires: ensure_triton or ensure_torch has run.
    _make_lab
    _in_lab /usr/bin/python3 -B "$repo/tests/storm/storm.py" "$@" \
        --repo "$repo" --work "$lab/disk" "${storm_venvs[@]}"
}

# Runs the race of overlay file systems (bench/race), below a directory on disk.
race() { # PROGRAM LIBRARY WORKER [ARGUMENT…]: the arguments of bench/race/main.py
    local program=$1 library=$2 worker=$3
    shift 3
    _make_lab
    _in_lab /usr/bin/python3 -B "$repo/bench/race/main.py" --area "$lab/disk" \
        --cacheshim "$program" --library "$library" --worker "$worker" "$@"
}

readonly _ring_parameter=/sys/module/fuse/parameters/enable_uring

# Succeeds if this kernel has FUSE over io_uring.
has_rings() {
    [ -w "$_ring_parameter" ]
}

# If the kernel has FUSE over io_uring, with_rings runs a command with it enabled, and without_rings with it disabled.
with_rings() { # COMMAND…
    _with_ring_parameter Y "$@"
}

without_rings() { # COMMAND…
    _with_ring_parameter N "$@"
}

_with_ring_parameter() { # VALUE COMMAND…
    local value=$1 before status=0
    shift
    has_rings || {
        "$@"
        return
    }
    before=$(cat "$_ring_parameter")
    # shellcheck disable=SC2016  # the inner shell expands these
    at_exit sh -c 'echo "$1" > "$2"' sh "$before" "$_ring_parameter"
    echo "$value" > "$_ring_parameter"
    "$@" || status=$?
    echo "$before" > "$_ring_parameter"
    return "$status"
}

# Runs a command with the repository at a path that every user can enter, because the repository may be in a directory
# that only root can enter.
with_repo_for_all() { # COMMAND…, in which @repo@ stands for that path
    _begin_with_repo "$@"
    wait "$lab_pid"
}

# Like with_repo_for_all, but runs the command twice at the same time, in two separate labs. Writes the output of the
# second run to LOG, and prints it when both runs have ended.
with_repo_in_two_labs() { # LOG COMMAND…, in which @lab@ stands for the lab's number
    local log=$1 first second status=0
    shift
    _begin_with_repo "${@//@lab@/1}"
    first=$lab_pid
    _begin_with_repo "${@//@lab@/2}" > "$log" 2>&1
    second=$lab_pid
    wait "$first" || status=$?
    wait "$second" || status=$?
    cat "$log"
    return "$status"
}

_begin_with_repo() { # COMMAND…
    local everywhere=/cacheshim-lab/repo
    _make_lab
    # shellcheck disable=SC2016  # the inner shell expands these
    _begin_in_lab bash -c 'mkdir "$1" && mount --bind "$2" "$1" && cd "$1" && shift 2 && exec "$@"' \
        bash "$everywhere" "$repo" "${@//@repo@/$everywhere}"
}

_make_lab() { # sets lab to a new directory on disk
    mkdir -p "$repo/build/storm"
    _sweep_storm_directories
    lab=$(mktemp -d "$repo/build/storm/XXXXXX")
    at_exit rm -rf "$lab"
    # The lock is held while the directory is in use; the next run removes directories whose lock is free.
    exec {lab_lock}> "$lab.lock"
    at_exit rm -f "$lab.lock"
    flock -n "$lab_lock"
    mkdir "$lab/disk"
}

_in_lab() { # COMMAND…
    _begin_in_lab "$@"
    wait "$lab_pid"
}

# Runs the command in the background, so that bash handles a signal immediately. Sets lab_pid.
_begin_in_lab() { # COMMAND…
    "$repo/tests/storm/enter-lab.sh" "$lab" "$@" &
    lab_pid=$!
    at_exit _end_lab "$lab_pid"
}

_end_lab() { # PID
    kill -KILL "$1" 2> /dev/null || return 0
    wait "$1" 2> /dev/null || true
}

_sweep_storm_directories() {
    local lock
    for lock in "$repo"/build/storm/*.lock; do
        [ -e "$lock" ] || continue
        flock -n "$lock" rm -rf "${lock%.lock}" "$lock" || true
    done
}

storm_venvs=() # options that are passed to storm.py

_ensure_storm_venv() { # NAME WHAT REQUIREMENT…
    local name=$1 what=$2
    shift 2
    ensure_venv "$name" "$@" || die "cannot get $what"
    storm_venvs+=(--venv "$name=$venv_path")
}

ensure_triton() {
    _ensure_storm_venv triton "Triton $triton_version" "triton==$triton_version"
}

# The wheels of these versions need Python 3.11 or older: on a later Python, the scenarios report that they are skipped.
ensure_old_tritons() {
    local version
    system_python_is_at_most 3 11 || return 0
    for version in "${old_triton_versions[@]}"; do
        _ensure_storm_venv "triton-$version" "Triton $version" "triton==$version"
    done
}

ensure_torch() {
    _ensure_storm_venv torch "${torch_requirements[1]}" "${torch_requirements[@]}"
}
