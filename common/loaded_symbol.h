// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstdint>

// Finds functions in loaded objects by reading the loader's list and the ELF tables in memory. A library that exports
// dlsym and dlvsym has no other way to find libc's functions of these names: a search by name would find the library's
// own functions.
//
// When a sanitizer starts, it calls dlsym to find the functions that it interposes. The sanitizer's interceptors do not
// work yet, so code that runs in this dlsym call must not call an interposed function. If the loader's list exists,
// may_be_defined() is the only function here that calls an interposed function (dl_iterate_phdr).
namespace cacheshim {

// Returns the first object of the loader's list; l_next leads to the others. Returns null if the program does not
// expose the list, because it is static or was linked with -z rodynamic.
const link_map* first_loaded();

// Returns the object that contains this code; null if the program does not expose the loader's list, or
// if the object is in another link-map namespace (dlmopen).
const link_map* own_object();

// A name and its hash, computed at compile time.
struct SymbolName {
  constexpr explicit SymbolName(const char* name) : text(name) {
    for (const char* at = name; *at != '\0'; ++at) {
      hash = hash * 33 + static_cast<unsigned char>(*at);
    }
  }
  const char* text;
  std::uint32_t hash = 5381;  // the hash function of DT_GNU_HASH
};

// The symbols that an object in memory defines. Needs DT_GNU_HASH, which every glibc since 2.5 has.
// Source of the layout: the System V ABI's "Dynamic Section", DT_GNU_HASH as binutils writes it, and the
// LSB's "Symbol Versioning".
class LoadedObject {
 public:
  constexpr LoadedObject() = default;  // is_readable() returns false for this object
  explicit LoadedObject(const link_map& object);

  // Whether find() can return a result.
  bool is_readable() const {
    return gnu_hash_ != nullptr && symbols_ != nullptr && strings_ != nullptr;
  }
  // Returns the symbol that dlsym would choose (the default version); null if there is none.
  const ElfW(Sym) * find(const SymbolName& name) const;
  // Returns the address of `symbol` if it is a function and is not chosen at run time
  // (STT_GNU_IFUNC); otherwise null.
  void* function(const ElfW(Sym) * symbol) const;
  bool is_called(const char* soname) const;  // whether DT_SONAME is `soname`

 private:
  std::uintptr_t base_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const ElfW(Half) * versions_ = nullptr;
  std::uintptr_t soname_offset_ = 0;  // the position in strings_; 0 if there is no soname
};

// The library recognizes the program cacheshim by this symbol, which cli/main.cc exports. The library does nothing in
// this program, because the program must see the mount itself.
inline constexpr SymbolName kProgramMark("cacheshim_program_mark");

// Whether the program itself, and not one of its libraries, exports `mark`. Returns false if the program does not
// expose the loader's list.
bool is_marked_program(const SymbolName& mark);

inline constexpr const char* kLibcName = "libc.so.6";

// Returns false if the program has another libc, even one that imitates glibc.
bool is_glibc_loaded();

// Whether any object of this process except this library may define the name. Call this before dlsym: a dlsym call that
// fails overwrites an error that the application has not yet fetched by dlerror(3). Takes the loader's lock.
bool may_be_defined(const SymbolName& name);

// libc's own functions for dynamic loading, never those of an interposer. All members are null if libc has no dlsym: a
// glibc before 2.34 has none until libdl.so.2 is loaded. A single member is null if libc lacks that function.
// libc_loader() is thread-safe, and may be called before any constructor.
struct LibcLoader {
  void* (*dlsym)(void* handle, const char* name);
  void* (*dlopen)(const char* path, int flags);
  int (*dladdr)(const void* address, Dl_info* out);
  char* (*dlerror)();
};
LibcLoader libc_loader();

}  // namespace cacheshim
