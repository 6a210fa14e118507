# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Debian packages. The names are the same in Debian 12 and 13.

build_packages=(
    g++ meson ninja-build pkg-config
    libfuse3-dev liburing-dev libcap-dev libfmt-dev libspdlog-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
    libzstd-dev libsodium-dev libhiredis-dev libcurl4-openssl-dev # for the remote tier
    libmicrohttpd-dev                                             # for metrics
    libxxhash-dev libgtest-dev libbenchmark-dev
)
deb_packages=(dpkg-dev debhelper debootstrap lintian)
run_packages=(
    fuse3       # fusermount3, for mounts without root
    util-linux  # unshare, setpriv
    mount python3 python3-venv ca-certificates
)
test_packages=(
    acl attr binutils systemd
    git rsync ccache                                               # programs that the tests run on the mount
    libjemalloc2 libtcmalloc-minimal4 libeatmydata1 fakeroot       # preloaded together with cacheshim's library
    valgrind strace
    bindfs                                                         # stands for a file system of several machines
    runc                                                           # real containers for tests/mount/mounting/test_runc.py
    mandoc                                                         # checks the manual pages
    musl-tools                                                     # another libc
    zsh fish                                                       # complete the commands, as bash does
    clang                                                          # checks the lock annotations; builds the fuzzers
    redis-server                                                   # an engine of the remote tier; JuiceFS's metadata
    prometheus                                                     # reads the metrics; promtool checks them
    iproute2                                                       # networks between namespaces that stand for machines
)
long_test_packages=(python3-gdbm
    slurm-wlm munge                   # a SLURM cluster on this machine
    libclang-rt-dev                   # libFuzzer
    debootstrap                       # to test the library in other distributions
    g++-aarch64-linux-gnu qemu-user)  # to test the library on another architecture
node_packages=(nfs-ganesha nfs-ganesha-vfs nfs-common user-mode-linux  # NFS: a server, and clients' kernels
    glusterfs-server)                                                # GlusterFS
container_packages=(podman buildah crun)
coverage_packages=(gcovr)
suite_packages=(perl e2fsprogs xfsprogs bc gawk)  # for other projects' test suites (tests/suites/README.md)
inductor_packages=(python3-dev)  # the C++ code that torch.compile() generates includes Python.h
bench_packages=(e2fsprogs fuse-overlayfs mergerfs unionfs-fuse)  # mkfs.ext4, and the other contestants of the race

python_testsuite() { # prints the package with the tests of Debian's own Python
    /usr/bin/python3 -c \
        'import sys; print("libpython{}.{}-testsuite".format(*sys.version_info))'
}

is_installed() { # PACKAGE
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}

# Uses the network only if a package is missing.
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
