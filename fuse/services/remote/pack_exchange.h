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

// Decides which units the next pack contains: nothing if the previous one is still right. `used`: the units that the job
// has used, sorted. `previous`: those of the pack that the job's start found, sorted. The new pack keeps the units that
// this job has not used, because other machines of the job, or its next attempt, may use them; but after a success, only
// until they are more than half of the pack.
std::optional<std::vector<std::string>> choose_packed(const std::vector<std::string>& used,
                                                      const std::vector<std::string>& previous,
                                                      bool has_succeeded);

// Fetches and sends packs: the entries that the last job of a name has used. Packs have a queue of their own, so that no
// entry for which another machine waits is behind one. Thread-safe.
class PackExchange {
 public:
  struct Engine {                                               // called with at most mutex_ held
    std::function<std::string()> why_unused;                    // "" while the engine is used
    std::function<void(const remote::RemoteError&)> on_failed;  // a request to it has failed
  };
  // All references must outlive this object.
  PackExchange(Exchange exchange, remote::AsyncClient& client, Engine engine);

  // These are RemoteEntries::fetch_pack() and push_pack().
  RemoteEntries::Pack fetch(unsigned uid, const std::string& name, const IsWanted& is_wanted)
      EXCLUDES(mutex_);
  void push(const RemoteEntries::Pack& pack, std::function<bool(std::string_view path)> is_used,
            bool has_succeeded);
  // These are the functions of PushQueue for the packs.
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
  std::atomic<unsigned> fetches_{0};  // calls of fetch()
  Mutex mutex_{LockRank::kPack};      // held while a pack is in memory, so that only one is
  std::unique_ptr<PushQueue> queue_;  // null if this machine pushes nothing
};

}  // namespace cacheshim
