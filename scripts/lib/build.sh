# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Builds build/dist/bin/cacheshim and build/dist/lib/libcacheshim.so.

# The targets that are installed. Building only these takes a third of the time that all targets take.
readonly product=(cli/cacheshim shim/libcacheshim.so)

readonly dist=$repo/build/dist

_configure() { # DIRECTORY [MESON OPTION…]
    local directory=$1
    shift
    local options=(--prefix "$dist" --libdir lib -Dtests=true "$@")
    if [ -f "$directory/meson-private/coredata.dat" ]; then
        # The directory may already be configured with another prefix.
        meson configure "$directory" "${options[@]}" 2> /dev/null && return 0
        # `meson configure` does not know options that were added to the sources after the last configuration.
        meson setup --reconfigure "$directory" "$repo" "${options[@]}" && return 0
        # The directory was configured by another version of Meson, or at another path.
        meson setup --wipe "$directory" "$repo" "${options[@]}"
    else
        meson setup "$directory" "$repo" "${options[@]}"
    fi
}

build() { # TARGET…: ninja targets
    local logs=$repo/build/logs
    mkdir -p "$logs"
    quietly 'configuring' "$logs/configure.log" _configure "$repo/build" || die 'cannot configure'
    quietly 'building' "$logs/build.log" ninja -C "$repo/build" "$@" || die 'cannot build'
    quietly 'installing into build/dist' "$logs/install.log" \
        meson install -C "$repo/build" --no-rebuild || die 'cannot install'
    [ -x "$dist/bin/cacheshim" ] || die 'the build made no build/dist/bin/cacheshim'
    [ -f "$dist/lib/libcacheshim.so" ] || die 'the build made no build/dist/lib/libcacheshim.so'
}

# Builds a variant in build/variants/NAME, with other options or another compiler than build(). The installed programs
# keep their symbols, which the sanitizers print.
build_variant() { # NAME [MESON OPTION…] [-- TARGET…]: all targets if none is named
    local name=$1 directory=$repo/build/variants/$1 options=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    if [ $# -gt 0 ]; then shift; fi
    mkdir -p "$repo/build/logs" "$directory"
    quietly "configuring the $name build" "$repo/build/logs/$name-configure.log" \
        _configure "$directory" --prefix "$directory/dist" -Dstrip=false "${options[@]}" || return 1
    quietly "building the $name build" "$repo/build/logs/$name-build.log" \
        ninja -C "$directory" "$@"
}
