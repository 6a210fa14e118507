#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# aarch64.sh REPOSITORY BUILD_DIRECTORY [JUNIT]
#
# Builds the library for aarch64 and tests it under qemu-user: what dlsym returns to each caller, eager loading by each
# route to the CUDA driver, and every interposed call on a mount. Leaves out the calls that start programs, because
# those programs are not installed for aarch64. BUILD_DIRECTORY contains the generated files and this machine's
# cacheshim.
set -u
if [ "${1:-}" != --inside ]; then
    exec unshare --mount --propagation private "$0" --inside "$@"  # the mounts disappear with this namespace
fi
shift
repository=$1 build=$2 junit=${3:-}
compiler=aarch64-linux-gnu-g++
emulator=qemu-aarch64
root=/usr/aarch64-linux-gnu

for program in "$compiler" "$emulator"; do
    command -v "$program" > /dev/null || { echo "SKIP: no $program"; exit 77; }
done
# shellcheck source-path=SCRIPTDIR
. "$repository/tests/lib/cases.sh"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$repository" || exit 1

flags=(-std=c++20 -O2 -fPIC -I. -I"$build/shim" -w)
library() { # NAME SOURCE… [-- LINK ARGUMENT…]
    local name=$1 sources=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do sources+=("$1"); shift; done
    if [ $# -gt 0 ]; then shift; fi
    "$compiler" "${flags[@]}" -shared -o "$scratch/$name" "${sources[@]}" "$@" || exit 1
}
program() { # NAME SOURCE… [-- LINK ARGUMENT…]
    local name=$1 sources=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do sources+=("$1"); shift; done
    if [ $# -gt 0 ]; then shift; fi
    "$compiler" "${flags[@]}" -pthread -o "$scratch/$name" "${sources[@]}" -L"$scratch" "$@" || exit 1
}

# The sources of this machine's library.
mapfile -t shim < <(python3 - "$build" << 'END'
import json, os, sys

build = sys.argv[1]
for entry in json.load(open(build + "/compile_commands.json")):
    if entry["output"].startswith("shim/libcacheshim.so.p/"):
        print(os.path.relpath(os.path.join(build, entry["file"])))
END
)
[ "${#shim[@]}" -gt 0 ] || { echo "cannot tell what the library is made of"; exit 1; }
# The same options as in shim/meson.build, which explains them.
library libcacheshim.so "${shim[@]}" -- -fno-exceptions -fno-rtti -fno-threadsafe-statics \
    -ftls-model=initial-exec -fvisibility=hidden -nodefaultlibs -lc -lgcc \
    -Wl,--version-script,"$build/shim/exports.map" -Wl,-z,defs -Wl,-z,now
library libcuda.so.1 tests/cuda/fake_driver.cc -- -fno-optimize-sibling-calls -pthread \
    -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1
program client_direct tests/cuda/client_direct.cc tests/cuda/scenario.cc -- \
    -DCACHESHIM_TEST_PROGRAM -l:libcuda.so.1
program client_lookup tests/cuda/client_lookup.cc tests/cuda/scenario.cc common/loaded_symbol.cc
for part in base wrap dependency; do
    library "libcallers_$part.so" "tests/cuda/callers_$part.cc"
done
library libcallers_plugin.so tests/cuda/callers_plugin.cc -- -L"$scratch" -lcallers_dependency
program callers tests/cuda/callers.cc -- -lcallers_wrap -lcallers_base

printf 'tail;other' > "$scratch/image"
emulate() { # NAME=VALUE… -- COMMAND…
    local settings=(-E "LD_LIBRARY_PATH=$scratch" -E CACHESHIM_WARNED=1)
    while [ "$1" != -- ]; do settings+=(-E "$1"); shift; done
    shift
    "$emulator" -L "$root" "${settings[@]}" "$@"
}
emulate -- "$scratch/callers" "$scratch/libcallers_plugin.so" > "$scratch/without" 2>&1
grep -q '^chained: 11$' "$scratch/without"
expect 'dlsym without the library' $? 0
emulate "LD_PRELOAD=$scratch/libcacheshim.so" -- "$scratch/callers" \
    "$scratch/libcallers_plugin.so" > "$scratch/with" 2>&1
diff "$scratch/without" "$scratch/with"
expect 'dlsym answers as without the library' $? 0
for client in 'client_direct' 'client_lookup dlsym' 'client_lookup v1' 'client_lookup v2'; do
    read -r -a words <<< "$client"
    emulate "LD_PRELOAD=$scratch/libcacheshim.so" FAKE_CUDA_SPIN_MS=60000 -- \
        "$scratch/${words[0]}" "${words[@]:1}" cuModuleLoadData "$scratch/image" --set LAZY
    expect "$client goes through" $? 0
    emulate "LD_PRELOAD=$scratch/libcacheshim.so" CACHESHIM_CUDA_EAGER=off FAKE_CUDA_SPIN_MS=700 -- \
        "$scratch/${words[0]}" "${words[@]:1}" cuModuleLoadData "$scratch/image"
    expect "$client, off, dead-locks" $? 3
done

library libshim_leaf.so -x c tests/shim/loaded_leaf.c --
library libshim_branch.so -x c tests/shim/loaded_branch.c -- -L"$scratch" -lshim_leaf
library libshim_caller.so -x c tests/shim/loaded_caller.c -- '-Wl,--disable-new-dtags,-rpath,$ORIGIN/leaves'
program calls tests/shim/calls_*.cc -- -ldl
# Does not use qemu's -L: with this option, qemu would look up every path below $root first. Preloads the library only
# into the emulated program. CACHESHIM_JOB must be in qemu's own environment, where the daemon reads the process's job.
call_all() { # DIRECTORY [LIBRARY [NAME=VALUE…]]
    local directory=$1 preload=()
    [ $# = 1 ] || preload=(-E "LD_PRELOAD=$2")
    env TEST_LIBRARIES="$scratch" TEST_WITHOUT_PROGRAMS=1 "${@:3}" "$emulator" "${preload[@]}" \
        "$root/lib/ld-linux-aarch64.so.1" --library-path "$root/lib" "$scratch/calls" "$mode" "$directory" 2>&1
}
cacheshim=$build/dist/bin/cacheshim mount=$scratch/mount
export HOME=$scratch/home
mount -t tmpfs run /run || exit 1
mkdir -p "$scratch/store" "$mount" "$HOME"
"$cacheshim" mount --store "$scratch/store" "$mount" || exit 1
for mode in here thread fork; do
    plain=$scratch/$mode
    # The paths must have the same length, because some calls return the length of a path.
    while [ "${#plain}" -lt "$((${#HOME} + 14))" ]; do plain+=p; done
    mkdir -m 755 "$plain"
    call_all "$plain" > "$scratch/expected"
    expect "calls without the library, $mode" $? 0
    call_all "$HOME/.triton/cache" "$scratch/libcacheshim.so" "CACHESHIM_MOUNT=$mount" \
        "CACHESHIM_JOB=$mode" > "$scratch/got"
    diff -u "$scratch/expected" "$scratch/got"
    expect "all calls come back as without it, $mode" $? 0
    [ -s "$scratch/expected" ] && diff -r --no-dereference "$plain" "$mount/.jobs/$mode/triton"
    expect "and leave the same, $mode" $? 0
done
"$cacheshim" unmount "$mount"
expect 'unmounted' $? 0
finish aarch64 "$junit"
