#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-lab.sh WORK COMMAND…
#
# Runs COMMAND in its own mount and PID namespaces. The root directory there contains bind mounts of the real root's
# directories, and three empty directories: /run, /cacheshim-lab and /ci-cache. COMMAND can mount on /ci-cache even if
# the machine's own /ci-cache is in use. Nothing in these directories is visible outside, and all mounts and processes
# disappear with this script, even if it is killed. WORK is an empty directory on disk, which the caller removes.
set -euo pipefail

readonly AREA=/cacheshim-lab

build_root() { # ROOT
    local root=$1 entry
    mount -t tmpfs -o mode=0755 tmpfs "$root"
    for entry in /* /.[!.]*; do
        case $entry in
            /proc | /run | /ci-cache | "$AREA") continue ;;
        esac
        if [ -L "$entry" ]; then
            cp -P "$entry" "$root$entry"
        elif [ -d "$entry" ]; then
            mkdir "$root$entry"
            mount --rbind "$entry" "$root$entry"
        fi
    done
    mkdir "$root/proc" "$root/run" "$root/ci-cache" "$root$AREA" "$root/.old"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=0755 tmpfs "$root/run"
}

inside() { # WORK COMMAND…: runs as the first process of the new namespaces
    local work=$1 here
    shift
    here=$PWD
    mkdir -p "$work/root"
    build_root "$work/root"
    cd "$work/root"
    pivot_root . .old
    umount -l /.old
    rmdir /.old
    cd "$here"
    export CACHESHIM_LAB=$AREA
    # Not exec: this shell is the first process, and reaps the children of daemons that have exited.
    "$@" &
    wait $! && exit 0 || exit $?
}

if [ "$1" = --inside ]; then
    shift
    inside "$@"
fi
# This process dies with its caller, and everything inside dies with it because of --kill-child.
exec setpriv --pdeathsig KILL -- \
    unshare --mount --pid --fork --kill-child --propagation private -- "${BASH_SOURCE[0]}" --inside "$@"
