# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Debian packages. Names are the same in Debian 12 and 13.

build_packages=(
    g++ meson ninja-build pkg-config
    libfuse3-dev liburing-dev libfmt-dev libspdlog-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
    libxxhash-dev libgtest-dev libbenchmark-dev
)
run_packages=(
    fuse3       # fusermount3, for mounts without root
    util-linux  # unshare, setpriv
    mount python3 python3-venv ca-certificates
)
test_packages=(
    acl attr binutils
    git rsync ccache                                               # run on the mount
    libjemalloc2 libtcmalloc-minimal4 libeatmydata1 fakeroot       # preloaded beside our library
    valgrind strace
    runc                                                           # real containers for tests/mount/mounting/test_runc.py
    mandoc                                                         # checks the manual pages
    musl-tools                                                     # another libc
    clang                                                          # checks the lock annotations
)
long_test_packages=(python3-gdbm
    slurm-wlm munge                   # a cluster of this machine alone
    debootstrap                       # the library in other systems
    g++-aarch64-linux-gnu qemu-user)  # and for another architecture
coverage_packages=(gcovr)
suite_packages=(perl e2fsprogs xfsprogs bc gawk)  # used by other people's suites (tests/suites/README.md)
inductor_packages=(python3-dev)  # what torch.compile() has g++ build includes Python.h
bench_packages=(e2fsprogs fuse-overlayfs mergerfs unionfs-fuse)  # those we race against

python_testsuite() { # prints the package with the tests of Debian's own Python
    /usr/bin/python3 -c \
        'import sys; print("libpython{}.{}-testsuite".format(*sys.version_info))'
}

is_installed() { # PACKAGE
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}

# Asks the network only when something is missing.
ensure_packages() { # PACKAGE…
    local package missing=() log
    command -v dpkg-query > /dev/null || die 'needs Debian (apt and dpkg)'
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    mkdir -p "$repo/build"
    log=$repo/build/packages.log
    export DEBIAN_FRONTEND=noninteractive
    quietly 'reading the package lists' "$log" apt-get update -q ||
        die 'apt-get update failed'
    quietly "installing ${missing[*]}" "$log" \
        apt-get install -q -y --no-install-recommends "${missing[@]}" ||
        die 'apt-get install failed'
}
