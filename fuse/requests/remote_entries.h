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

// Represents, for the holder of one lease, the search for the entry on other machines, and then the right to build the
// entry for all machines. The destructor ends both.
class RemoteLease {
 public:
  virtual ~RemoteLease() = default;
  // Returns false while the entry may still come from another machine: it is being fetched, or another machine builds
  // it. Once this function returns true, either the base has the entry, or the holder must build it. Takes no lock.
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
  // Call when a job of this mount has published these units, before the leases for them end.
  virtual void note_published(const std::vector<std::string>& units) = 0;
  // Blocks until the engine has answered for the first time or is known to be unusable, but at most for `time`.
  virtual void await_first_answer(std::chrono::milliseconds time) = 0;
  // Sends the queued entries, for at most `time`. Gives up immediately if the engine is unusable. From then on, seek()
  // returns null.
  virtual void finish_within(std::chrono::seconds time) = 0;

  // ---- Packs. A pack contains the entries that the last job of a name has used. The next job of this name fetches it.

  struct Pack {
    unsigned uid = 0;       // the user whose jobs use the pack
    std::string name;       // the name of these jobs
    bool is_known = false;  // false if the fetch failed, so that `units` may be incomplete
    std::vector<std::string> units{};  // the units in the pack, sorted
    std::size_t added = 0;             // the number of entries that were added to the base
    std::size_t present = 0;           // the number of entries that the base had already
    // One line: why no pack was fetched, or that some entries were not usable; otherwise "".
    std::string why{};
  };
  // Fetches the pack for a user's jobs of this name, and adds its entries to the base. If the engine has none, returns
  // an empty pack. May take a long time; stops soon after `is_wanted` returns false.
  virtual Pack fetch_pack(unsigned uid, const std::string& name,
                          const std::function<bool()>& is_wanted) = 0;
  // Call when a job ends. `pack`: the pack that the job fetched. Sends a new pack if the job has used entries that
  // `pack` lacks, or if the job has succeeded and has used less than half of the entries in `pack`. `is_used`: whether
  // the job has used this path of the base; called later, on another thread. Requires: `pack.is_known`. Does not block.
  virtual void push_pack(const Pack& pack, std::function<bool(std::string_view path)> is_used,
                         bool has_succeeded) = 0;

  struct State {
    std::vector<std::string> urls;
    bool is_used = false;          // false: the daemon works as if there were no remote tier
    std::string why;               // if not used: why, in one line
    std::time_t unused_since = 0;  // seconds since 1970; 0 while the tier is used
    std::size_t known = 0;   // the number of entries in the tier, as far as this machine knows
    std::size_t unsent = 0;  // published entries that are still to be sent
  };
  virtual State state() const = 0;
};

}  // namespace cacheshim
