# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Records the cases of a test script for the tally of scripts/test.

cases='' failed=0

expect() { # NAME STATUS EXPECTED
    local result=
    echo "$1: $2, expected $3"
    if [ "$2" != "$3" ]; then failed=1 result='<failure/>'; fi
    cases+="<testcase name='$1'>$result</testcase>"
}

finish() { # SUITE JUNIT: ends the script; JUNIT may be empty
    if [ -n "$2" ]; then
        echo "<testsuites><testsuite name='$1'>$cases</testsuite></testsuites>" > "$2"
    fi
    exit "$failed"
}
