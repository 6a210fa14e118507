#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hung_mount.sh CACHESHIM PROFILES LIBRARY
#
# Verifies that preloaded programs still start and exit while the daemon is stopped (SIGSTOP), and that they work if
# they do not use the cache.
set -u

if [ "${1:-}" != --inside ]; then
  [ "$(id -u)" = 0 ] || { echo "SKIP: mounting needs root"; exit 77; }
  [ -c /dev/fuse ] || { echo "SKIP: no /dev/fuse"; exit 77; }
  exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift
profiles=$2 library=$(realpath "$3")

scratch=$(mktemp -d) || exit 1
daemon=
clean_up() {
  [ -z "$daemon" ] || kill -CONT "$daemon" 2>/dev/null
  umount -l "$scratch/mount" 2>/dev/null
  cd / && rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
mkdir -p "$scratch"/{bin,share/cacheshim,store/triton,mount,home}
cp "$1" "$scratch/bin/cacheshim"
ln -s "$profiles" "$scratch/share/cacheshim/profiles"
mount -t tmpfs run /run || exit 1
"$scratch/bin/cacheshim" mount --store "$scratch/store" "$scratch/mount" || exit 1
for process in /proc/[0-9]*; do
  [ "$(readlink "$process/exe")" != "$scratch/bin/cacheshim" ] || daemon=${process#/proc/}
done
[ -n "$daemon" ] || { echo "no daemon"; exit 1; }

export HOME=$scratch/home CACHESHIM_MOUNT=$scratch/mount CACHESHIM_JOB=hung
failed=0
LD_PRELOAD=$library sh -c 'mkdir -p ~/.triton/cache/K && cd ~/.triton/cache/K && echo x >f' || failed=1
[ -e "$scratch/mount/.jobs/hung/triton/K/f" ] || { echo "the cache does not work"; failed=1; }
cd "$scratch/mount/.jobs/hung/triton/K" || exit 1

has_stopped() {
  ! cat /proc/"$daemon"/task/*/stat 2>/dev/null | grep -qv ') T '
}

kill -STOP "$daemon"  # returns before the threads have stopped: each stops when it next runs
for _ in {1..1000}; do
  has_stopped && break
  sleep 0.01
done
has_stopped || { echo "the daemon does not stop"; exit 1; }
for directory in "$scratch" .; do
  LD_PRELOAD=$library timeout --signal=KILL 60 env --chdir="$directory" true ||
    { echo "a program does not start in $directory"; failed=1; }
done
cd "$scratch" || exit 1
LD_PRELOAD=$library timeout --signal=KILL 60 sh -c 'cat /etc/passwd | wc -l; ls /usr' >"$scratch/out" ||
  { echo "a program does not work"; failed=1; }
kill -CONT "$daemon"
"$scratch/bin/cacheshim" unmount "$scratch/mount" || failed=1
exit $failed
