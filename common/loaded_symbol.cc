// SPDX-License-Identifier: Apache-2.0
#include "common/loaded_symbol.h"

#include <sys/auxv.h>

#include <atomic>
#include <cstdint>

namespace cacheshim {
namespace {

template <class T>
const T* at_address(std::uintptr_t address) {
  return reinterpret_cast<const T*>(address);
}

std::uintptr_t distance(std::uintptr_t left, std::uintptr_t right) {
  return left < right ? right - left : left - right;
}

// The dynamic section of the object that contains this code. The linker defines the symbol
// _DYNAMIC, which <link.h> already declares with default visibility, hence the other name here.
extern "C" [[gnu::visibility("hidden")]] const ElfW(Dyn) own_dynamic[] __asm__("_DYNAMIC");

// Replaces strcmp, which sanitizers interpose.
bool same(const char* a, const char* b) {
  for (; *a == *b; ++a, ++b) {
    if (*a == '\0') return true;
  }
  return false;
}

// Before glibc 2.34, the functions of LibcLoader were in libdl.so.2. musl's libc has one of several
// sonames, or none, so this function recognizes it by __libc_start_main.
bool is_libc(const LoadedObject& object) {
  constexpr SymbolName kStart("__libc_start_main");
  return object.is_called(kLibcName) || object.is_called("libdl.so.2") ||
         object.find(kStart) != nullptr;
}

template <class Function>
Function function_of(const LoadedObject& object, const SymbolName& name) {
  return reinterpret_cast<Function>(object.function(object.find(name)));
}

bool take_loader(const LoadedObject& object, void* out) {
  if (!is_libc(object)) return false;
  LibcLoader& loader = *static_cast<LibcLoader*>(out);
  loader.dlsym = function_of<decltype(loader.dlsym)>(object, SymbolName("dlsym"));
  if (loader.dlsym == nullptr) return false;
  loader.dlopen = function_of<decltype(loader.dlopen)>(object, SymbolName("dlopen"));
  loader.dladdr = function_of<decltype(loader.dladdr)>(object, SymbolName("dladdr"));
  loader.dlerror = function_of<decltype(loader.dlerror)>(object, SymbolName("dlerror"));
  return true;
}

bool is_glibc(const LoadedObject& object, void*) {
  constexpr SymbolName kVersion("gnu_get_libc_version");
  return object.is_called(kLibcName) && object.find(kVersion) != nullptr;
}

struct Search {
  bool (*is_it)(const LoadedObject& object, void* out);
  void* out;
};

link_map object_of(const dl_phdr_info& listed) {
  link_map object{};
  object.l_addr = listed.dlpi_addr;
  for (int i = 0; i < listed.dlpi_phnum; ++i) {
    if (listed.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    object.l_ld = reinterpret_cast<ElfW(Dyn)*>(listed.dlpi_addr + listed.dlpi_phdr[i].p_vaddr);
  }
  return object;
}

int check_listed(dl_phdr_info* listed, std::size_t, void* data) {
  const Search& search = *static_cast<Search*>(data);
  return search.is_it(LoadedObject(object_of(*listed)), search.out) ? 1 : 0;
}

bool is_vdso(const dl_phdr_info& listed) {
  const std::uintptr_t image = ::getauxval(AT_SYSINFO_EHDR);
  if (image == 0) return false;
  return at_address<ElfW(Phdr)>(image + at_address<ElfW(Ehdr)>(image)->e_phoff) ==
         listed.dlpi_phdr;
}

// Returns 1 also for an object without the hash table that this file reads, because the object may
// define any name. Returns 0 for the vDSO, which lacks the table on some machines: dlsym does not
// search the vDSO.
int may_listed_define(dl_phdr_info* listed, std::size_t, void* data) {
  const link_map object = object_of(*listed);
  if (object.l_ld == own_dynamic || object.l_ld == nullptr || is_vdso(*listed)) return 0;
  const LoadedObject loaded(object);
  const auto& name = *static_cast<const SymbolName*>(data);
  return !loaded.is_readable() || loaded.find(name) != nullptr ? 1 : 0;
}

bool any_loaded(Search search) {
  const link_map* object = first_loaded();
  if (object == nullptr) return ::dl_iterate_phdr(check_listed, &search) != 0;
  for (; object != nullptr; object = object->l_next) {
    if (search.is_it(LoadedObject(*object), search.out)) return true;
  }
  return false;
}

// Several threads may store these at the same time, because they all store the same values.
constinit std::atomic<decltype(LibcLoader::dlsym)> known_dlsym{nullptr};
constinit std::atomic<decltype(LibcLoader::dlopen)> known_dlopen{nullptr};
constinit std::atomic<decltype(LibcLoader::dladdr)> known_dladdr{nullptr};
constinit std::atomic<decltype(LibcLoader::dlerror)> known_dlerror{nullptr};

}  // namespace

// Uses the program's DT_DEBUG entry, through which the loader exposes its list to debuggers.
const link_map* first_loaded() {
  const auto* const headers = at_address<ElfW(Phdr)>(::getauxval(AT_PHDR));
  const unsigned long count = ::getauxval(AT_PHNUM);
  if (headers == nullptr) return nullptr;
  std::uintptr_t base = 0;
  const ElfW(Phdr)* dynamic = nullptr;
  for (unsigned long i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_PHDR) base = ::getauxval(AT_PHDR) - headers[i].p_vaddr;
    if (headers[i].p_type == PT_DYNAMIC) dynamic = &headers[i];
  }
  if (dynamic == nullptr) return nullptr;
  const auto* entry = at_address<ElfW(Dyn)>(base + dynamic->p_vaddr);
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_DEBUG || entry->d_un.d_ptr == 0) continue;
    return at_address<r_debug>(entry->d_un.d_ptr)->r_map;
  }
  return nullptr;
}

