// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// A pack holds the objects of several entries, so that one request to the engine fetches all of them (docs/remote.md).
// A pack is not signed: a reader verifies each object in it as if the object had been fetched alone.
//
//   offset  bytes
//        0      8  "CSHIMPK1"
//        8         for each entry: the length U of its name and the length S of its object, both as 8 bytes,
//                  little-endian; the name (U bytes); the object (S bytes)
//
// All functions throw only std::bad_alloc. read_pack() is thread-safe.
namespace cacheshim::remote {

// The limits for writers and readers.
inline constexpr std::size_t kMostPacked = 4096;  // entries
inline constexpr std::size_t kMostPackBytes = std::size_t{256} << 20;

struct PackedObject {
  std::string_view unit;  // EntryRef::unit(); is_valid_key() is true
  std::string_view object;
};

// Collects objects for a pack. Not thread-safe.
class PackWriter {
 public:
  PackWriter();
  // Returns false, and adds nothing, if the pack would exceed a limit.
  bool add(std::string_view unit, std::string_view object);
  std::size_t size() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::size_t count_ = 0;
};

// Returns the objects in a pack; nothing if it is malformed or exceeds a limit. The results refer to `pack`.
std::optional<std::vector<PackedObject>> read_pack(std::string_view pack);

}  // namespace cacheshim::remote
