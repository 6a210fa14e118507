#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-release.sh WORK RELEASE
#
# Creates mount and PID namespaces, prints "ready", and waits. Their root is the system in the directory RELEASE, with an
# overlay in memory for all changes. All mounts and processes disappear when stdin is closed or this script is killed.
# WORK is an empty directory.
set -euo pipefail

inside() { # WORK RELEASE: runs as the first process of the new namespaces
    local work=$1 release=$2 node
    mount -t tmpfs -o mode=0755 tmpfs "$work"
    mkdir "$work/upper" "$work/work" "$work/root"
    chmod 0755 "$work/upper"
    mount -t overlay overlay "$work/root" -o "lowerdir=$release,upperdir=$work/upper,workdir=$work/work"
    cd "$work/root"
    mkdir -p .old
    for node in null zero full random urandom tty fuse; do
        touch "dev/$node"
        mount --bind "/dev/$node" "dev/$node"
    done
    # A store is a plain directory on disk, not on an overlay.
    mkdir -p data
    mount -t tmpfs -o mode=0755 tmpfs data
    cp /etc/resolv.conf etc/resolv.conf
    mount -t proc proc proc
    pivot_root . .old
    umount -l /.old
    rmdir /.old
    cd /
    echo ready
    # No exec here: the first process of a PID namespace must reap orphans, and this shell does.
    { cat <&3 > /dev/null & } 3<&0  # uses descriptor 3, because a background process gets /dev/null as its stdin
    wait $!
}

if [ "$1" = --inside ]; then
    shift
    inside "$@"
    exit
fi
exec unshare --mount --pid --fork --kill-child --propagation private -- \
    "${BASH_SOURCE[0]}" --inside "$@"
