#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-fresh-root.sh WORK REPOSITORY
#
# Enters mount and PID namespaces (tests/lib/new-root.sh). Their root directory simulates this machine as it is
# before a user follows the README: nothing in /usr/local, no /ci-cache and no /data, empty home directories, and
# writable overlays over /etc, /usr/sbin and the repository. Changes made there are invisible outside. WORK is an empty
# directory.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "${BASH_SOURCE[0]%/*}/../lib/new-root.sh"

# These directories are empty in the new root, even if this machine has file systems mounted on some of them.
readonly empty=(home root run tmp mnt media opt)

writable() { # DIRECTORY: makes it writable; the changes stay in memory
    local name=${1//\//_}
    mkdir "$layers/$name" "$layers/$name.work"
    mount -t overlay overlay "$root$1" \
        -o "lowerdir=$1,upperdir=$layers/$name,workdir=$layers/$name.work"
}

build_root() { # WORK REPOSITORY
    local entry repository=$2
    root=$1/root layers=$1/layers
    mkdir "$root" "$layers"
    mount -t tmpfs -o mode=0755 tmpfs "$root"
    mount -t tmpfs -o mode=0755 tmpfs "$layers"
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
    (cd "$root" && mkdir "${empty[@]}" proc)
    chmod 1777 "$root/tmp"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=0755 tmpfs "$root/usr/local"
    mkdir -p "$root$repository"
    for entry in /etc /usr/sbin "$repository"; do writable "$entry"; done
}

serve_root "$@"
