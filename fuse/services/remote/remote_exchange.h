// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuse/requests/remote_entries.h"
#include "fuse/services/remote/breaker.h"
#include "fuse/services/remote/catalogue.h"
#include "fuse/services/remote/entry_objects.h"
#include "fuse/services/remote/make_remote_entries.h"
#include "fuse/services/remote/pack_exchange.h"
#include "fuse/services/remote/push_queue.h"
#include "fuse/services/remote/unbuilt_entries.h"
#include "remote/async_client.h"
#include "remote/entry_exchange.h"
#include "remote/key_filter.h"
#include "remote/settings.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Exchanges entries with other machines through an engine (docs/remote.md).
//
// A search for a unit first fetches the unit, if the catalogue has it. Otherwise, or if the engine has lost the unit,
// the search claims the unit's lease in the engine. If another machine holds the lease, the search waits until that
// machine has pushed the entry. If the search gets the lease, a process of this machine builds the entry, and this
// machine renews the lease until the entry is pushed.
//
// All requests go to the helper, and their replies arrive on the client's thread. If the engine has not answered a
// request within Settings::wait, or a request has failed, the breaker opens: all searches are settled immediately,
// except those whose object is being added to the base. seek() then returns null until the engine has answered a probe.
// The catalogue's updates serve as probes, so no process ever waits for a probe.
class RemoteExchange final : public RemoteEntries {
 public:
  // The engine ends a lease that is not renewed within this time.
  static constexpr std::chrono::seconds kLeaseTime{10};
  static constexpr std::chrono::seconds kRenewal{3};
  static constexpr std::chrono::seconds kLongestRemoteWait{2};  // the timeout of one `wait` request

  // `owner`: a name that no other process uses, for leases. Throws std::system_error.
  RemoteExchange(EventLoop& loop, remote::Settings settings, remote::ExchangeKeys keys,
                 std::string owner, remote::AsyncClient::StartHelper start,
                 const RemoteParts& parts);
  ~RemoteExchange() override;

  std::unique_ptr<RemoteLease> seek(const std::string& unit, bool builds_for_all,
                                    std::function<void()> on_settled) override EXCLUDES(mutex_);
  void note_published(const std::vector<std::string>& units) override EXCLUDES(mutex_);
  void await_first_answer(std::chrono::milliseconds time) override EXCLUDES(mutex_);
  void finish_within(std::chrono::seconds time) override EXCLUDES(mutex_);
  Pack fetch_pack(unsigned uid, const std::string& name,
                  const std::function<bool()>& is_wanted) override EXCLUDES(mutex_) {
    return packs_.fetch(uid, name, is_wanted);
  }
  void push_pack(const Pack& pack, std::function<bool(std::string_view path)> is_used,
                 bool has_succeeded) override {
    packs_.push(pack, std::move(is_used), has_succeeded);
  }
  State state() const override EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;
  using Outcome = remote::Outcome<remote::Message>;
  class Participant;
  enum class Phase {
    kSettled,
    kAsking,    // the engine must answer a `get` or a `claim` within Settings::wait
    kWaiting,   // another machine builds the entry
    kAdopting,  // the object is being added to the base
  };
  struct Search {
    Phase phase = Phase::kSettled;
    std::uint64_t serial = 0;
    bool wants_lease = false;
    bool has_lease = false;
    Clock::time_point asked_at;
    Clock::time_point waiting_since;  // when the search began to wait for other machines
    // If kWaiting: when to claim the lease again.
    Clock::time_point claim_at = Clock::time_point::max();
    // If has_lease: when to renew the lease next, and until when to renew it.
    Clock::time_point renew_at;
    Clock::time_point renew_until;
    std::set<Participant*> participants;
    // The queued and current pushes of the entry; the search keeps the lease until they end.
    unsigned pushes = 0;
  };
  using Searches = std::map<std::string, Search>;

