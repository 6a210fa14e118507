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

// Where an object in memory keeps its symbols.
struct SymbolTables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  std::uintptr_t name_offset = 0;  // of DT_SONAME in strings; 0: none
};

// Not strcmp, which sanitizers interpose.
bool same(const char* a, const char* b) {
  for (; *a == *b; ++a, ++b) {
    if (*a == '\0') return true;
  }
  return false;
}

SymbolTables read_tables(const link_map& object) {
  SymbolTables tables;
  if (object.l_ld == nullptr) return tables;
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    // glibc writes absolute addresses into the section where it can; the vDSO's are relative.
    std::uintptr_t address = entry->d_un.d_ptr;
    if (address < object.l_addr) address += object.l_addr;
    if (entry->d_tag == DT_SYMTAB) tables.symbols = at_address<ElfW(Sym)>(address);
    if (entry->d_tag == DT_STRTAB) tables.strings = at_address<char>(address);
    if (entry->d_tag == DT_GNU_HASH) tables.gnu_hash = at_address<std::uint32_t>(address);
    if (entry->d_tag == DT_SONAME) tables.name_offset = entry->d_un.d_val;
  }
  return tables;
}

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

const ElfW(Sym) * find_symbol(const SymbolTables& tables, const char* name) {
  if (tables.gnu_hash == nullptr || tables.symbols == nullptr || tables.strings == nullptr) {
    return nullptr;
  }
  const std::uint32_t bucket_count = tables.gnu_hash[0];
  const std::uint32_t first_symbol = tables.gnu_hash[1];
  const std::uint32_t bloom_words = tables.gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* const buckets = tables.gnu_hash + 4 + bloom_words;
  const std::uint32_t* const chain = buckets + bucket_count;
  if (bucket_count == 0) return nullptr;
  const std::uint32_t wanted = gnu_hash(name);
  std::uint32_t index = buckets[wanted % bucket_count];
  if (index < first_symbol) return nullptr;
  for (;; ++index) {
    const std::uint32_t hash = chain[index - first_symbol];  // its lowest bit ends the chain
    const ElfW(Sym)& symbol = tables.symbols[index];
    if ((hash | 1) == (wanted | 1) && symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
        same(tables.strings + symbol.st_name, name)) {
      return &symbol;
    }
    if ((hash & 1) != 0) return nullptr;
  }
}

void* address_of(const link_map& object, const SymbolTables& tables, const char* name) {
  const ElfW(Sym)* const symbol = find_symbol(tables, name);
  if (symbol == nullptr || (symbol->st_info & 0xf) != STT_FUNC) return nullptr;
  return reinterpret_cast<void*>(object.l_addr + symbol->st_value);
}

// Before glibc 2.34 these functions were libdl.so.2's. musl's libc goes by several names, or none.
bool is_libc(const SymbolTables& tables) {
  if (tables.strings == nullptr) return false;
  const char* const name = tables.strings + tables.name_offset;  // empty at offset 0
  return same(name, "libc.so.6") || same(name, "libdl.so.2") ||
         find_symbol(tables, "__libc_start_main") != nullptr;
}

bool take_loader(const link_map& object, LibcLoader& loader) {
  const SymbolTables tables = read_tables(object);
  if (!is_libc(tables)) return false;
  void* const find = address_of(object, tables, "dlsym");
  if (find == nullptr) return false;
  loader.find = reinterpret_cast<decltype(loader.find)>(find);
  loader.find_version =
      reinterpret_cast<decltype(loader.find_version)>(address_of(object, tables, "dlvsym"));
  loader.open = reinterpret_cast<decltype(loader.open)>(address_of(object, tables, "dlopen"));
  loader.locate = reinterpret_cast<decltype(loader.locate)>(address_of(object, tables, "dladdr"));
  loader.take_error =
      reinterpret_cast<decltype(loader.take_error)>(address_of(object, tables, "dlerror"));
  return true;
}

int take_listed_loader(dl_phdr_info* listed, std::size_t, void* loader) {
  link_map object{};
  object.l_addr = listed->dlpi_addr;
  for (int i = 0; i < listed->dlpi_phnum; ++i) {
    if (listed->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    object.l_ld = reinterpret_cast<ElfW(Dyn)*>(listed->dlpi_addr + listed->dlpi_phdr[i].p_vaddr);
  }
  return take_loader(object, *static_cast<LibcLoader*>(loader)) ? 1 : 0;
}

// Written again by every thread that comes before the last of them is there, with equal values.
constinit std::atomic<decltype(LibcLoader::find)> known_find{nullptr};
constinit std::atomic<decltype(LibcLoader::find_version)> known_find_version{nullptr};
constinit std::atomic<decltype(LibcLoader::open)> known_open{nullptr};
constinit std::atomic<decltype(LibcLoader::locate)> known_locate{nullptr};
constinit std::atomic<decltype(LibcLoader::take_error)> known_take_error{nullptr};

}  // namespace

// By the program's DT_DEBUG, where the loader leaves its list for debuggers.
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

void* find_symbol_in(const link_map& object, const char* name) {
  return address_of(object, read_tables(object), name);
}

LibcLoader libc_loader() {
  LibcLoader loader{};
  loader.find = known_find.load(std::memory_order_acquire);
  if (loader.find != nullptr) {
    loader.find_version = known_find_version.load(std::memory_order_relaxed);
    loader.open = known_open.load(std::memory_order_relaxed);
    loader.locate = known_locate.load(std::memory_order_relaxed);
    loader.take_error = known_take_error.load(std::memory_order_relaxed);
    return loader;
  }
  for (const link_map* object = first_loaded(); object != nullptr; object = object->l_next) {
    if (take_loader(*object, loader)) break;
  }
  if (loader.find == nullptr) (void)::dl_iterate_phdr(take_listed_loader, &loader);
  known_find_version.store(loader.find_version, std::memory_order_relaxed);
  known_open.store(loader.open, std::memory_order_relaxed);
  known_locate.store(loader.locate, std::memory_order_relaxed);
  known_take_error.store(loader.take_error, std::memory_order_relaxed);
  known_find.store(loader.find, std::memory_order_release);
  return loader;
}

}  // namespace cacheshim
