# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Runs the stages of scripts/test and counts their tests.

readonly results=$repo/build/results
readonly stages=$results/stages
# Selects the files of tests/mount whose tests make requests from several clients at once.
readonly several_clients='PYTEST_ADDOPTS=-k "test_batons or test_built_under_a_lock or test_client_core or test_crowd or (test_direct and not test_direct_listings and not test_direct_views) or test_first_user or test_freshness or test_gc or test_links or test_lock or test_lowers_freshness or test_passthrough or test_publishing or test_rings or test_shared_files or test_single_flight or test_trust or test_views"'

begin_results() {
    rm -rf "$results"
    mkdir -p "$results"
    : > "$stages"
}

# Runs the command and records its result for the tally. JUNIT: a file, or a directory of such files.
stage() { # NAME JUNIT COMMAND…
    local name=$1 junit=$2 status=0
    shift 2
    say "== $name"
    "$@" || status=$?
    printf '%s\t%s\t%s\n' "$name" "$status" "$junit" >> "$stages"
}

tally() { # prints `N passed, N failed` as the last line
    say '== all stages'
    /usr/bin/python3 -B "$scripts/lib/tally.py" "$stages"
}

meson_tests() { # DIRECTORY JUNIT [ARGUMENT…]
    local directory=$1 junit=$2 status=0
    shift 2
    rm -f "$directory/meson-logs/testlog.junit.xml"
    # Meson kills each test after the timeout in the test's meson.build.
    meson test -C "$directory" --no-rebuild --print-errorlogs "$@" < /dev/null || status=$?
    cp "$directory/meson-logs/testlog.junit.xml" "$junit" || status=1
    return "$status"
}

mount_tests() { # DIRECTORY MARK JUNIT [VARIABLE=VALUE…]
    local directory=$1 mark=$2 junit=$3
    shift 3
    with_repo_for_all env "$@" "${_pytest[@]}" "@repo@/tests/$directory" -m "$mark" \
        --junitxml="$junit" < /dev/null
}

# Like mount_tests, but divides the test files between two labs, because most tests spend more time waiting than
# computing. RESULTS: a new directory for both labs' JUnit files.
mount_tests_in_two_labs() { # DIRECTORY MARK RESULTS [VARIABLE=VALUE…]
    local directory=$1 mark=$2 junit=$3
    shift 3
    mkdir -p "$junit/begun"
    with_repo_in_two_labs "$junit/lab-2.log" env "$@" "${_pytest[@]}" "@repo@/tests/$directory" -m "$mark" \
        --claimed-files="$junit/begun" --lab=@lab@ --junitxml="$junit/lab-@lab@.xml" < /dev/null
}

readonly _pytest=(PYTHONDONTWRITEBYTECODE=1 @repo@/build/venv/pytest/bin/python -m pytest -p no:cacheprovider -q -ra)

variant_tests() { # NAME JUNIT [MESON OPTION…]: builds another variant and runs its unit tests
    local name=$1 junit=$2
    shift 2
    build_variant "$name" "$@" || return 1
    meson install -C "$repo/build/variants/$name" --no-rebuild --quiet || return 1
    meson_tests "$repo/build/variants/$name" "$junit" --suite unit
}
