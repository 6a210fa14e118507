// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/catalogue.h"

#include <utility>

#include "remote/engine_keys.h"
#include "store/sys/json_text.h"

namespace cacheshim {
namespace {

using nlohmann::json;
using remote::RemoteError;

constexpr std::size_t kPage = 10'000;  // the maximum number of keys in a page
constexpr JsonLimits kPageLimits{std::size_t{16} << 20, 1};
constexpr std::size_t kMostPositionBytes = 8192;
// In one update, because a broken engine's list may be endless.
constexpr std::size_t kMostPages = 2000;
constexpr std::size_t kMostKnownKeys = 10'000'000;  // 80 to 160 MB

}  // namespace

std::variant<Catalogue::Page, RemoteError> Catalogue::read(
    const remote::Outcome<remote::Message>& outcome, const remote::Settings& settings) {
  if (const auto* const error = std::get_if<RemoteError>(&outcome)) return *error;
  const RemoteError malformed{RemoteError::Kind::kRefused, "cacheshim-remote sent no list of keys"};
  const remote::Message& reply = std::get<remote::Message>(outcome);
  const auto text = remote::read_sealed_file(reply.file.get(), kPageLimits.bytes);
  const json keys = text ? parse_json(*text, kPageLimits) : json();
  if (!keys.is_array()) return malformed;
  try {
    Page page{{}, reply.json.at("position"), reply.json.at("last")};
    if (page.position.size() > kMostPositionBytes) return malformed;
    for (const json& key : keys) {
      if (auto unit = remote::unit_of_key(settings, key.get<std::string>()))
        page.units.push_back(*std::move(unit));
    }
    return page;
  } catch (const json::exception&) {  // a member is missing, or has another type
    return malformed;
  }
}

json Catalogue::request() const { return {{"op", "keys"}, {"since", position_}, {"most", kPage}}; }

bool Catalogue::add(const Page& page) {
  for (const std::string& unit : page.units) {
    if (known_.size() < kMostKnownKeys) known_.add(unit);
  }
  position_ = page.position;
  if (!page.is_last && ++pages_ < kMostPages) return false;
  pages_ = 0;
  return true;
}

void Catalogue::note_failure(const RemoteError& error) {
  pages_ = 0;
  // The engine may have refused the position, so the next update starts at the beginning of the list.
  if (error.kind == RemoteError::Kind::kRefused) position_.clear();
}

}  // namespace cacheshim
