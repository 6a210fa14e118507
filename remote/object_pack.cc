// SPDX-License-Identifier: Apache-2.0
#include "remote/object_pack.h"

#include <cstdint>

#include "remote/wire.h"

namespace cacheshim::remote {
namespace {

constexpr std::string_view kPackMagic = "CSHIMPK1";
constexpr std::size_t kLengthBytes = 8;

void append_length(std::string& bytes, std::uint64_t length) {
  for (unsigned shift = 0; shift < 64; shift += 8)
    bytes.push_back(static_cast<char>((length >> shift) & 0xff));
}

std::uint64_t take_length(std::string_view& bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(kLengthBytes);
  return length;
}

std::string_view take(std::string_view& bytes, std::size_t length) {
  const std::string_view taken = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return taken;
}

}  // namespace

PackWriter::PackWriter() : bytes_(kPackMagic) {}

bool PackWriter::add(std::string_view unit, std::string_view object) {
  const std::size_t size = 2 * kLengthBytes + unit.size() + object.size();
  if (count_ == kMostPacked || size > kMostPackBytes - bytes_.size()) return false;
  append_length(bytes_, unit.size());
  append_length(bytes_, object.size());
  bytes_.append(unit).append(object);
  ++count_;
  return true;
}

std::optional<std::vector<PackedObject>> read_pack(std::string_view pack) {
  if (!pack.starts_with(kPackMagic) || pack.size() > kMostPackBytes) return std::nullopt;
  pack.remove_prefix(kPackMagic.size());
  std::vector<PackedObject> objects;
  while (!pack.empty()) {
    if (objects.size() == kMostPacked || pack.size() < 2 * kLengthBytes) return std::nullopt;
    const std::uint64_t unit = take_length(pack);
    const std::uint64_t object = take_length(pack);
    if (unit > pack.size() || object > pack.size() - unit) return std::nullopt;
    objects.push_back({take(pack, unit), take(pack, object)});
    if (!is_valid_key(objects.back().unit)) return std::nullopt;
  }
  return objects;
}

}  // namespace cacheshim::remote
