// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>

// Looks functions up in what is loaded already, by reading the ELF tables in memory. A library that
// exports dlsym and dlvsym itself has no other way to libc's own: by name it would find itself.
namespace cacheshim {

// The address of the function `name` that `object` defines, of whatever version, or null. Needs
// DT_GNU_HASH, which every glibc since 2.5 has. Allocates nothing.
// Source of the layout: "ELF Symbol Versioning" and binutils' DT_GNU_HASH.
void* find_symbol_in(const dl_phdr_info& object, const char* name);

// libc's own functions of the dynamic loader; none of them is an interposer's. Null members where
// libc has none (never, on glibc). Thread-safe; allocates nothing; may be called before any
// constructor.
struct LibcLoader {
  void* (*find)(void* handle, const char* name);                               // dlsym
  void* (*find_version)(void* handle, const char* name, const char* version);  // dlvsym
  void* (*open)(const char* path, int flags);                                  // dlopen
  int (*locate)(const void* address, Dl_info* out);                            // dladdr
};
LibcLoader libc_loader();

}  // namespace cacheshim
