// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "remote/engines/remote_tier.h"

namespace cacheshim::remote {

// Two engines, one behind the other: for example Redis, which is near and fast, and S3, which keeps everything. The far
// engine decides which writer is the first. The near engine has copies of some of the far engine's objects.
//
// Not thread-safe. If the near engine fails, get(), put_if_absent() and keys_since() use the far engine alone; remove()
// throws, and so do the lease functions if the near engine has leases.
class StackedTier : public RemoteTier {
 public:
  StackedTier(std::unique_ptr<RemoteTier> near, std::unique_ptr<RemoteTier> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  // Reads from the near engine; if it lacks the object, reads from the far one and copies the object to the near one.
  std::optional<std::string> get(const std::string& key, std::size_t most_bytes) override;
  PutOutcome put_if_absent(const std::string& key, std::string_view object) override;
  bool remove(const std::string& key) override;

  // The leases of the near engine or, if it has none, of the far one.
  bool has_leases() const override { return leases().has_leases(); }
  std::optional<std::uint64_t> acquire(const std::string& key, const std::string& owner,
                                       std::chrono::milliseconds ttl) override {
    return leases().acquire(key, owner, ttl);
  }
  bool renew(const std::string& key, const std::string& owner,
             std::chrono::milliseconds ttl) override {
    return leases().renew(key, owner, ttl);
  }
  void release(const std::string& key, const std::string& owner) override {
    leases().release(key, owner);
  }
  void wait(const std::string& key, std::chrono::milliseconds timeout) override {
    leases().wait(key, timeout);
  }

  // Returns keys of both catalogues, because the near engine may report new keys sooner.
  CataloguePage keys_since(const std::string& position, std::size_t most) override;

 private:
  RemoteTier& leases() const { return near_->has_leases() ? *near_ : *far_; }

  std::unique_ptr<RemoteTier> near_;
  std::unique_ptr<RemoteTier> far_;
};

}  // namespace cacheshim::remote
