# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Installs other Debian releases in directories, to build and to test in them. Sourced by scripts/ and by tests/.

# Installs a minimal system with the packages, from this machine's package mirror, unless the directory already has one.
make_release() { # RELEASE DIRECTORY [PACKAGE…]
    local release=$1 directory=$2 mirror
    shift 2
    [ ! -e "$directory/.whole" ] || return 0
    rm -rf --one-file-system "$directory"
    mkdir -p "${directory%/*}"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
    debootstrap --variant=minbase ${1:+--include="$(IFS=,; echo "$*")"} "$release" "$directory" "$mirror" \
        > "$directory.log" 2>&1 || { tail -n 5 "$directory.log"; return 1; }
    touch "$directory/.whole"
}

this_release() { # prints the code name of this machine's release
    # shellcheck source=/dev/null
    (. /etc/os-release && echo "$VERSION_CODENAME")
}