const link_map* own_object() {
  const link_map* object = first_loaded();
  while (object != nullptr && object->l_ld != own_dynamic) object = object->l_next;
  return object;
}

// glibc adds the base to the addresses in a writable dynamic section, but the vDSO's addresses stay as they were
// linked. So an entry contains either the final address or the address without the base. The tables are in the same
// image as the section, so the candidate that is closer to the section is right. The sum with the base may overflow:
// user-mode Linux links its vDSO at a high address.
LoadedObject::LoadedObject(const link_map& object) : base_(object.l_addr) {
  if (object.l_ld == nullptr) return;
  const auto section = reinterpret_cast<std::uintptr_t>(object.l_ld);
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    std::uintptr_t address = entry->d_un.d_ptr;
    if (distance(address + base_, section) < distance(address, section)) address += base_;
    if (entry->d_tag == DT_SYMTAB) symbols_ = at_address<ElfW(Sym)>(address);
    if (entry->d_tag == DT_STRTAB) strings_ = at_address<char>(address);
    if (entry->d_tag == DT_GNU_HASH) gnu_hash_ = at_address<std::uint32_t>(address);
    if (entry->d_tag == DT_VERSYM) versions_ = at_address<ElfW(Half)>(address);
    if (entry->d_tag == DT_SONAME) soname_offset_ = entry->d_un.d_val;
  }
}

const ElfW(Sym) * LoadedObject::find(const SymbolName& name) const {
  // Marks a symbol whose version is not the default: only objects that were linked against this version use it.
  constexpr ElfW(Half) kHidden = 0x8000;
  if (!is_readable()) return nullptr;
  constexpr std::uint32_t kWordBits = 8 * sizeof(ElfW(Addr));
  const std::uint32_t bucket_count = gnu_hash_[0];
  const std::uint32_t first_symbol = gnu_hash_[1];
  const std::uint32_t bloom_words = gnu_hash_[2];  // a power of two
  const auto* const bloom = static_cast<const ElfW(Addr)*>(static_cast<const void*>(gnu_hash_ + 4));
  const ElfW(Addr) word = bloom[name.hash / kWordBits & (bloom_words - 1)];
  const ElfW(Addr) both =
      word >> (name.hash % kWordBits) & word >> ((name.hash >> gnu_hash_[3]) % kWordBits);
  if ((both & 1) == 0) return nullptr;
  const auto* const buckets =
      static_cast<const std::uint32_t*>(static_cast<const void*>(bloom + bloom_words));
  const std::uint32_t* const chain = buckets + bucket_count;
  if (bucket_count == 0) return nullptr;
  std::uint32_t index = buckets[name.hash % bucket_count];
  if (index < first_symbol) return nullptr;
  for (;; ++index) {
    const std::uint32_t hash = chain[index - first_symbol];  // the lowest bit is set only in the last hash of a chain
    const ElfW(Sym)& symbol = symbols_[index];
    if ((hash | 1) == (name.hash | 1) && symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
        (versions_ == nullptr || (versions_[index] & kHidden) == 0) &&
        same(strings_ + symbol.st_name, name.text)) {
      return &symbol;
    }
    if ((hash & 1) != 0) return nullptr;
  }
}

void* LoadedObject::function(const ElfW(Sym) * symbol) const {
  if (symbol == nullptr || (symbol->st_info & 0xf) != STT_FUNC) return nullptr;
  return reinterpret_cast<void*>(base_ + symbol->st_value);
}

bool LoadedObject::is_called(const char* soname) const {
  return strings_ != nullptr && same(strings_ + soname_offset_, soname);  // without a soname, the offset is 0: ""
}

bool may_be_defined(const SymbolName& name) {
  return ::dl_iterate_phdr(may_listed_define, const_cast<SymbolName*>(&name)) != 0;
}

bool is_glibc_loaded() { return any_loaded({is_glibc, nullptr}); }

bool is_marked_program(const SymbolName& mark) {
  const link_map* const program = first_loaded();
  return program != nullptr && LoadedObject(*program).find(mark) != nullptr;
}

LibcLoader libc_loader() {
  LibcLoader loader{};
  loader.dlsym = known_dlsym.load(std::memory_order_acquire);
  if (loader.dlsym != nullptr) {
    loader.dlopen = known_dlopen.load(std::memory_order_relaxed);
    loader.dladdr = known_dladdr.load(std::memory_order_relaxed);
    loader.dlerror = known_dlerror.load(std::memory_order_relaxed);
    return loader;
  }
  if (!any_loaded({take_loader, &loader})) return {};
  known_dlopen.store(loader.dlopen, std::memory_order_relaxed);
  known_dladdr.store(loader.dladdr, std::memory_order_relaxed);
  known_dlerror.store(loader.dlerror, std::memory_order_relaxed);
  known_dlsym.store(loader.dlsym, std::memory_order_release);
  return loader;
}

}  // namespace cacheshim
