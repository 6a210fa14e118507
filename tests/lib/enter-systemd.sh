#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# enter-systemd.sh UNITS GROUP
#
# Runs a separate systemd as the first process of new mount, PID and cgroup namespaces, with only the units in the
# directory UNITS. Its cgroups are below the new cgroup GROUP, which the caller removes. All mounts and processes
# disappear with this script, even if it is killed. Exits with 77 if it can create no cgroup on this machine.
set -euo pipefail

readonly systemd=/lib/systemd/systemd top=/sys/fs/cgroup

hierarchies() { # prints the mount points and options of all cgroup file systems
    awk -v top="$top" '($3 == "cgroup" || $3 == "cgroup2") && index($2, top) == 1 { print $2, $3, $4 }' /proc/self/mounts
}

join() { # GROUP
    local path joined=
    while read -r path _; do
        mkdir -p "$path/$1" 2> /dev/null || continue
        # A new cgroup of the version 1 controller "cpuset" accepts no process until cpus and mems are set.
        if echo $$ 2> /dev/null > "$path/$1/cgroup.procs"; then joined=yes; else rmdir "$path/$1"; fi
    done <<< "$(hierarchies)"
    [ -n "$joined" ] || exit 77
}

mount_cgroups() { # mounts each hierarchy again, with this process's cgroup as its root
    local before path type options name
    before=$(hierarchies)
    umount -l "$top"
    # If there is only version 2, it is mounted at $top itself; version 1 hierarchies are in directories below.
    grep -q "^$top cgroup2 " <<< "$before" || mount -t tmpfs -o mode=0755 tmpfs "$top"
    while read -r path type options; do
        mkdir -p "$path"
        name=$(tr , '\n' <<< "$options" | grep -vx 'rw\|ro\|relatime\|nosuid\|nodev\|noexec\|xattr\|release_agent=.*\|clone_children\|memory_.*\|nsdelegate' | paste -sd ,) || true
        [[ $name != name=* ]] || name=none,$name
        mount -t "$type" ${name:+-o "$name"} "$type" "$path"
    done <<< "$before"
}

inside() { # UNITS
    mount -t proc proc /proc
    mount_cgroups
    mount -t tmpfs -o mode=0755 tmpfs /run
    mkdir -p /run/systemd/system
    mount --make-rshared /
    # empty.target requires no unit, so systemd starts nothing by itself.
    exec env -i PATH="$PATH" container=cacheshim-test SYSTEMD_UNIT_PATH="$1" \
        "$systemd" --system --unit=empty.target --log-target=console --show-status=no
}

if [ "$1" = --inside ]; then
    inside "$2"
fi
join "$2"
exec setpriv --pdeathsig KILL -- unshare --mount --pid --fork --kill-child --cgroup --propagation private -- \
    "${BASH_SOURCE[0]}" --inside "$1"
