// SPDX-License-Identifier: Apache-2.0
#include "common/route_table.h"

namespace cacheshim {
namespace {

// Casts through void to avoid -Wcast-align; the caller has checked the alignment.
template <class T>
const T* at_offset(const char* base, std::size_t offset) {
  return static_cast<const T*>(static_cast<const void*>(base + offset));
}

bool is_aligned(const char* base) {
  return reinterpret_cast<std::uintptr_t>(base) % alignof(RouteTableHeader) == 0;
}

// Whether every string of every record starts within [strings, size).
bool offsets_are_valid(const RouteRecord* records, std::uint32_t count, std::size_t strings,
                       std::size_t size) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const RouteRecord& record = records[i];
    for (const std::uint32_t offset :
         {record.name, record.variable, record.unless, record.default_path}) {
      if (offset < strings || offset >= size) return false;
    }
  }
  return true;
}

}  // namespace

RouteTable::RouteTable(const char* base)
    : base_(base),
      header_(at_offset<RouteTableHeader>(base, 0)),
      records_(at_offset<RouteRecord>(base, sizeof(RouteTableHeader))) {}

Result<RouteTable> RouteTable::parse(std::string_view bytes) {
  const char* base = bytes.data();
  if (bytes.size() < sizeof(RouteTableHeader) || !is_aligned(base)) return Errno(EINVAL);
  const RouteTable table(base);
  const RouteTableHeader& header = *table.header_;
  if (header.magic != kRouteTableMagic || header.version != kRouteTableVersion) {
    return Errno(EINVAL);
  }
  const std::size_t size = header.size_bytes;
  if (size < sizeof(RouteTableHeader) || size > bytes.size()) return Errno(EINVAL);
  const std::size_t room = (size - sizeof(RouteTableHeader)) / sizeof(RouteRecord);
  if (header.route_count > room) return Errno(EINVAL);
  if (header.route_count == 0) return table;

  const std::size_t strings = sizeof(RouteTableHeader) + header.route_count * sizeof(RouteRecord);
  if (strings >= size || base[size - 1] != '\0') return Errno(EINVAL);
  if (!offsets_are_valid(table.records_, header.route_count, strings, size)) return Errno(EINVAL);
  return table;
}

}  // namespace cacheshim
