// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>

// Looks functions up in what is loaded already, by reading the loader's list and the ELF tables in
// memory. A library that exports dlsym and dlvsym itself has no other way to libc's own: by name it
// would find itself.
//
// Nothing here calls a function that a sanitizer interposes, as long as that list is there: it asks
// dlsym for its own functions before it can bear to be called.
namespace cacheshim {

// The first object of this process's list; the others follow by l_next. Null where the program does
// not say where the list is (static ones, and those linked by -z rodynamic).
const link_map* first_loaded();

// The address of the function `name` that `object` defines, of whatever version, or null. Needs
// DT_GNU_HASH, which every glibc since 2.5 has.
// Source of the layout: the System V ABI's "Dynamic Section", and DT_GNU_HASH as binutils writes it.
void* find_symbol_in(const link_map& object, const char* name);

// libc's own functions of the dynamic loader; none of them is an interposer's. Null members where
// libc has none (never, on glibc; dlvsym, on musl). Thread-safe; may be called before any constructor.
struct LibcLoader {
  void* (*find)(void* handle, const char* name);                               // dlsym
  void* (*find_version)(void* handle, const char* name, const char* version);  // dlvsym
  void* (*open)(const char* path, int flags);                                  // dlopen
  int (*locate)(const void* address, Dl_info* out);                            // dladdr
  char* (*take_error)();                                                       // dlerror
};
LibcLoader libc_loader();

}  // namespace cacheshim
