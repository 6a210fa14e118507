# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # names are shared between these files
# Builds cacheshim for every Linux with glibc 2.28 or newer, in build/packages/portable/ARCH. The program contains all
# libraries but glibc. They are built from the sources of Debian 12's packages, with the C compiler of Zig, which links
# against the symbols of any glibc and for any architecture.

readonly portable_glibc=2.28
readonly portable_packages=(dpkg-dev autoconf automake libtool make xz-utils)
# The meson of Debian 12 does not know Zig's linker. wheel makes packages for pip.
readonly portable_tools=(ziglang==0.17.1 meson==1.12.1 wheel)
readonly portable=$repo/build/packages/portable
readonly portable_sources=(fuse3 liburing libcap2 libzstd libsodium hiredis mbedtls curl libmicrohttpd)

# Builds the product in build/packages/portable/ARCH/dist. ARCH: x86_64 or aarch64.
build_portable() { # ARCH
    local arch=$1 root=$portable/$1
    ensure_packages "${build_packages[@]}" "${portable_packages[@]}"
    [ "$arch" = "$(uname -m)" ] || ensure_packages qemu-user "g++-${arch/_/-}-linux-gnu"
    ensure_venv portable "${portable_tools[@]}" || die 'cannot get Zig and Meson'
    quietly 'fetching the sources of the libraries' "$repo/build/logs/portable-sources.log" _fetch_sources ||
        die 'cannot fetch the sources of the libraries'
    if ! _has_all "$root"; then
        rm -rf "$root"
        mkdir -p "$root/bin" "$root/include" "$root/lib/pkgconfig" "$root/licenses"
        quietly "building the libraries for $arch" "$repo/build/logs/portable-libraries-$arch.log" \
            _build_libraries "$arch" "$root" || die "cannot build the libraries for $arch"
        _note_all "$root"
    fi
    quietly "building cacheshim for $arch" "$repo/build/logs/portable-$arch.log" _build_product "$root" ||
        die "cannot build cacheshim for $arch"
}

# Whether DIRECTORY has the present list of libraries, sources or built ones.
_has_all() { # DIRECTORY
    [ "$(cat "$1/.whole" 2> /dev/null)" = "${portable_sources[*]}" ]
}

_note_all() { # DIRECTORY
    printf '%s\n' "${portable_sources[*]}" > "$1/.whole"
}

