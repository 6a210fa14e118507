// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "fuse/requests/completion.h"

namespace cacheshim {
namespace {

using Replies = std::vector<int>;  // values, or negated errno codes

constexpr Completion<Result<int>>::Replier kReplier{[](void* request, const Result<int>& result) {
  static_cast<Replies*>(request)->push_back(result ? *result : -result.error().code());
}};

Completion<Result<int>> completion_of(Replies& replies) { return {&replies, kReplier}; }

TEST(Completion, RepliesOnce) {
  Replies replies;
  auto completion = completion_of(replies);
  completion.complete(Result<int>(1));
  completion.complete(Result<int>(2));
  EXPECT_EQ(replies, Replies{1});
}

TEST(Completion, RepliesOnceAfterAMove) {
  Replies replies;
  {
    auto first = completion_of(replies);
    std::optional<Completion<Result<int>>> second(std::move(first));
    second->complete(Errno(EBUSY));
  }
  EXPECT_EQ(replies, Replies{-EBUSY});
}

TEST(Completion, RepliesEioWhenDestroyedPending) {
  Replies replies;
  { const auto completion = completion_of(replies); }
  EXPECT_EQ(replies, Replies{-EIO});
}

}  // namespace
}  // namespace cacheshim
