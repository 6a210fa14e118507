// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"

// The routes as a flat table that the preloaded library maps. The table holds data of the profiles
// in a form that needs no parser. The daemon writes the table to the file `routes` in the run
// directory. The library also contains a table that is made from the shipped profiles at build
// time, for containers without a run directory.
//
// Layout (native byte order, all offsets from the start of the table):
//   RouteTableHeader, then `route_count` RouteRecords, then the strings, each ended by a NUL.
namespace cacheshim {

inline constexpr std::uint32_t kRouteTableMagic = 0x54525343;  // "CSRT"
inline constexpr std::uint32_t kRouteTableVersion = 1;

struct RouteTableHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t size_bytes;  // the size of the whole table
  std::uint32_t route_count;
};

// One default path of one cache family. Every field is the offset of a string; the empty string
// means "none".
struct RouteRecord {
  std::uint32_t name;  // directory name under the mount, such as "triton"
  // environment variable that moves the cache, such as "TRITON_CACHE_DIR"
  std::uint32_t variable;
  // variables, separated by ':'; if one is set, the library does not redirect the cache
  std::uint32_t unless;
  std::uint32_t default_path;  // such as "~/.triton/cache"; ~ stands for HOME
};

// Reads a table that parse() has checked. Owns nothing; the bytes must outlive the object.
class RouteTable {
 public:
  // Errors: EINVAL for anything except a complete table of a known version that is aligned for
  // RouteTableHeader.
  static Result<RouteTable> parse(std::string_view bytes);

  std::uint32_t size() const { return header_->route_count; }
  std::string_view name(std::uint32_t route) const { return text(record(route).name); }
  std::string_view variable(std::uint32_t route) const { return text(record(route).variable); }
  std::string_view unless(std::uint32_t route) const { return text(record(route).unless); }
  std::string_view default_path(std::uint32_t route) const {
    return text(record(route).default_path);
  }

 private:
  explicit RouteTable(const char* base);
  const RouteRecord& record(std::uint32_t route) const { return records_[route]; }
  std::string_view text(std::uint32_t offset) const { return base_ + offset; }

  const char* base_;
  const RouteTableHeader* header_;
  const RouteRecord* records_;
};

}  // namespace cacheshim
