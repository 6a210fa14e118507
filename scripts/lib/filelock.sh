# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Installs PyPI's filelock, each version in its own virtual environment. Adds filelock's own tests, which its wheel does
# not contain.

# filelock 3.20 keeps its lock files; 3.24 and 3.29 unlink a lock file when they release the lock.
readonly filelock_versions=(3.20.0 3.29.0)
readonly more_filelock_versions=(3.13.4 3.24.3 4.2.0) # for --long

ensure_filelock_tests() { # VERSION…: installs into build/venv/filelock-VERSION, with the tests in its src/
    local version
    for version in "$@"; do
        ensure_venv "filelock-$version" "filelock==$version" pytest pytest-mock pytest-asyncio \
            pytest-timeout virtualenv hatchling hatch-vcs || return 1
        [ ! -d "$venv_path/src/tests" ] || continue
        quietly "getting the tests of filelock $version" \
            "$repo/build/logs/filelock-$version.log" _get_filelock_tests "$venv_path" "$version" ||
            return 1
    done
}

# pip builds the metadata of a source distribution with hatchling and hatch-vcs. Only the tests are taken from the
# source distribution: the package itself comes from the wheel.
_get_filelock_tests() { # VENV VERSION
    local sdist=$1/sdist
    mkdir -p "$sdist" "$1/new" &&
        "$1/bin/python" -m pip download --disable-pip-version-check --no-input --no-deps \
            --no-build-isolation --no-binary filelock --dest "$sdist" "filelock==$2" &&
        tar -xf "$sdist/filelock-$2.tar.gz" -C "$1/new" --strip-components 1 &&
        rm -rf "$1/new/src" && chmod -R a+rX "$1" && mv "$1/new" "$1/src"
}
