#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-fresh-root.sh WORK REPOSITORY
#
# Creates mount and PID namespaces, prints "ready", and waits. Their root directory simulates this machine as it is
# before a user follows the README: nothing in /usr/local, no /ci-cache and no /data, empty home directories, and
# writable overlays over /etc, /usr/sbin and the repository. Changes made there are invisible outside. All mounts and
# processes disappear when stdin is closed or this script is killed. WORK is an empty directory.
set -euo pipefail

# These directories are empty in the new root, even if this machine has file systems mounted on some of them.
readonly empty=(home root run tmp mnt media opt)

writable() { # DIRECTORY: makes it writable; the changes stay in memory
    local name=${1//\//_}
    mkdir "$layers/$name" "$layers/$name.work"
    mount -t overlay overlay "$root$1" \
        -o "lowerdir=$1,upperdir=$layers/$name,workdir=$layers/$name.work"
}

build_root() {
    local entry
    for entry in /* /.[!.]*; do
        case $entry in
            /proc | /ci-cache | /data | /scratch | /local-nvme) continue ;;
        esac
        if [[ " ${empty[*]} " = *" ${entry#/} "* ]]; then continue; fi
        if [ -L "$entry" ]; then
            cp -P "$entry" "$root$entry"
        elif [ -d "$entry" ]; then
            mkdir "$root$entry"
            mount --rbind "$entry" "$root$entry"
        fi
    done
    (cd "$root" && mkdir "${empty[@]}" proc .old)
    chmod 1777 "$root/tmp"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=0755 tmpfs "$root/usr/local"
}

inside() { # WORK REPOSITORY: runs as the first process of the new namespaces
    readonly root=$1/root layers=$1/layers repository=$2
    mkdir "$root" "$layers"
    mount -t tmpfs -o mode=0755 tmpfs "$root"
    mount -t tmpfs -o mode=0755 tmpfs "$layers"
    build_root
    mkdir -p "$root$repository"
    for entry in /etc /usr/sbin "$repository"; do writable "$entry"; done
    cd "$root"
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