# apt verifies the sources' signatures. The lists are private, so that the system's configuration stays as it is.
_fetch_sources() {
    local list=$portable/sources.list mirror
    ! _has_all "$portable/sources" || return 0
    mkdir -p "$portable/lists/partial" "$portable/sources"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" > "$list"
    local options=(-o "Dir::Etc::SourceList=$list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$portable/lists" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update &&
        env -C "$portable/sources" apt-get "${options[@]}" source --download-only "${portable_sources[@]}" &&
        _note_all "$portable/sources"
}

_build_libraries() { # ARCH ROOT
    local arch=$1 root=$2 name
    _write_tools "$arch" "$root"
    rm -rf "$root/build"
    mkdir "$root/build"
    for name in "${portable_sources[@]}"; do
        mkdir "$root/build/$name"
        tar -C "$root/build/$name" --strip-components=1 -xf "$portable/sources/$name"_*.orig.tar.*z || return 1
        # Not in a condition: `set -e` would then have no effect in the subshell.
        (set -e && cd "$root/build/$name" && "_build_$name" "$arch" "$root") &
        wait "$!" || return 1
        cat "$root/build/$name"/{COPYING,LICENSE,License,LICENSE.txt,lib/COPYING,LGPL2.txt} \
            > "$root/licenses/$name" 2> /dev/null || true
    done
    _add_header_only_libraries "$root"
    # As system headers, the libraries' headers cause no warnings.
    sed -i 's/-I/-isystem /g' "$root"/lib/pkgconfig/*.pc
    rm -rf "$root/build"
}

# Writes the compilers and Meson's description of them.
_write_tools() { # ARCH ROOT
    local arch=$1 root=$2 tool wrapper=''
    for tool in cc c++ ar ranlib; do
        cat > "$root/bin/$tool" << EOF
#!/bin/sh
# Zig passes a request for the predefined macros on to clang, which does not know a version of glibc.
case " \$* " in *' -dM '*) glibc= ;; *) glibc=.$portable_glibc ;; esac
case $tool in cc | c++) set -- -target "$arch-linux-gnu\$glibc" "\$@" ;; esac
exec "$venv_path/bin/python" -m ziglang $tool "\$@"
EOF
        chmod +x "$root/bin/$tool"
    done
    [ "$arch" = "$(uname -m)" ] || wrapper="exe_wrapper = ['qemu-$arch', '-L', '/usr/$arch-linux-gnu']"
    cat > "$root/meson.ini" << EOF
[binaries]
c = '$root/bin/cc'
cpp = '$root/bin/c++'
ar = '$root/bin/ar'
pkg-config = 'pkg-config'
$wrapper
[built-in options]
c_link_args = ['-s']
cpp_link_args = ['-s']
[properties]
pkg_config_libdir = '$root/lib/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = '$arch'
cpu = '$arch'
endian = 'little'
EOF
}

_configure_for() { # ARCH ROOT [OPTION…]
    local arch=$1 root=$2
    shift 2
    CC=$root/bin/cc CXX=$root/bin/c++ AR=$root/bin/ar RANLIB=$root/bin/ranlib CFLAGS='-O2 -fPIC' \
        ./configure --host="$arch-linux-gnu" --prefix="$root" --disable-shared "$@"
}

_make_with() { # ROOT [ARGUMENT…]
    local root=$1
    shift
    make -j "$(nproc)" CC="$root/bin/cc" AR="$root/bin/ar" RANLIB="$root/bin/ranlib" "$@"
}

_build_fuse3() { # ARCH ROOT; as the other functions
    "$venv_path/bin/meson" setup o --cross-file "$2/meson.ini" --prefix "$2" --libdir lib --buildtype release \
        -Ddefault_library=static -Dexamples=false -Dutils=false -Dtests=false -Duseroot=false
    "$venv_path/bin/meson" install -C o
}

_build_liburing() {
    ./configure --prefix="$2" --cc="$2/bin/cc" --cxx="$2/bin/c++"
    _make_with "$2" -C src install ENABLE_SHARED=0
    make liburing.pc
    cp liburing.pc "$2/lib/pkgconfig"
}

_build_libcap2() {
    _make_with "$2" -C libcap libcap.a BUILD_CC=cc OBJCOPY=objcopy COPTS='-O2 -fPIC' SHARED=no
    cp libcap/libcap.a "$2/lib"
    mkdir -p "$2/include/sys"
    cp libcap/include/sys/capability.h "$2/include/sys"
    _write_pc "$2" libcap 2.66 '' -lcap
}

_build_libzstd() {
    _make_with "$2" -C lib libzstd.a CFLAGS='-O2 -fPIC'
    cp lib/libzstd.a "$2/lib"
    cp lib/zstd.h lib/zstd_errors.h "$2/include"
    _write_pc "$2" libzstd 1.5.4 '' -lzstd
}

_build_libsodium() {
    autoreconf --force --install
    _configure_for "$1" "$2" --disable-pie
    make -j "$(nproc)" install
}

_build_hiredis() {
    _make_with "$2" static OPTIMIZATION=-O2
    mkdir -p "$2/include/hiredis"
    cp alloc.h hiredis.h read.h sds.h "$2/include/hiredis"
    cp libhiredis.a "$2/lib"
    _write_pc "$2" hiredis 0.14.1 '' -lhiredis
}

_build_mbedtls() {
    _make_with "$2" -C library static CFLAGS='-O2 -fPIC'
    cp library/*.a "$2/lib"
    cp -r include/mbedtls include/psa "$2/include"
}

_build_curl() {
    local protocol without=()
    for protocol in dict file ftp gopher imap ldap mqtt pop3 rtsp smb smtp telnet tftp; do
        without+=("--disable-$protocol")
    done
    _configure_for "$1" "$2" --with-mbedtls="$2" --with-ca-bundle=/etc/ssl/certs/ca-certificates.crt \
        --without-zlib --without-brotli --without-zstd --without-libidn2 --without-nghttp2 --without-libpsl \
        --without-librtmp --disable-manual --disable-unix-sockets "${without[@]}"
    make -j "$(nproc)" -C lib install
    make -C include install
    _write_pc "$2" libcurl 7.88.1 -DCURL_STATICLIB '-lcurl -lmbedtls -lmbedx509 -lmbedcrypto'
}

_build_libmicrohttpd() {
    _configure_for "$1" "$2" --disable-https --disable-doc --disable-examples --disable-tools --disable-curl
    make -j "$(nproc)" install
}

_add_header_only_libraries() { # ROOT
    local root=$1 header
    for header in fmt spdlog CLI nlohmann toml++ xxhash.h; do ln -sfn "/usr/include/$header" "$root/include/$header"; done
    _write_pc "$root" fmt "$(pkg-config --modversion fmt)" -DFMT_HEADER_ONLY
    _write_pc "$root" spdlog "$(pkg-config --modversion spdlog)" '-DSPDLOG_FMT_EXTERNAL -DFMT_HEADER_ONLY' -pthread
    for header in CLI11 nlohmann_json tomlplusplus libxxhash; do
        _write_pc "$root" "$header" "$(pkg-config --modversion "$header")"
    done
}

_write_pc() { # ROOT NAME VERSION [CFLAGS [LIBS]]
    printf 'Name: %s\nDescription: %s\nVersion: %s\nCflags: -I%s/include %s\nLibs: -L%s/lib %s\n' \
        "$2" "$2" "$3" "$1" "${4:-}" "$1" "${5:-}" > "$1/lib/pkgconfig/$2.pc"
}

_build_product() { # ROOT
    local root=$1 options=(--cross-file "$1/meson.ini" --prefix "$1/dist" --libdir lib --libexecdir libexec
        --buildtype release -Dprefer_static=true)
    rm -rf "$root/dist"
    "$venv_path/bin/meson" setup "$root/product" "$repo" "${options[@]}" --reconfigure &&
        ninja -C "$root/product" && "$venv_path/bin/meson" install -C "$root/product" --no-rebuild
}
