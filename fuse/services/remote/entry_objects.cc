// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/pushed_objects.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <variant>

#include "remote/entry_exchange.h"
#include "remote/object_pack.h"
#include "remote/wire.h"

namespace cacheshim {
namespace {

std::variant<std::string, remote::ObjectError> object_of(const ObjectMaker& maker,
                                                         const std::string& unit) {
  return remote::pack_unit(maker.parts.store, maker.parts.entries, unit, 0, maker.key,
                           maker.settings);
}

UniqueFd seal(std::string_view bytes, std::string_view name) {
  auto file = remote::make_sealed_file(bytes);
  if (file) return *std::move(file);
  spdlog::warn("'{}' is not sent to the remote tier: {}", name, std::strerror(file.error().code()));
  return {};
}

}  // namespace

UniqueFd make_unit_object(const ObjectMaker& maker, const std::string& unit) {
  const auto object = object_of(maker, unit);
  if (const auto* const error = std::get_if<remote::ObjectError>(&object)) {
    spdlog::info("an entry is not sent to the remote tier: {}", error->message);
    return {};
  }
  return seal(std::get<std::string>(object), unit);
}

std::optional<std::vector<std::string>> choose_packed(const std::vector<std::string>& used,
                                                      const std::vector<std::string>& previous,
                                                      bool has_succeeded) {
  const bool is_outdated = has_succeeded && previous.size() > 2 * used.size();
  const bool is_complete = std::ranges::includes(previous, used);
  if (used.empty() || (is_complete && !is_outdated)) return std::nullopt;
  if (is_outdated) return used;
  std::vector<std::string> both;
  std::ranges::set_union(used, previous, std::back_inserter(both));
  return both;
}

UniqueFd make_pack(const ObjectMaker& maker, const std::vector<std::string>& units,
                   const std::function<bool()>& is_wanted) {
  remote::PackWriter pack;
  std::size_t omitted = 0;
  for (const std::string& unit : units) {
    if (!is_wanted()) return {};
    const auto object = object_of(maker, unit);
    const auto* const bytes = std::get_if<std::string>(&object);  // null if it was evicted, say
    if (bytes != nullptr && !pack.add(unit, *bytes)) ++omitted;
  }
  if (omitted > 0) {
    spdlog::warn(
        "a pack for the remote tier lacks {} entries: it holds at most {} entries and {} MiB",
        omitted, remote::kMostPacked, remote::kMostPackBytes >> 20);
  }
  return pack.size() > 0 ? seal(pack.bytes(), "a pack") : UniqueFd();
}

}  // namespace cacheshim
