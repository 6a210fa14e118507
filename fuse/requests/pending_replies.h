// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace cacheshim {

// Replies to requests whose waits have ended. No lock may be held across a reply. So a function that ends waits returns
// the replies, and its caller calls give() once it has released its locks. The destructor sends the remaining replies.
class [[nodiscard]] PendingReplies {
 public:
  PendingReplies() = default;
  PendingReplies(PendingReplies&&) = default;
  PendingReplies& operator=(PendingReplies&&) = delete;
  ~PendingReplies() { give(); }

  void add(std::function<void()> reply) { replies_.push_back(std::move(reply)); }
  PendingReplies& operator+=(PendingReplies others) {
    for (auto& reply : std::exchange(others.replies_, {})) add(std::move(reply));
    return *this;
  }
  // Call with no lock held. Sends each reply once.
  void give() {
    for (const auto& reply : std::exchange(replies_, {})) reply();
  }

 private:
  std::vector<std::function<void()>> replies_;
};

}  // namespace cacheshim
