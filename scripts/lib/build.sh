# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# What is installed; a build of these alone takes a third of the time.
readonly product=(cli/cacheshim shim/libcacheshim.so)

# The build: afterwards build/dist/bin/cacheshim and build/dist/lib/libcacheshim.so are there.

readonly dist=$repo/build/dist

_configure() { # DIRECTORY [MESON OPTION…]
    local directory=$1
    shift
    local options=(--prefix "$dist" --libdir lib "$@")
    if [ -f "$directory/meson-private/coredata.dat" ]; then
        # Someone may have configured it before, with another prefix.
        meson configure "$directory" "${options[@]}" 2> /dev/null && return 0
        # Made by another version of Meson, or moved here from elsewhere.
        meson setup --wipe "$directory" "$repo" "${options[@]}"
    else
        meson setup "$directory" "$repo" "${options[@]}"
    fi
}

build() { # TARGET…: as ninja takes them
    local logs=$repo/build/logs
    mkdir -p "$logs"
    quietly 'configuring' "$logs/configure.log" _configure "$repo/build" || die 'cannot configure'
    quietly 'building' "$logs/build.log" ninja -C "$repo/build" "$@" || die 'cannot build'
    quietly 'installing into build/dist' "$logs/install.log" \
        meson install -C "$repo/build" --no-rebuild || die 'cannot install'
    [ -x "$dist/bin/cacheshim" ] || die 'the build made no build/dist/bin/cacheshim'
    [ -f "$dist/lib/libcacheshim.so" ] || die 'the build made no build/dist/lib/libcacheshim.so'
}

# A further build, with other options or another compiler, beside the first.
build_variant() { # NAME [MESON OPTION…] [-- TARGET…]: every target if none is named
    local name=$1 directory=$repo/build/variants/$1 options=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    if [ $# -gt 0 ]; then shift; fi
    mkdir -p "$repo/build/logs" "$directory"
    quietly "configuring the $name build" "$repo/build/logs/$name-configure.log" \
        _configure "$directory" --prefix "$directory/dist" "${options[@]}" || return 1
    quietly "building the $name build" "$repo/build/logs/$name-build.log" \
        ninja -C "$directory" "$@"
}
