// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// Reads the dynamic symbols of a 64-bit shared library from its section headers. For tests only:
// does not validate the file.
namespace cacheshim {

struct DynamicSymbol {
  std::string name;
  std::string version;  // "GLIBC_2.17", or empty
  bool defined;
  bool weak;
};

class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : bytes_(read(path)) {
    const auto header = at<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw std::runtime_error(path);
    for (unsigned i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    }
  }

  std::vector<std::string> needed() const {
    std::vector<std::string> names;
    const Elf64_Shdr& dynamic = get(SHT_DYNAMIC);
    for (std::size_t i = 0; i < dynamic.sh_size; i += sizeof(Elf64_Dyn)) {
      const auto entry = at<Elf64_Dyn>(dynamic.sh_offset + i);
      if (entry.d_tag == DT_NEEDED) names.push_back(text(dynamic, entry.d_un.d_val));
    }
    return names;
  }

  std::vector<DynamicSymbol> symbols() const {
    const Elf64_Shdr& table = get(SHT_DYNSYM);
    const Elf64_Shdr* const version_of = find(SHT_GNU_versym);
    const std::map<unsigned, std::string> versions = read_versions();
    std::vector<DynamicSymbol> symbols;
    for (std::size_t i = 1; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
      const auto symbol = at<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym));
      unsigned version = 0;
      if (version_of != nullptr) version = at<Elf64_Half>(version_of->sh_offset + 2 * i) & 0x7fff;
      const auto found = versions.find(version);
      symbols.push_back({text(table, symbol.st_name), found == versions.end() ? "" : found->second,
                         symbol.st_shndx != SHN_UNDEF, ELF64_ST_BIND(symbol.st_info) == STB_WEAK});
    }
    return symbols;
  }

  // Returns the names that programs can link to, without libc's private ones.
  std::set<std::string> exports() const {
    std::set<std::string> names;
    for (const DynamicSymbol& symbol : symbols()) {
      if (symbol.defined && symbol.version != "GLIBC_PRIVATE") names.insert(symbol.name);
    }
    return names;
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    if (!file) throw std::runtime_error("cannot read " + path);
    return bytes.str();
  }
  template <class T>
  T at(std::size_t offset) const {
    T value;
    if (offset + sizeof value > bytes_.size()) throw std::runtime_error("truncated ELF file");
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  const Elf64_Shdr* find(Elf64_Word type) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == type) return &section;
    }
    return nullptr;
  }
  const Elf64_Shdr& get(Elf64_Word type) const {
    const Elf64_Shdr* const section = find(type);
    if (section == nullptr) throw std::runtime_error("no section of this type");
    return *section;
  }
  std::string text(const Elf64_Shdr& section, std::size_t offset) const {
    return bytes_.c_str() + sections_.at(section.sh_link).sh_offset + offset;
  }
  std::map<unsigned, std::string> read_versions() const {
    std::map<unsigned, std::string> versions;
    if (const Elf64_Shdr* section = find(SHT_GNU_verneed)) {
      std::size_t need_at = section->sh_offset;
      for (unsigned i = 0; i < section->sh_info; ++i) {
        const auto need = at<Elf64_Verneed>(need_at);
        std::size_t aux_at = need_at + need.vn_aux;
        for (unsigned j = 0; j < need.vn_cnt; ++j) {
          const auto aux = at<Elf64_Vernaux>(aux_at);
          versions[aux.vna_other] = text(*section, aux.vna_name);
          aux_at += aux.vna_next;
        }
        need_at += need.vn_next;
      }
    }
    if (const Elf64_Shdr* section = find(SHT_GNU_verdef)) {
      std::size_t definition_at = section->sh_offset;
      for (unsigned i = 0; i < section->sh_info; ++i) {
        const auto definition = at<Elf64_Verdef>(definition_at);
        const auto aux = at<Elf64_Verdaux>(definition_at + definition.vd_aux);
        versions[definition.vd_ndx] = text(*section, aux.vda_name);
        definition_at += definition.vd_next;
      }
    }
    return versions;
  }

  std::string bytes_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace cacheshim
