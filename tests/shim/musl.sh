#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# musl.sh LIBRARY PROGRAM_SOURCE
#
# Verifies that a program that uses musl instead of glibc has the same output with the library preloaded as without it.
# The program's children use glibc, and load the library.
set -u
library=$(realpath "$1") source=$(realpath "$2")
command -v musl-gcc > /dev/null || { echo "SKIP: no musl-gcc"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0
for how in '' -static; do
    # shellcheck disable=SC2086  # $how may be empty
    musl-gcc $how -O1 -o "$scratch/program" "$source" || exit 1
    mkdir "$scratch/plain" "$scratch/preloaded"
    "$scratch/program" "$scratch/plain" > "$scratch/expected" 2>&1 || failed=1
    LD_PRELOAD=$library CACHESHIM_WARNED=1 CACHESHIM_MOUNT=$scratch/nowhere \
        "$scratch/program" "$scratch/preloaded" > "$scratch/got" 2>&1 || failed=1
    diff -u "$scratch/expected" "$scratch/got" || failed=1
    grep -q '^write: 12' "$scratch/expected" || failed=1
    grep -q '^dlerror at the start: none' "$scratch/expected" || failed=1
    rm -r "$scratch/plain" "$scratch/preloaded"
done
exit $failed
