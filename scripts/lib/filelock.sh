# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# PyPI's filelock with its own tests, which its wheel does not have.

readonly filelock_version=3.20.0 # the last whose source distribution needs hatchling alone

ensure_filelock_tests() { # its environment is build/venv/filelock, the tests are in src/ there
    local log=$repo/build/logs/filelock.log
    ensure_venv filelock "filelock==$filelock_version" pytest pytest-mock pytest-asyncio \
        pytest-timeout virtualenv || return 1
    [ ! -d "$venv_path/src/tests" ] || return 0
    quietly "getting the tests of filelock $filelock_version" "$log" \
        _get_filelock_tests "$venv_path"
}

_get_filelock_tests() { # VENV
    local sdist=$1/sdist
    mkdir -p "$sdist" "$1/src" &&
        "$1/bin/python" -m pip download --disable-pip-version-check --no-input --no-deps \
            --no-binary filelock --dest "$sdist" "filelock==$filelock_version" &&
        tar -xf "$sdist/filelock-$filelock_version.tar.gz" -C "$1/src" --strip-components 1 &&
        chmod -R a+rX "$1"
}
