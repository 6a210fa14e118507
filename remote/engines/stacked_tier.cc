// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/stacked_tier.h"

#include <nlohmann/json.hpp>

namespace cacheshim::remote {
namespace {

// Calls `call` for the near engine. Returns nothing if the engine fails: the far engine then serves alone.
template <class Call>
auto try_near(const Call& call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const TierError&) {
    return std::nullopt;
  }
}

// A position of both catalogues, as the text of a JSON array.
struct Positions {
  std::string near;
  std::string far;
};

Positions parse_positions(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array() || json.size() != 2 || !json[0].is_string() || !json[1].is_string())
    return {};
  return {json[0], json[1]};
}

std::string to_text(const Positions& positions) {
  return nlohmann::json::array({positions.near, positions.far}).dump();
}

}  // namespace

std::optional<std::string> StackedTier::get(const std::string& key, std::size_t most_bytes) {
  if (auto found = try_near([&] { return near_->get(key, most_bytes); }); found && *found)
    return *std::move(found);
  auto object = far_->get(key, most_bytes);
  if (object) (void)try_near([&] { return near_->put_if_absent(key, *object); });
  return object;
}

PutOutcome StackedTier::put_if_absent(const std::string& key, std::string_view object) {
  const PutOutcome outcome = far_->put_if_absent(key, object);
  // If another writer was first, get() copies that writer's object to the near engine.
  if (outcome == PutOutcome::kStored)
    (void)try_near([&] { return near_->put_if_absent(key, object); });
  return outcome;
}

// Removes the object from the far engine first: otherwise a get() by another machine could copy it back.
bool StackedTier::remove(const std::string& key) {
  const bool existed = far_->remove(key);
  return near_->remove(key) || existed;
}

CataloguePage StackedTier::keys_since(const std::string& position, std::size_t most) {
  Positions positions = parse_positions(position);
  CataloguePage page = far_->keys_since(positions.far, most);
  positions.far = page.position;
  if (auto near = try_near([&] { return near_->keys_since(positions.near, most); })) {
    positions.near = near->position;
    page.is_last = page.is_last && near->is_last;
    page.keys.insert(page.keys.end(), std::make_move_iterator(near->keys.begin()),
                     std::make_move_iterator(near->keys.end()));
  }
  page.position = to_text(positions);
  return page;
}

}  // namespace cacheshim::remote
