# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Reports which lines of common/, shim/, store/ and fuse/ are run by the unit tests or by the mount tests.

readonly coverage_build=$repo/build/variants/coverage
readonly covered_directories=(common shim store fuse)

run_coverage() {
    prepare "${coverage_packages[@]}"
    # Without -fprofile-update=atomic, several threads can make a count negative, which gcovr refuses.
    build_variant coverage --buildtype=debug -Db_coverage=true -D{c,cpp}_args=-fprofile-update=atomic ||
        die 'cannot build for coverage'
    meson install -C "$coverage_build" --no-rebuild --quiet || die 'cannot install for coverage'
    find "$coverage_build" -name '*.gcda' -delete
    stage 'unit and shim tests, for coverage' "$results/coverage-units.xml" _covered_units "$results/coverage-units.xml"
    stage 'real mounts, for coverage' "$results/coverage-mount.xml" \
        without_rings _covered_mounts "$results/coverage-mount.xml"
    if has_rings; then
        stage 'several clients, by io_uring, for coverage' "$results/coverage-rings.xml" \
            with_rings _covered_mounts "$results/coverage-rings.xml" "$several_clients"
    fi
    _report_coverage
    tally
}

# The tests of the suite "without-coverage" fail with a library that is built for coverage, because gcc's code for
# coverage calls malloc(3).
_covered_units() { # JUNIT
    GCOV_ERROR_FILE=/dev/null meson_tests "$coverage_build" "$1" --suite unit --no-suite without-coverage \
        --timeout-multiplier 4
}

# Processes of other users must be able to update the coverage files, so this function creates the files beforehand, and
# lets every user write to them. The processes use the lab's path, because the repository may be in a directory that
# only root can enter. GCOV_ERROR_FILE suppresses the warnings of processes that cannot reach the files, for example in
# a container.
_covered_mounts() { # JUNIT [VARIABLE=VALUE…]
    local junit=$1 depth library=$coverage_build/dist/lib/libcacheshim.so
    shift
    depth=$(tr -cd / <<< "$coverage_build" | wc -c)
    "$coverage_build/dist/bin/cacheshim" --version > /dev/null
    LD_PRELOAD=$library true
    chmod -R a+rwX "$coverage_build"
    mount_tests mount 'not long' "$junit" "$@" CACHESHIM_LIB=@repo@"${library#"$repo"}" \
        CACHESHIM_BIN=@repo@/build/variants/coverage/dist/bin/cacheshim \
        GCOV_PREFIX=@repo@/build/variants/coverage GCOV_PREFIX_STRIP="$depth" GCOV_ERROR_FILE=/dev/null
}

# Prints for each file the share of lines that were run, and the lines that were not.
_report_coverage() {
    local directory filters=()
    for directory in "${covered_directories[@]}"; do filters+=(--filter "$directory/"); done
    (cd "$repo" && gcovr --root . "${filters[@]}" --txt "$results/coverage.txt" \
        "$coverage_build") || die 'cannot read the coverage'
    cat "$results/coverage.txt"
    say "also in $results/coverage.txt"
}
