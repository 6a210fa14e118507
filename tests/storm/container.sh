#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# container.sh --root DIR [--cache DIR] --home DIR --share DIR --uid UID [--userns] -- COMMAND…
#
# Runs COMMAND as SLURM with enroot would: in its own root file system, made of bind mounts at --root. In it, --home is
# at /root, --cache is at /ci-cache, and --share has the same path as outside. The caller must run this script as the
# first process of new mount and PID namespaces (unshare --mount --pid --fork), which end with COMMAND. With --userns,
# the user is root in a user namespace, as with enroot.
set -euo pipefail

root='' cache='' home='' share='' uid='' userns=''
while [ "$1" != -- ]; do
    case $1 in
        --root) root=$2; shift 2 ;;
        --cache) cache=$2; shift 2 ;;
        --home) home=$2; shift 2 ;;
        --share) share=$2; shift 2 ;;
        --uid) uid=$2; shift 2 ;;
        --userns) userns=1; shift ;;
        *) echo "container.sh: unknown option $1" >&2; exit 2 ;;
    esac
done
shift

mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$root"

bind() { # SOURCE TARGET: TARGET is a path in the new root
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
}

for directory in usr etc; do bind "/$directory" "/$directory"; done
for link in bin sbin lib lib64; do
    if [ -e "/$link" ]; then ln -s "usr/$link" "$root/$link"; fi
done
bind /dev /dev
bind "$share" "$share"
bind "$home" /root
if [ -n "$cache" ]; then bind "$cache" /ci-cache; fi
mkdir -p "$root/proc" "$root/old" "$root/tmp" "$root/run"
chmod 1777 "$root/tmp"
mount -t proc proc "$root/proc"

cd "$root"
pivot_root . old
umount -l /old
export HOME=/root
as_user=(setpriv --reuid "$uid" --regid "$uid" --clear-groups)
if [ -n "$userns" ]; then as_user+=(unshare --user --map-root-user); fi
cd /root
exec "${as_user[@]}" -- "$@"
