// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "remote/async_client.h"
#include "remote/key_filter.h"
#include "remote/settings.h"

namespace cacheshim {

// The units in the engine, as far as this machine knows. Not thread-safe.
class Catalogue {
 public:
  // A reply to request(), with verified contents.
  struct Page {
    std::vector<std::string> units;
    std::string position;  // of the next page
    bool is_last;
  };
  // Parses a reply. Returns the error of `outcome`, or an error of kind kRefused if the reply is malformed.
  // Thread-safe.
  static std::variant<Page, remote::RemoteError> read(
      const remote::Outcome<remote::Message>& outcome, const remote::Settings& settings);

  // Returns the request for the next page.
  nlohmann::json request() const;
  // Adds the page's units. Returns true if the update ends with this page, false if the next page must be requested.
  bool add(const Page& page);
  // Call when request() has failed.
  void note_failure(const remote::RemoteError& error);

  bool has(std::string_view unit) const { return known_.has(unit); }
  void remove(std::string_view unit) { known_.remove(unit); }
  std::size_t size() const { return known_.size(); }

 private:
  remote::KeyFilter known_;
  std::string position_;
  std::size_t pages_ = 0;  // the number of pages in the current update
};

}  // namespace cacheshim
