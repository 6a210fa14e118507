# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # build_root sets root
# Sourced by scripts that create a root directory for FreshRoot (fresh_root.py).

# Creates mount and PID namespaces, and calls the script's function build_root there, with the script's arguments.
# build_root builds the new root in a directory, and sets the variable `root` to its path. serve_root then makes that
# directory the root, prints "ready" and waits. All mounts and processes disappear when stdin is closed or the script is
# killed.
serve_root() { # ARGUMENT… of the script
    if [ "$1" != --inside ]; then
        exec unshare --mount --pid --fork --kill-child --propagation private -- "$0" --inside "$@"
    fi
    shift
    build_root "$@"
    cd "$root" || exit
    mkdir -p .old
    pivot_root . .old
    umount -l /.old
    rmdir /.old
    cd / || exit
    echo ready
    # No exec here: the first process of a PID namespace must reap orphans, and this shell does.
    { cat <&3 > /dev/null & } 3<&0  # uses descriptor 3, because a background process gets /dev/null as its stdin
    wait $!
}
