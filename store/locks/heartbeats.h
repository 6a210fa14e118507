// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Shows the other daemons of a store that this daemon is alive, and detects which of them are dead.
//
// When a machine dies, an NFS server keeps the machine's locks for another 30 to 90 s. To let other daemons detect the
// death sooner, each daemon changes its own file in STORE/.cacheshim/leases every kBeat. If a daemon's file has not
// changed for kDeadAfter, the other daemons treat that daemon as dead. Each daemon measures this time with its own
// clock, so the clocks of the machines need not agree. A daemon that cannot reach the server for that long also counts
// as dead. Thread-safe, except beat().
class Heartbeats {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBeat{3};
  static constexpr std::chrono::seconds kDeadAfter{11};

  // Returns a name for this daemon that no other daemon has. `node` is the machine's name.
  static std::string unique_name(const std::string& node);
  // `directory` must stay open. Tests replace `now`.
  Heartbeats(int directory, std::string name,
             std::function<Clock::time_point()> now = Clock::now);
  ~Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

  const std::string& name() const { return name_; }
  // Changes this daemon's file; creates it if it is missing. Blocks while the server does not answer. Call every kBeat,
  // from one thread.
  Status beat();
  // Whether the file system has flock(2). Call after beat() has succeeded.
  bool has_locks() const { return has_locks_; }
  // Whether the file of the daemon `name` has been unchanged for kDeadAfter. The first call for a name returns false,
  // because this time starts at that call. Reads the file at most once per kRead.
  bool is_dead(const std::string& name) EXCLUDES(mutex_);

 private:
  struct Seen {
    std::string content;
    Clock::time_point changed;
    Clock::time_point read;
  };
  static constexpr std::chrono::seconds kRead{1};
  static constexpr std::size_t kMostSeen = 4096;  // names; when there are more, is_dead() forgets all of them

  std::string content_of(const std::string& name) const;

  const int directory_;
  const std::string name_;
  const std::function<Clock::time_point()> now_;
  UniqueFd file_;
  bool has_locks_ = true;
  std::uint64_t beats_ = 0;
  Mutex mutex_{LockRank::kLeaf};
  std::map<std::string, Seen> seen_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