  nlohmann::json request(const char* op, const std::string& unit) const;
  nlohmann::json lease_request(const char* op, const std::string& unit, std::uint64_t serial) const;
  bool ask(Searches::iterator search, bool is_known) REQUIRES(mutex_);
  void leave(const std::string& unit, Participant* participant) EXCLUDES(mutex_);
  void end_if_unused(Searches::iterator search) REQUIRES(mutex_);
  void release(const std::string& unit, std::uint64_t serial) REQUIRES(mutex_);
  void renew(const std::string& unit, std::uint64_t serial) REQUIRES(mutex_);
  Search* find(const std::string& unit, std::uint64_t serial) REQUIRES(mutex_);
  void on_reply(const std::string& unit, std::uint64_t serial, bool is_get, const Outcome& outcome)
      EXCLUDES(mutex_);
  void on_object(const std::string& unit, std::uint64_t serial, const remote::Message& reply)
      EXCLUDES(mutex_);
  void on_absent(const std::string& unit, std::uint64_t serial, bool may_claim) EXCLUDES(mutex_);
  void on_lease(const std::string& unit, std::uint64_t serial) EXCLUDES(mutex_);
  void await_builder(const std::string& unit, std::uint64_t serial) EXCLUDES(mutex_);
  void on_waited(const std::string& unit, std::uint64_t serial, const Outcome& outcome)
      EXCLUDES(mutex_);
  void adopt(const std::string& unit, const std::string& object) EXCLUDES(mutex_);
  void settle(Search& search) REQUIRES(mutex_);
  void fail(const remote::RemoteError& error) REQUIRES(mutex_);
  void fail_late() REQUIRES(mutex_);
  void note_error(const remote::RemoteError& error) EXCLUDES(mutex_);  // of a request
  void note_unusable(const remote::RemoteError& error) EXCLUDES(mutex_);

  void set_usable(bool is_usable);
  Exchange exchange() const { return {parts_, settings_, keys_}; }
  void on_pushed(const std::string& unit, PushQueue::Sent sent) EXCLUDES(mutex_);

  Clock::time_point tend() EXCLUDES(mutex_);
  void tend_searches(Clock::time_point now, Clock::time_point& next) REQUIRES(mutex_);
  void give_up_waiting(const std::string& unit, Search& search, Clock::time_point now)
      REQUIRES(mutex_);
  void tend_catalogue(Clock::time_point now, Clock::time_point& next) REQUIRES(mutex_);
  void update_catalogue(Clock::time_point now) REQUIRES(mutex_);
  void on_keys(const Outcome& outcome) EXCLUDES(mutex_);
  Clock::duration update_interval() const REQUIRES(mutex_);
  bool is_waiting() const REQUIRES(mutex_);

  const remote::Settings settings_;
  const remote::ExchangeKeys keys_;
  const std::string owner_;
  const RemoteParts parts_;
  const std::size_t most_object_bytes_;

  mutable Mutex mutex_{LockRank::kRemote};
  CondVar answered_;  // has_answered_
  Breaker breaker_ GUARDED_BY(mutex_);
  bool has_answered_ GUARDED_BY(mutex_) = false;
  std::string why_unused_ GUARDED_BY(mutex_) = "the engine has not answered yet";
  std::time_t unused_since_ GUARDED_BY(mutex_) = std::time(nullptr);
  UnbuiltEntries unbuilt_ GUARDED_BY(mutex_);
  // The total size of the objects that adopters_ is adding to the base or has yet to add.
  std::size_t adopting_bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t last_serial_ GUARDED_BY(mutex_) = 0;
  Searches searches_ GUARDED_BY(mutex_);

  Catalogue catalogue_ GUARDED_BY(mutex_);
  // Units whose objects were untrusted or damaged.
  remote::KeyFilter refused_ GUARDED_BY(mutex_);
  // Whether the catalogue's next page is requested.
  bool is_updating_ GUARDED_BY(mutex_) = false;
  Clock::time_point updated_at_ GUARDED_BY(mutex_);  // when the last page was requested

  std::atomic<bool> is_finishing_{false};
  std::unique_ptr<PushQueue> pushes_;  // null if this machine pushes nothing
  PackExchange packs_;
  TaskQueue adopters_{2};
  EventLoop::Task task_;
  remote::AsyncClient client_;  // keep last: its thread uses the other members
};

}  // namespace cacheshim
