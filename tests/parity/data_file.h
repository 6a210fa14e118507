// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "tests/parity/data_step.h"
#include "tests/parity/mapping.h"

// DataFiles holds the files under test, and their expected contents in memory. It performs each
// step on both, and compares the results immediately.
namespace cacheshim::parity {

// A description of a wrong result; empty if the result is right.
using Wrong = std::optional<std::string>;

// The optional calls that the underlying file system supports.
struct Supported {
  bool punch = false;
  bool zero = false;
};
Supported what_is_supported(const std::string& directory);

class DataFiles {
 public:
  // `contents` are the contents of the files a and b in `directory`.
  DataFiles(std::string directory, std::array<std::string, kFiles> contents, Supported supported);

  // Performs a step. Does nothing if the step's descriptor or mapping does not exist, or does not
  // permit the step.
  Wrong carry_out(const DataStep& step);
  // Compares both files with their expected contents. Reads them through each readable descriptor,
  // through each mapping, and through a new descriptor.
  Wrong check_all();

  static std::string name(std::size_t file) { return file == 0 ? "a" : "b"; }

 private:
  struct Slot {
    UniqueFd fd;
    std::size_t file = 0;
    std::size_t at = 0;
    bool reads = false;
    bool writes = false;
    bool appends = false;
  };
  struct Mapped {
    Mapping mapping;
    std::size_t file = 0;
  };
  using Numbers = std::array<std::size_t, DataStep::kMostNumbers>;

  Wrong open(const Numbers& n);
  Wrong close(const Numbers& n);
  Wrong read(const Numbers& n);
  Wrong pread(const Numbers& n);
  Wrong write(const Numbers& n);
  Wrong pwrite(const Numbers& n);
  Wrong seek(const Numbers& n);
  Wrong set_flags(const Numbers& n);
  Wrong truncate(const Numbers& n);
  Wrong ftruncate(const Numbers& n);
  Wrong map(const Numbers& n);
  Wrong unmap(const Numbers& n);
  Wrong load(const Numbers& n);
  Wrong store(const Numbers& n);
  Wrong msync(const Numbers& n);
  Wrong fsync(const Numbers& n);
  Wrong punch(const Numbers& n);
  Wrong zero(const Numbers& n);
  Wrong reserve(const Numbers& n);
  Wrong collapse(const Numbers& n);
  Wrong insert(const Numbers& n);
  Wrong copy(const Numbers& n);
  Wrong seek_data(const Numbers& n);
  Wrong seek_hole(const Numbers& n);
  Wrong check(const Numbers& n);

  std::string path(std::size_t file) const { return directory_ + "/" + name(file); }
  Slot* readable(std::size_t slot);
  Slot* writable(std::size_t slot);
  void put(std::size_t file, std::size_t at, const std::string& bytes);
  // Returns the length of the part of [at, at + length) that lies in both the mapping and the file.
  std::size_t within(const Mapped& mapped, std::size_t at, std::size_t length) const;
  Wrong compare_file(int fd, std::size_t file, const std::string& what) const;
  Wrong write_back_mappings(std::size_t file);

  std::string directory_;
  std::array<std::string, kFiles> contents_;
  Supported supported_;
  std::array<Slot, kSlots> slots_;
  std::array<Mapped, kMappings> mapped_;
};

}  // namespace cacheshim::parity
