// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace cacheshim {

// The entries that the answer to a dry run lists: at most kMost, because the daemon holds the answer until the client
// reads it, and a job may have any number of entries.
class PlanRows {
 public:
  static constexpr std::size_t kMost = 10'000;

  void add(nlohmann::ordered_json row) {
    if (rows_.size() < kMost) {
      rows_.push_back(std::move(row));
    } else {
      ++omitted_;
    }
  }
  // Adds `plan` (the rows) and `omitted` (the number of entries that are not in `plan`) to `answer`. Call once.
  void put_into(nlohmann::ordered_json& answer) {
    answer["plan"] = std::move(rows_);
    answer["omitted"] = omitted_;
  }

 private:
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  std::uint64_t omitted_ = 0;
};

}  // namespace cacheshim
