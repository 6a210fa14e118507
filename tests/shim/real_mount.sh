#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# real_mount.sh CACHESHIM PROFILES LIBRARY CALLS LIBRARIES
#
# Verifies that every interposed call has the same result in a view of a real mount as in a plain directory, with the
# library preloaded and without it. Runs in its own mount namespace.
set -u

if [ "${1:-}" != --inside ]; then
  [ "$(id -u)" = 0 ] || { echo "SKIP: mounting needs root"; exit 77; }
  [ -c /dev/fuse ] || { echo "SKIP: no /dev/fuse"; exit 77; }
  exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift
profiles=$2 library=$(realpath "$3") calls=$(realpath "$4")
export TEST_LIBRARIES=$5

scratch=$(mktemp -d) || exit 1
clean_up() {
  umount "$scratch/mount" 2>/dev/null  # the mount still exists only if the test has failed
  cd / && rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
mkdir -p "$scratch"/{bin,share/cacheshim,store/triton,mount,home}
cp "$1" "$scratch/bin/cacheshim"
ln -s "$profiles" "$scratch/share/cacheshim/profiles"
mount -t tmpfs run /run || exit 1
"$scratch/bin/cacheshim" mount --store "$scratch/store" "$scratch/mount" || exit 1

export HOME=$scratch/home CACHESHIM_MOUNT=$scratch/mount
failed=0
compare() { # MODE PATH LIBRARY: an empty LIBRARY tests the mount alone
  local mode=$1 path=$2 preload=$3 plain
  plain=$scratch/$mode  # extended to the length of $path, because some calls return that length
  while [ "${#plain}" -lt "${#path}" ]; do plain+=p; done
  mkdir -m 755 "$plain"
  env -u CACHESHIM_MOUNT "$calls" "$mode" "$plain" >"$scratch/expected" 2>&1 </dev/null
  LD_PRELOAD=$preload "$calls" "$mode" "$path" >"$scratch/got" 2>&1 </dev/null
  diff -u "$scratch/expected" "$scratch/got" || failed=1
  diff -r --no-dereference "$plain" "$scratch/mount/.jobs/$CACHESHIM_JOB/triton" || failed=1
  rm -rf "$plain"
}
for mode in here thread fork exec spawn; do
  for path in "$HOME/.triton/cache" "$scratch/mount/triton"; do
    export CACHESHIM_JOB=$mode-$(basename "$path")
    compare "$mode" "$path" "$library"
  done
done
export CACHESHIM_JOB=alone
compare here "$scratch/mount/.jobs/alone/triton" ""
[ ! -e "$HOME/.triton" ] || { echo "the default directory was made"; failed=1; }
"$scratch/bin/cacheshim" unmount "$scratch/mount" || failed=1
exit $failed
