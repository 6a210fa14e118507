#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-lab.sh WORK COMMAND…
#
# Runs COMMAND in mount and PID namespaces of its own, in a root made of binds of the real one with two
# directories more: /ci-cache, free to mount on whatever this machine has there, and /cacheshim-lab. Nothing
# of it is seen outside, and all of it, mounts and processes, goes away with this script, also when that
# is killed. WORK is an empty directory on disk; the caller removes it. /run starts empty.
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

inside() { # WORK COMMAND…: the first process of the new namespaces
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
    # Not by exec: as the first process this shell also reaps what daemons leave behind.
    "$@" &
    wait $! && exit 0 || exit $?
}

if [ "$1" = --inside ]; then
    shift
    inside "$@"
fi
# Dies with its caller, and by --kill-child everything inside dies with it.
exec setpriv --pdeathsig KILL -- \
    unshare --mount --pid --fork --kill-child --propagation private -- "${BASH_SOURCE[0]}" --inside "$@"
