#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# self_check.sh PARITY FAULTY
#
# Runs the parity program on two plain directories, where it must find no difference. Then runs it with FAULTY
# preloaded, a library that makes some calls return wrong results: the program must find these faults, and shrink each
# to a short script that shows the fault again.
set -eu
parity=$1
faulty=$2
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
chmod 755 "$top"

both() { # KIND [OPTION…]: prepares and runs in new directories; prints the output of the run
    kind=$1
    shift
    rm -rf "$top/native" "$top/view"
    mkdir "$top/native" "$top/view"
    "$parity" "prepare$kind" --native "$top/native" --base "$top/view" "$@"
    # AddressSanitizer requires its runtime to be the first library. The option allows FAULTY before the runtime, which
    # is harmless.
    LD_PRELOAD=$preloaded ASAN_OPTIONS=verify_asan_link_order=0 \
        "$parity" "run$kind" --native "$top/native" --view "$top/view" --plain "$@"
}

# KIND STEPS CALL: verifies that the program shrinks a failing round to at most STEPS steps, and that CALL is one of
# them.
finds_and_shrinks() {
    preloaded=$faulty
    if both "$1" --seed 3 --rounds 4 > "$top/output"; then
        echo "run$1 finds no fault" && exit 1
    fi
    sed -n '/^--- /,/^---$/p' "$top/output" | sed '1d; /^---$/,$d' > "$top/script"
    steps=$(($(wc -l < "$top/script") - 1))
    if [ "$steps" -lt 1 ] || [ "$steps" -gt "$2" ]; then
        cat "$top/output" && echo "run$1 leaves $steps steps" && exit 1
    fi
    grep -q "^$3 " "$top/script" || { cat "$top/output" && exit 1; }
    if both "$1" --script "$top/script"; then
        echo "run$1 finds no fault by its own script" && exit 1
    fi
    preloaded=
    both "$1" --script "$top/script"
}

preloaded=
users=
if [ "$(id -u)" = 0 ]; then users='--several-users --owner 20001 --keeps-owners'; fi
# shellcheck disable=SC2086  # $users has several words
both '' $users
both -model --rounds 5
both -data --rounds 10
finds_and_shrinks -model 5 chmod
finds_and_shrinks -data 3 pwrite
