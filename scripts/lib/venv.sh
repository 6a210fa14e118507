# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Virtual environments below build/venv, made from Debian's own Python and kept for the next run.

readonly triton_version=3.9.0
# Triton 2.1.0 names temporary files by pid and `random`, 3.0.0 by pid and UUID; later versions use temporary
# directories.
readonly old_triton_versions=(2.1.0 3.0.0)
# torch with only the packages that `import torch` and torch's compiler need without a GPU: 4 GB instead of 6. The wheel
# is linked with exactly these versions of these CUDA libraries; torch loads other libraries only when it uses them.
readonly torch_requirements=(
    --no-deps torch==2.15.0
    nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86
    nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57
    nvidia-cufile==1.17.1.22 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1
    nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2
    filelock fsspec jinja2 markupsafe mpmath networkx setuptools sympy typing_extensions
)

# Writes a stamp file with Python's version and the requirements last, so that the next run replaces an incomplete or
# outdated environment.
ensure_venv() { # NAME REQUIREMENT…: sets venv_path
    local name=$1 stamp
    shift
    venv_path=$repo/build/venv/$name
    stamp="$(/usr/bin/python3 --version) $*"
    if [ "$(cat "$venv_path/stamp" 2> /dev/null)" = "$stamp" ]; then
        return 0
    fi
    rm -rf "$venv_path"
    mkdir -p "$repo/build/venv" "$repo/build/logs"
    quietly "making a virtual environment with $*" "$repo/build/logs/venv-$name.log" \
        _make_venv "$venv_path" "$@" || return 1
    printf '%s\n' "$stamp" > "$venv_path/stamp"
}

_make_venv() { # PATH REQUIREMENT…
    local path=$1
    shift
    /usr/bin/python3 -m venv "$path" &&
        "$path/bin/python" -m pip install --disable-pip-version-check --no-input "$@" &&
        chmod -R a+rX "$path"
}

system_python_is_at_most() { # MAJOR MINOR
    /usr/bin/python3 -c "import sys; sys.exit(sys.version_info[:2] > ($1, $2))"
}
