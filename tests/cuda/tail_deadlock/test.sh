#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test.sh LIBRARY [PROGRAM]
#
# Reproduces the deadlock on a real GPU, and verifies that the library prevents it. Exits with 77, as a skipped test, if
# there is no GPU, no toolkit to build PROGRAM, or no deadlock without the library.
set -u
library=$1 program=${2:-}

skip() { echo "SKIP: $*"; exit 77; }
[ -n "$program" ] || skip 'no nvcc to build tail_deadlock with'

failed=0
run() { # STATUS WHAT [NAME=VALUE…] [-- ARGUMENT…]
    local expected=$1 what=$2 status=0 settings=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do settings+=("$1"); shift; done
    if [ $# -gt 0 ]; then shift; fi
    env -u CUDA_MODULE_LOADING -u LD_PRELOAD CACHESHIM_WARNED=1 "${settings[@]}" "$program" "$@" ||
        status=$?
    echo "$what: $status, expected $expected"
    if [ "$status" != "$expected" ]; then failed=1; fi
    return "$status"
}

run 3 'as it is'
case $? in
    3) ;;
    77) exit 77 ;;
    *) skip 'inconclusive: the fault does not show here without the library' ;;
esac
run 0 'with the library' LD_PRELOAD="$library"
run 3 'with the library, off' LD_PRELOAD="$library" CACHESHIM_CUDA_EAGER=off
run 0 'cured in its own code' -- --preload=attr
exit "$failed"
