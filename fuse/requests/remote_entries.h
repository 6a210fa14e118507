// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim {

// The search of one lease's holder for an entry on other machines, and then its right to build the entry for all
// machines. Ends with this object.
class RemoteLease {
 public:
  virtual ~RemoteLease() = default;
  // False while the entry may still come from another machine: it is being fetched, or another machine builds it. Once
  // this is true, either the base has the entry, or the holder builds it. Takes no lock.
  virtual bool is_settled() const = 0;
};

// The entries of other machines, as the mount's other services use them (docs/remote.md). Thread-safe.
class RemoteEntries {
 public:
  virtual ~RemoteEntries() = default;

  // Begins a search for a unit (EntryRef::unit()) that the base lacks. `builds_for_all`: whether all jobs will see the
  // caller's build if the search finds nothing. `on_settled` is called when is_settled() becomes true, on any thread
  // and perhaps with locks held, and never after the lease has ended; it must not block. Returns null if there is
  // nothing to wait for. Does not block.
  virtual std::unique_ptr<RemoteLease> seek(const std::string& unit, bool builds_for_all,
                                            std::function<void()> on_settled) = 0;
  // Call when the base has got these units from a job of this mount. Call before the leases for them end.
  virtual void note_published(const std::vector<std::string>& units) = 0;
  // Returns when the engine has answered for the first time, or is known to be unusable, and after `time` at the latest.
  virtual void await_first_answer(std::chrono::milliseconds time) = 0;
  // Sends the entries that are to be sent, for at most `time`; gives up immediately if the engine is unusable. Seeks then
  // return null.
  virtual void finish_within(std::chrono::seconds time) = 0;

  // ---- Packs: the entries that the last job of a name has used, for its next job.

  struct Pack {
    unsigned uid = 0;       // whose jobs
    std::string name;       // the jobs' name
    bool is_known = false;  // `units` is what the engine has, and not the result of a failure
    std::vector<std::string> units{};  // what the engine's pack contains, sorted
    std::size_t added = 0;             // to the base
    std::size_t present = 0;           // in the base already
    std::string why{};  // if no pack was fetched, or some of its entries were not usable: one line
  };
  // Fetches the pack for a user's jobs of this name, and adds its entries to the base. If the engine has none, returns
  // an empty one. Can take a long time; stops soon after `is_wanted` returns false.
  virtual Pack fetch_pack(unsigned uid, const std::string& name,
                          const std::function<bool()>& is_wanted) = 0;
  // Sends a new pack if a job has used other entries than those of `pack`, its last one, which must be known. `is_used`:
  // whether the job has used this path of the base; called later, on another thread. Does not block.
  virtual void push_pack(const Pack& pack, std::function<bool(std::string_view path)> is_used,
                         bool has_succeeded) = 0;

  struct State {
    std::vector<std::string> urls;
    bool is_used = false;          // false: the daemon works as without a remote tier
    std::string why;               // if not used: one line
    std::time_t unused_since = 0;  // seconds since 1970
    std::size_t known = 0;   // the number of entries in the tier, as far as this machine knows
    std::size_t unsent = 0;  // published entries that are still to be sent
  };
  virtual State state() const = 0;
};

}  // namespace cacheshim
