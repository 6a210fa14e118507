// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/entry_objects.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>
#include <variant>

#include "remote/object_pack.h"
#include "remote/wire.h"

namespace cacheshim {
namespace {

std::variant<std::string, remote::ObjectError> object_of(const Exchange& exchange,
                                                         const std::string& unit) {
  return remote::pack_unit(exchange.parts.store, exchange.parts.entries, unit, 0,
                           *exchange.keys.signing, exchange.settings);
}

UniqueFd seal(std::string_view bytes, std::string_view name) {
  auto file = remote::make_sealed_file(bytes);
  if (file) return *std::move(file);
  spdlog::warn("{} is not sent to the remote tier: {}", name, std::strerror(file.error().code()));
  return {};
}

}  // namespace

remote::AdoptionResult add_object(const Exchange& exchange, const std::string& unit,
                                  std::string_view object) {
  const RemoteParts& parts = exchange.parts;
  auto adopted = remote::adopt_object(parts.store, parts.publisher, parts.entries, unit, object,
                                      exchange.keys, exchange.settings);
  switch (adopted.outcome) {
    case remote::Adoption::kAdopted:
      parts.on_added(adopted.paths);
      break;
    case remote::Adoption::kPresent:
      break;
    case remote::Adoption::kFailed:
      ++parts.counters.remote_errors;
      break;
    case remote::Adoption::kUntrusted:
    case remote::Adoption::kDamaged:
      ++parts.counters.remote_untrusted;
      break;
  }
  return adopted;
}

UniqueFd make_unit_object(const Exchange& exchange, const std::string& unit) {
  const auto object = object_of(exchange, unit);
  if (const auto* const error = std::get_if<remote::ObjectError>(&object)) {
    spdlog::info("an entry is not sent to the remote tier: {}", error->message);
    return {};
  }
  return seal(std::get<std::string>(object), fmt::format("'{}'", unit));
}

UniqueFd make_pack(const Exchange& exchange, const std::vector<std::string>& units,
                   const IsWanted& is_wanted) {
  remote::PackWriter pack;
  std::size_t omitted = 0;
  for (const std::string& unit : units) {
    if (!is_still_wanted(is_wanted)) return {};
    const auto object = object_of(exchange, unit);
    // Null if, for example, the unit was evicted.
    const auto* const bytes = std::get_if<std::string>(&object);
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
