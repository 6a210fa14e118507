// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace cacheshim {

// A map whose keys are names that a client chooses. The map adds no name if its names and values
// would then use more than about `most_bytes`, so that a client cannot exhaust the daemon's memory.
// The class that owns the table defines what a missing name means. Not thread-safe.
template <class Value>
class NameTable {
 public:
  using Names = std::map<std::string, Value, std::less<>>;

  explicit NameTable(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns null if the name is new and the table is full.
  Value* find_or_add(std::string_view name) {
    const auto known = names_.find(name);
    if (known != names_.end()) return &known->second;
    if (bytes_ + cost_of(name) > most_bytes_) return nullptr;
    bytes_ += cost_of(name);
    return &names_.try_emplace(std::string(name)).first->second;
  }

  const Value* find(std::string_view name) const {
    const auto known = names_.find(name);
    return known == names_.end() ? nullptr : &known->second;
  }

  // Returns false if the name is unknown.
  bool erase(std::string_view name) {
    const auto known = names_.find(name);
    if (known == names_.end()) return false;
    bytes_ -= cost_of(name);
    names_.erase(known);
    return true;
  }

  // Removes all names, and returns them.
  Names take() {
    bytes_ = 0;
    return std::exchange(names_, {});
  }

  const Names& all() const { return names_; }

 private:
  // Includes the map's node, but not the memory that the value allocates: a value is at most a
  // short text.
  static std::size_t cost_of(std::string_view name) {
    constexpr std::size_t kNode = 96;
    return name.size() + sizeof(Value) + kNode;
  }

  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  Names names_;
};

}  // namespace cacheshim
