# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# How scripts/test runs a stage and counts its tests.

readonly results=$repo/build/results
readonly stages=$results/stages
# The files of tests/mount in which several clients make requests at once, by their names.
readonly several_clients='PYTEST_ADDOPTS=-k "test_batons or test_built_under_a_lock or test_client_core or test_crowd or (test_direct and not test_direct_listings) or test_first_user or test_freshness or test_gc or test_links or test_lock or test_lowers_freshness or test_passthrough or test_publishing or test_rings or test_shared_files or test_single_flight or test_trust or test_views"'

begin_results() {
    rm -rf "$results"
    mkdir -p "$results"
    : > "$stages"
}

stage() { # NAME JUNIT COMMAND…: runs it and notes how it ended, for the tally
    local name=$1 junit=$2 status=0
    shift 2
    say "== $name"
    "$@" || status=$?
    printf '%s\t%s\t%s\n' "$name" "$status" "$junit" >> "$stages"
}

tally() { # prints `N passed, N failed` last
    say '== all stages'
    /usr/bin/python3 -B "$scripts/lib/tally.py" "$stages"
}

meson_tests() { # DIRECTORY JUNIT [ARGUMENT…]
    local directory=$1 junit=$2 status=0
    shift 2
    rm -f "$directory/meson-logs/testlog.junit.xml"
    # A test has the time its meson.build gives it, and no more; meson kills it then.
    meson test -C "$directory" --no-rebuild --print-errorlogs "$@" < /dev/null || status=$?
    cp "$directory/meson-logs/testlog.junit.xml" "$junit" || status=1
    return "$status"
}

mount_tests() { # DIRECTORY MARK JUNIT [VARIABLE=VALUE…]
    local directory=$1 mark=$2 junit=$3
    shift 3
    with_repo_for_all env PYTHONDONTWRITEBYTECODE=1 "$@" @repo@/build/venv/pytest/bin/python \
        -m pytest "@repo@/tests/$directory" -m "$mark" -p no:cacheprovider -q -ra \
        --junitxml="$junit" < /dev/null
}

variant_tests() { # NAME JUNIT [MESON OPTION…]: a further build, and its unit tests
    local name=$1 junit=$2
    shift 2
    build_variant "$name" "$@" || return 1
    meson install -C "$repo/build/variants/$name" --no-rebuild --quiet || return 1
    meson_tests "$repo/build/variants/$name" "$junit" --suite unit
}
