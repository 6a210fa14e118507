// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/requests/remote_entries.h"
#include "fuse/services/remote/entry_objects.h"
#include "fuse/services/remote/push_queue.h"
#include "remote/async_client.h"
#include "remote/object_pack.h"
#include "store/threads/mutex.h"
#include "store/threads/slices.h"

namespace cacheshim {

// Returns the units of the next pack, or nullopt if the previous pack is to stay. `used`: the units that the job has
// used, sorted. `previous`: the units of the pack that was fetched when the job started, sorted. The new pack keeps the
// previous pack's units that this job has not used, because other machines of the job, or its next attempt, may use
// them. Exception: if the job has succeeded and the previous pack has more than twice as many units as the job has
// used, the new pack contains only the used units.
std::optional<std::vector<std::string>> choose_packed(const std::vector<std::string>& used,
                                                      const std::vector<std::string>& previous,
                                                      bool has_succeeded);

// Fetches and sends packs: the entries that the last job of a name has used. Packs have a separate queue, so that an
// entry for which another machine waits is never behind a pack. Thread-safe.
class PackExchange {
 public:
  struct Engine {                                               // called with at most mutex_ held
    std::function<std::string()> why_unused;                    // "" while the engine is used
    // A request to the engine has failed.
    std::function<void(const remote::RemoteError&)> on_failed;
  };
  // All references must outlive this object.
  PackExchange(Exchange exchange, remote::AsyncClient& client, Engine engine);

  // As RemoteEntries::fetch_pack() and push_pack().
  RemoteEntries::Pack fetch(unsigned uid, const std::string& name, const IsWanted& is_wanted)
      EXCLUDES(mutex_);
  void push(const RemoteEntries::Pack& pack, std::function<bool(std::string_view path)> is_used,
            bool has_succeeded);
  // As the functions of PushQueue, for the queue of packs.
  void set_usable(bool is_usable);
  void finish_within(std::chrono::seconds time);
  std::size_t unsent() const { return queue_ ? queue_->unsent() : 0; }

 private:
  using Pack = RemoteEntries::Pack;
  void receive(const IsWanted& is_wanted, Pack& pack) REQUIRES(mutex_);
  void add_objects(std::string_view bytes, const IsWanted& is_wanted, Pack& pack) const;
  remote::AdoptionResult add(const remote::PackedObject& packed) const;
  UniqueFd make(const std::function<bool(std::string_view path)>& is_used,
                const std::vector<std::string>& previous, bool has_succeeded) const;

  const Exchange exchange_;
  remote::AsyncClient& client_;
  const Engine engine_;
  std::atomic<unsigned> fetches_{0};  // the number of calls of fetch() in progress
  // Held while fetch() has a pack in memory, so that it has only one.
  Mutex mutex_{LockRank::kPack};
  std::unique_ptr<PushQueue> queue_;  // null if this machine pushes nothing
};

}  // namespace cacheshim
