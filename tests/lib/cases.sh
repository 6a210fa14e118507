# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Cases of a test that is a script, for the tally of scripts/test.

cases='' failed=0

expect() { # NAME STATUS EXPECTED
    local result=
    echo "$1: $2, expected $3"
    if [ "$2" != "$3" ]; then failed=1 result='<failure/>'; fi
    cases+="<testcase name='$1'>$result</testcase>"
}

finish() { # SUITE JUNIT, which may be empty: ends the script
    if [ -n "$2" ]; then
        echo "<testsuites><testsuite name='$1'>$cases</testsuite></testsuites>" > "$2"
    fi
    exit "$failed"
}
