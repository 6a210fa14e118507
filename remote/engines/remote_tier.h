// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// The interface of the engines that hold whole entries for many machines: Redis or Valkey, S3, a shared directory.
// Only the process `cacheshim-remote` uses engines, so that no other process of cacheshim speaks to the network.
namespace cacheshim::remote {

// Thrown by all functions of RemoteTier. what() is one line: what failed, where, and why.
class TierError : public std::runtime_error {
 public:
  enum class Kind {
    kUnavailable,  // the engine did not answer in time, or refused the connection; a later call may succeed
    kFull,  // the engine has no room for the object
    kRefused,  // the engine refuses this request, and will refuse it again: wrong credentials, or no such bucket
  };
  TierError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

enum class PutOutcome { kStored, kExists };

// The keys of the objects that were stored since a position.
struct CataloguePage {
  std::vector<std::string>
      keys;              // may repeat keys of earlier pages; some of the objects may be gone
  std::string position;  // where the next page begins; "" is the beginning
  bool is_last = true;   // false: the catalogue has more keys already
};

// An engine. A stored object is opaque bytes, and never changes: the first writer wins. A key is UTF-8 text of 1 to
// 1024 bytes without control characters, and may contain '/'.
//
// Not thread-safe: each thread uses a separate RemoteTier. Every call except wait() returns or throws within the
// timeout that the constructor got. A call after a TierError connects again.
class RemoteTier {
 public:
  virtual ~RemoteTier() = default;

  // Returns the object, or nothing if the key is absent. Throws TierError (kRefused) if the object has more than
  // `most_bytes`; does not read the rest of it.
  virtual std::optional<std::string> get(const std::string& key, std::size_t most_bytes) = 0;
  // Stores the object unless the key exists. Atomic: other machines see all of the object or nothing, and of several
  // callers exactly one gets kStored. The object is then in the catalogue. Wakes wait().
  virtual PutOutcome put_if_absent(const std::string& key, std::string_view object) = 0;
  // Returns whether the key existed.
  virtual bool remove(const std::string& key) = 0;

  // Whether the engine has leases. If not, the lease functions below throw TierError (kRefused).
  virtual bool has_leases() const = 0;
  // Gives `owner` the right to build the key's entry, for `ttl` or until release(). Returns the fencing number, which
  // is higher than those of all earlier leases of the key; nothing while another owner holds the lease. `owner`
  // is 1 to 256 bytes without spaces and control characters, and unique to the caller.
  virtual std::optional<std::uint64_t> acquire(const std::string& key, const std::string& owner,
                                               std::chrono::milliseconds ttl) = 0;
  // Extends the owner's lease to `ttl` from now. Returns false if the owner no longer holds it.
  virtual bool renew(const std::string& key, const std::string& owner,
                     std::chrono::milliseconds ttl) = 0;
  // Ends the lease if `owner` still holds it (compare and delete), and wakes wait().
  virtual void release(const std::string& key, const std::string& owner) = 0;
  // Blocks until the key's object is stored or the key's lease is released, but at most for `timeout`. May return
  // early. Polls if the engine cannot notify.
  virtual void wait(const std::string& key, std::chrono::milliseconds timeout) = 0;

  // Returns keys that were stored since `position`, which is "" or comes from an earlier page; at most about `most`
  // keys. A key that is stored after a page was returned is in a later page.
  virtual CataloguePage keys_since(const std::string& position, std::size_t most) = 0;
};

}  // namespace cacheshim::remote
