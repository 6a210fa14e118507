#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-release.sh WORK RELEASE
#
# Enters namespaces whose root is the system in the directory RELEASE, with an overlay in memory for all changes
# (tests/lib/new-root.sh). WORK is an empty directory.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "${BASH_SOURCE[0]%/*}/../lib/new-root.sh"

build_root() { # WORK RELEASE
    local work=$1 release=$2 node
    root=$work/root
    mount -t tmpfs -o mode=0755 tmpfs "$work"
    mkdir "$work/upper" "$work/work" "$root"
    chmod 0755 "$work/upper"
    mount -t overlay overlay "$root" -o "lowerdir=$release,upperdir=$work/upper,workdir=$work/work"
    for node in null zero full random urandom tty; do
        touch "$root/dev/$node"
        mount --bind "/dev/$node" "$root/dev/$node"
    done
    mknod -m 0666 "$root/dev/fuse" c 10 229  # everybody may open it, as udev arranges
    mkdir -p "$root/data"
    mount -t tmpfs -o mode=0755 tmpfs "$root/data"  # for stores: on real machines, they are seldom on an overlay
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    mount -t proc proc "$root/proc"
}

serve_root "$@"
