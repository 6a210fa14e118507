#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# other_releases.sh REPOSITORY BUILD_DIRECTORY [JUNIT]
#
# Tests this machine's build of the library in the Debian releases before and after the machine's own release, with the
# programs of those releases: the results below a redirected path must equal those in a plain directory. Keeps the
# installed systems in BUILD_DIRECTORY/chroots.
set -u

if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" = 0 ] || { echo "SKIP: chroot and mounting need root"; exit 77; }
    [ -c /dev/fuse ] || { echo "SKIP: no /dev/fuse"; exit 77; }
    command -v debootstrap > /dev/null || { echo "SKIP: no debootstrap"; exit 77; }
    exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift
repository=$1 build=$(realpath "$2") junit=${3:-}
# shellcheck source-path=SCRIPTDIR
. "$repository/tests/lib/cases.sh"
# shellcheck source-path=SCRIPTDIR
. "$repository/scripts/lib/releases.sh"
readonly uid=20001 packages=python3
readonly mount=/ci-cache library=/usr/lib/libcacheshim.so

inside() { # NAME=VALUE… -- COMMAND…: runs as an ordinary user in the installed system
    local settings=()
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    chroot --userspec="$uid:$uid" "$root" env -i PATH=/usr/bin:/bin HOME=/home/user LANG=C.UTF-8 \
        "${settings[@]}" "$@"
}

same_calls() { # PATH JOB
    inside LD_PRELOAD="$library" CACHESHIM_JOB="$2" -- python3 -I /all_calls.py "$1" > "$scratch/got" 2>&1
    diff -u "$scratch/expected" "$scratch/got"
}

try_system() { # SUITE
    local suite=$1
    root=$build/chroots/$suite
    if ! make_release "$suite" "$root" "$packages"; then
        expect "$suite: debootstrap" 1 0
        return
    fi
    install -D "$build/dist/lib/libcacheshim.so" "$root$library"
    install -m 644 "$repository/tests/shim/all_calls.py" "$root/all_calls.py"
    rm -rf "$root/home/user"
    install -d -o "$uid" -g "$uid" "$root/home/user" "$root/home/user/plain"
    mkdir -p "$root$mount" "$root/run/cacheshim"
    mount -t proc proc "$root/proc" || exit 1

    inside LD_PRELOAD="$library" -- /bin/true > "$scratch/said" 2>&1
    grep -qx "cacheshim: no cacheshim mount at $mount; running without it" "$scratch/said"
    expect "$suite: one line without a mount" $? 0
    mount --bind "$mount" "$root$mount" || exit 1
    mount --rbind /run/cacheshim "$root/run/cacheshim" || exit 1
    inside LD_PRELOAD="$library" -- /bin/true > "$scratch/said" 2>&1
    [ ! -s "$scratch/said" ]
    expect "$suite: not a word with one" $? 0

    inside -- python3 -I /all_calls.py /home/user/plain > "$scratch/expected" 2>&1
    grep -qx 'left \[\]' "$scratch/expected"
    expect "$suite: all calls without the library" $? 0
    same_calls /home/user/.triton/cache "$suite-default"
    expect "$suite: the default path is as a plain directory" $? 0
    [ ! -e "$root/home/user/.triton" ]
    expect "$suite: and is not made" $? 0
    same_calls "$mount/triton" "$suite-mount"
    expect "$suite: the mount is as a plain directory" $? 0

    local before
    before=$(direct_hits)
    inside LD_PRELOAD="$library" CACHESHIM_JOB="$suite-direct" -- python3 -Ic "
for i in range(100): assert open('$mount/other/KEY/file').read() == 'of the base'
    " 2>&1
    expect "$suite: the base is read" $? 0
    [ $(($(direct_hits) - before)) -ge 50 ]
    expect "$suite: directly" $? 0
    umount -R "$root/run/cacheshim" && umount "$root$mount" "$root/proc"
    expect "$suite: left" $? 0
}

direct_hits() {
    "$build/dist/bin/cacheshim" stats --json --mount "$mount" |
        /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["hits_direct"])'
}

scratch=$(mktemp -d) || exit 1
clean_up() {
    umount -l "$mount" 2> /dev/null  # the mount still exists only if the test has failed
    cd / && rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
mount -t tmpfs run /run || exit 1
mkdir -p "$mount" "$scratch/store/other/KEY"
printf 'of the base' > "$scratch/store/other/KEY/file"
"$build/dist/bin/cacheshim" mount --store "$scratch/store" "$mount" || exit 1
for suite in bullseye trixie; do
    try_system "$suite"
done
"$build/dist/bin/cacheshim" unmount "$mount"
expect 'unmounted' $? 0
finish elsewhere "$junit"
