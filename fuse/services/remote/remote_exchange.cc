// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/remote_exchange.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "remote/engine_keys.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

using nlohmann::json;
using remote::Message;
using remote::RemoteError;

// The shortest time between two claims of the same lease, even if the engine repeatedly reports the lease's end.
constexpr std::chrono::milliseconds kClaimInterval{50};
// The time between two updates of the catalogue. While processes wait for another machine, the updates also show that
// the engine still answers. An engine without leases (S3) lists all its keys for each update.
constexpr std::chrono::seconds kUpdate{1};
constexpr std::chrono::milliseconds kUpdateWhileWaiting{250};
constexpr std::chrono::seconds kUpdateOfList{60};
// The objects that are being added to the base at the same time have, in total, at most this many times the size of the
// largest permitted object.
constexpr std::size_t kMostAdoptedAtOnce = 2;
constexpr std::size_t kMostUnsentEntries = 4096;

void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

// One caller's part in a search. Until leave() has returned, any thread may call settle().
class RemoteExchange::Participant final : public RemoteLease {
 public:
  Participant(RemoteExchange& exchange, std::string unit, std::function<void()> on_settled)
      : exchange_(exchange), unit_(std::move(unit)), on_settled_(std::move(on_settled)) {}
  ~Participant() override { exchange_.leave(unit_, this); }
  bool is_settled() const override { return is_settled_; }
  void settle() {
    if (!is_settled_.exchange(true)) on_settled_();
  }

 private:
  RemoteExchange& exchange_;
  const std::string unit_;
  const std::function<void()> on_settled_;
  std::atomic<bool> is_settled_{false};
};

RemoteExchange::RemoteExchange(EventLoop& loop, remote::Settings settings,
                               remote::ExchangeKeys keys, std::string owner,
                               remote::AsyncClient::StartHelper start, const RemoteParts& parts)
    : settings_(std::move(settings)),
      keys_(std::move(keys)),
      owner_(std::move(owner)),
      parts_(parts),
      most_object_bytes_(remote::most_object_bytes({.content_bytes = settings_.most_bytes})),
      pushes_(!keys_.signing ? nullptr
                             : std::make_unique<PushQueue>(
                                   kMostUnsentEntries, parts_.counters, settings_, client_,
                                   [this](const RemoteError& error) { note_error(error); })),
      packs_(exchange(), client_,
             {.why_unused = [this] { return state().why; },
              .on_failed = [this](const RemoteError& error) { note_error(error); }}),
      task_(loop, "tending the remote tier", [this](const auto&) { return tend(); }),
      client_(std::move(start),
              {.on_started = [this] { task_.wake(); },
               .on_ended = [this](const RemoteError& error) { note_unusable(error); }}) {}

RemoteExchange::~RemoteExchange() {
  finish_within(std::chrono::seconds(0));
  task_.stop();
  client_.stop();  // before adopters_, because its last replies may post tasks there
  adopters_.stop();
}

json RemoteExchange::request(const char* op, const std::string& unit) const {
  return {{"op", op}, {"key", remote::object_key(settings_, unit)}};
}

// Each search has a different owner, because the engine may get the requests in another order: the `release` of an
// earlier search must not end the lease of a later search.
json RemoteExchange::lease_request(const char* op, const std::string& unit,
                                   std::uint64_t serial) const {
  json words = request(op, unit);
  words["owner"] = fmt::format("{}/{}", owner_, serial);
  words["ttl_ms"] = std::chrono::milliseconds(kLeaseTime).count();
  return words;
}

std::unique_ptr<RemoteLease> RemoteExchange::seek(const std::string& unit, bool builds_for_all,
                                                  std::function<void()> on_settled) {
  const MutexLock lock(mutex_);
  if (!breaker_.is_closed() || is_finishing_) return nullptr;
  if (!remote::is_exchanged(parts_.entries, unit) || refused_.has(unit)) return nullptr;
  if (!remote::is_valid_key(remote::object_key(settings_, unit))) return nullptr;
  const auto [search, is_new] = searches_.try_emplace(unit);
  if (is_new) {
    search->second.serial = ++last_serial_;
    search->second.wants_lease = builds_for_all && keys_.signing && client_.has_leases();
    if (!ask(search, catalogue_.has(unit))) {
      searches_.erase(search);
      return nullptr;
    }
  }
  auto participant = std::make_unique<Participant>(*this, unit, std::move(on_settled));
  search->second.participants.insert(participant.get());
  if (search->second.phase == Phase::kSettled) participant->settle();
  return participant;
}

// Sends the search's next request: a `get` if `is_known` (the engine seems to have the object), otherwise a `claim`.
// Returns false if the search does not want the lease, or if the helper takes no requests.
bool RemoteExchange::ask(Searches::iterator at, bool is_known) {
  const std::string& unit = at->first;
  Search& search = at->second;
  if (!is_known && !search.wants_lease) return false;
  json words = is_known ? request("get", unit) : lease_request("claim", unit, search.serial);
  words["most"] = most_object_bytes_;
  const bool is_sent = client_.send(
      std::move(words), [this, unit, is_known, serial = search.serial](const Outcome& outcome) {
        on_reply(unit, serial, is_known, outcome);
      });
  if (!is_sent) return false;
  if (std::exchange(search.phase, Phase::kAsking) != Phase::kAsking) search.asked_at = Clock::now();
  task_.wake();  // tend() then schedules the deadline
  return true;
}

void RemoteExchange::leave(const std::string& unit, Participant* participant) {
  const MutexLock lock(mutex_);
  const auto search = searches_.find(unit);
  if (search == searches_.end() || search->second.participants.erase(participant) == 0) return;
  end_if_unused(search);
}

void RemoteExchange::end_if_unused(Searches::iterator search) {
  if (!search->second.participants.empty() || search->second.pushes > 0) return;
  if (search->second.has_lease) release(search->first, search->second.serial);
  searches_.erase(search);
}

// If the request is not sent, the lease ends after kLeaseTime.
void RemoteExchange::release(const std::string& unit, std::uint64_t serial) {
  if (!breaker_.is_closed()) return;
  (void)client_.send(lease_request("release", unit, serial), [](const Outcome&) {});
}

RemoteExchange::Search* RemoteExchange::find(const std::string& unit, std::uint64_t serial) {
  const auto found = searches_.find(unit);
  return found != searches_.end() && found->second.serial == serial ? &found->second : nullptr;
}

// Handles the reply to a `get` or a `claim`. The reply may be late: the search may already be settled, or may have
// ended.
void RemoteExchange::on_reply(const std::string& unit, std::uint64_t serial, bool is_get,
                              const Outcome& outcome) {
  if (const auto* const error = std::get_if<RemoteError>(&outcome)) {
    if (error->kind != RemoteError::Kind::kRefused) return note_error(*error);
    // The engine has refused only this object, for example because it is too large. If the engine refused everything,
    // the catalogue's updates would fail too.
    count(parts_.counters.remote_errors);
    return on_absent(unit, serial, is_get);
  }
  const Message& reply = std::get<Message>(outcome);
  if (reply.json.value("found", false)) return on_object(unit, serial, reply);
  if (is_get) return on_absent(unit, serial, true);
  reply.json.contains("fence") ? on_lease(unit, serial) : await_builder(unit, serial);
}

void RemoteExchange::on_object(const std::string& unit, std::uint64_t serial,
                               const Message& reply) {
  auto object = remote::read_sealed_file(reply.file.get(), most_object_bytes_);
  if (!object)
    return note_error({RemoteError::Kind::kUnavailable, "cacheshim-remote sent no object"});
  const std::size_t size = object->size();
  count(parts_.counters.remote_bytes_in, size);
  {
    const MutexLock lock(mutex_);
    Search* const search = find(unit, serial);
    const bool is_awaited = search != nullptr && search->phase == Phase::kAsking;
    if (adopting_bytes_ + size > kMostAdoptedAtOnce * most_object_bytes_) {
      if (is_awaited) settle(*search);
      return;
    }
    adopting_bytes_ += size;
    if (is_awaited) search->phase = Phase::kAdopting;
  }
  adopters_.post([this, unit, serial, size, object = *std::move(object)] {
    (void)run_guarded("adding an entry of the remote tier", [&] {
      if (!is_finishing_) adopt(unit, object);
    });
    const MutexLock lock(mutex_);
    adopting_bytes_ -= size;
    Search* const search = find(unit, serial);
    if (search != nullptr && search->phase == Phase::kAdopting) settle(*search);
  });
}

// `may_claim`: whether to claim the lease now, after a `get`.
void RemoteExchange::on_absent(const std::string& unit, std::uint64_t serial, bool may_claim) {
  const MutexLock lock(mutex_);
  catalogue_.remove(unit);
  const auto search = searches_.find(unit);
  if (find(unit, serial) == nullptr || search->second.phase != Phase::kAsking) return;
  if (may_claim && ask(search, false)) return;
  count(parts_.counters.remote_misses);
  settle(search->second);
}

void RemoteExchange::on_lease(const std::string& unit, std::uint64_t serial) {
  const MutexLock lock(mutex_);
  Search* const search = find(unit, serial);
  if (search == nullptr) return release(unit, serial);
  count(parts_.counters.remote_misses);
  search->has_lease = true;
  search->renew_at = Clock::now() + kRenewal;
  search->renew_until = Clock::now() + parts_.longest_wait;
  settle(*search);
  task_.wake();
}

void RemoteExchange::await_builder(const std::string& unit, std::uint64_t serial) {
  const MutexLock lock(mutex_);
  Search* const search = find(unit, serial);
  if (search == nullptr || search->phase != Phase::kAsking) return;
  const auto now = Clock::now();
  if (!unbuilt_.may_wait_for(unit, now)) return settle(*search);
  if (search->waiting_since == Clock::time_point()) {
    search->waiting_since = now;
    count(parts_.counters.remote_lease_waits);
  }
  search->phase = Phase::kWaiting;
  search->claim_at = Clock::time_point::max();
  json words = request("wait", unit);
  words["timeout_ms"] = std::chrono::milliseconds(kLongestRemoteWait).count();
  const bool is_sent = client_.send(std::move(words), [this, unit, serial](const Outcome& outcome) {
    on_waited(unit, serial, outcome);
  });
  if (!is_sent) settle(*search);
  task_.wake();  // from now on, updates of the catalogue are more frequent
}

void RemoteExchange::on_waited(const std::string& unit, std::uint64_t serial,
                               const Outcome& outcome) {
  if (const auto* const error = std::get_if<RemoteError>(&outcome)) return note_error(*error);
  const MutexLock lock(mutex_);
  Search* const search = find(unit, serial);
  if (search == nullptr || search->phase != Phase::kWaiting) return;
  search->claim_at = search->asked_at + kClaimInterval;
  task_.wake();
}

void RemoteExchange::adopt(const std::string& unit, const std::string& object) {
  const auto adopted = add_object(exchange(), unit, object);
  if (adopted.outcome == remote::Adoption::kAdopted) count(parts_.counters.remote_hits);
  if (!adopted.why.empty())
    spdlog::warn("an entry of the remote tier is not used: {}", adopted.why);
  const bool is_refused = adopted.outcome == remote::Adoption::kUntrusted ||
                          adopted.outcome == remote::Adoption::kDamaged;
  const MutexLock lock(mutex_);
  // If the base already has the entry, the job's view hides it. Forget the unit, so that the next lookup in that view
  // does not fetch it again.
  if (is_refused || adopted.outcome == remote::Adoption::kPresent) catalogue_.remove(unit);
  if (is_refused) refused_.add(unit);
}

void RemoteExchange::settle(Search& search) {
  search.phase = Phase::kSettled;
  for (Participant* const participant : search.participants) participant->settle();
}

// Opens the breaker. If the breaker was closed, settles all searches whose object is not being added to the base: their
// holders continue as without a remote tier.
void RemoteExchange::fail(const RemoteError& error) {
  const bool was_closed = breaker_.note_failure(Clock::now());
  const bool is_first = !std::exchange(has_answered_, true);
  answered_.notify_all();
  if (!breaker_.is_closed()) why_unused_ = error.text;
  if (!was_closed && !is_first) return;
  unused_since_ = std::time(nullptr);
  if (was_closed) count(parts_.counters.remote_breaker_open);
  set_usable(false);
  spdlog::warn("the remote tier is not used now: {}", error.text);
  for (auto& [unit, search] : searches_) {
    if (search.phase != Phase::kAdopting) settle(search);
  }
}

// Call when the engine has not answered within Settings::wait.
void RemoteExchange::fail_late() {
  count(parts_.counters.remote_errors);
  fail({RemoteError::Kind::kUnavailable,
        fmt::format("no answer within {} ms", settings_.wait.count())});
}

void RemoteExchange::note_error(const RemoteError& error) {
  count(parts_.counters.remote_errors);
  note_unusable(error);
}

void RemoteExchange::note_unusable(const RemoteError& error) {
  const MutexLock lock(mutex_);
  fail(error);
}

void RemoteExchange::await_first_answer(std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  const MutexLock lock(mutex_);
  while (!has_answered_ && answered_.wait_until(mutex_, end)) {
  }
}

RemoteEntries::State RemoteExchange::state() const {
  const MutexLock lock(mutex_);
  const bool is_used = breaker_.is_closed();
  return {.urls = settings_.urls,
          .is_used = is_used,
          .why = is_used ? "" : why_unused_,
          .unused_since = is_used ? 0 : unused_since_,
          .known = catalogue_.size(),
          .unsent = (pushes_ ? pushes_->unsent() : 0) + packs_.unsent()};
}

void RemoteExchange::note_published(const std::vector<std::string>& units) {
  if (!pushes_) return;
  const MutexLock lock(mutex_);
  for (const std::string& unit : units) {
    if (!remote::is_exchanged(parts_.entries, unit)) continue;
    PushQueue::Item item{.key = remote::object_key(settings_, unit),
                         .name = fmt::format("'{}'", unit)};
    item.make = [this, unit] { return make_unit_object(exchange(), unit); };
    item.on_done = [this, unit](PushQueue::Sent sent) { on_pushed(unit, sent); };
    if (!pushes_->add(std::move(item))) {
      count(parts_.counters.remote_dropped);
    } else if (const auto search = searches_.find(unit); search != searches_.end()) {
      ++search->second.pushes;
    }
  }
}

void RemoteExchange::on_pushed(const std::string& unit, PushQueue::Sent sent) {
  if (sent == PushQueue::Sent::kStored) count(parts_.counters.remote_pushed);
  if (sent == PushQueue::Sent::kDropped) count(parts_.counters.remote_dropped);
  const MutexLock lock(mutex_);
  const auto search = searches_.find(unit);
  if (search == searches_.end() || search->second.pushes == 0) return;
  --search->second.pushes;
  end_if_unused(search);
}

void RemoteExchange::finish_within(std::chrono::seconds time) {
  {
    const MutexLock lock(mutex_);
    is_finishing_ = true;
  }
  const auto end = Clock::now() + time;
  if (pushes_) pushes_->finish_within(time);
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(end - Clock::now());
  packs_.finish_within(std::max(left, std::chrono::seconds(0)));
}

void RemoteExchange::set_usable(bool is_usable) {
  if (pushes_) pushes_->set_usable(is_usable);
  packs_.set_usable(is_usable);
}

// ---- Recurring work

RemoteExchange::Clock::time_point RemoteExchange::tend() {
  const MutexLock lock(mutex_);
  const auto now = Clock::now();
  auto next = EventLoop::kNever;
  tend_searches(now, next);
  tend_catalogue(now, next);
  return next;
}

void RemoteExchange::tend_searches(Clock::time_point now, Clock::time_point& next) {
  bool is_overdue = false;
  for (auto at = searches_.begin(); at != searches_.end(); ++at) {
    Search& search = at->second;
    if (search.phase == Phase::kWaiting && search.claim_at <= now && !ask(at, false))
      settle(search);
    if (search.phase == Phase::kWaiting) {
      const auto end = search.waiting_since + parts_.longest_wait;
      if (end <= now) give_up_waiting(at->first, search, now);
      next = std::min({next, search.claim_at, end});
    }
    if (search.phase == Phase::kAsking) {
      is_overdue |= search.asked_at + settings_.wait <= now;
      next = std::min(next, search.asked_at + settings_.wait);
    }
    if (!search.has_lease) continue;
    if (search.renew_at <= now) {
      renew(at->first, search.serial);
      search.renew_at = now < search.renew_until ? now + kRenewal : EventLoop::kNever;
    }
    next = std::min(next, search.renew_at);
  }
  if (is_overdue) fail_late();
}

void RemoteExchange::give_up_waiting(const std::string& unit, Search& search,
                                     Clock::time_point now) {
  count(parts_.counters.remote_errors);
  settle(search);
  if (!unbuilt_.add(unit, now)) return;
  spdlog::warn(
      "other machines have not built {} entries within {} s each, the last one '{}'; for an hour, no process waits for other machines",
      UnbuiltEntries::kMost, parts_.longest_wait.count(), unit);
  for (auto& [name, other] : searches_) {
    if (other.phase == Phase::kWaiting) settle(other);
  }
}

// If the renewal fails, other machines may build the entry as well, and the engine keeps the object that is pushed
// first.
void RemoteExchange::renew(const std::string& unit, std::uint64_t serial) {
  if (!breaker_.is_closed()) return;
  (void)client_.send(lease_request("renew", unit, serial), [](const Outcome&) {});
}

bool RemoteExchange::is_waiting() const {
  return std::ranges::any_of(searches_,
                             [](const auto& each) { return each.second.phase == Phase::kWaiting; });
}

RemoteExchange::Clock::duration RemoteExchange::update_interval() const {
  if (!client_.has_leases()) return kUpdateOfList;
  return is_waiting() ? Clock::duration(kUpdateWhileWaiting) : Clock::duration(kUpdate);
}

void RemoteExchange::tend_catalogue(Clock::time_point now, Clock::time_point& next) {
  if (is_updating_) {
    if (breaker_.is_closed() && is_waiting()) {
      const auto deadline = updated_at_ + settings_.wait;
      if (deadline <= now) fail_late();
      next = std::min(next, std::max(deadline, now));
    }
    const auto restart_at = updated_at_ + settings_.timeout + remote::AsyncClient::kAnswerMargin;
    if (restart_at <= now) {
      updated_at_ = now;
      client_.restart();
    }
    next = std::min(next, restart_at);
    return;
  }
  const auto due = breaker_.is_closed() ? updated_at_ + update_interval() : breaker_.probe_at();
  if (due <= now) update_catalogue(now);
  if (is_updating_) {
    next = std::min(next, now + settings_.wait);
  } else {
    next = std::min(next, due > now ? due : now + kUpdate);
  }
}

// If no helper is running, sends nothing: the client wakes the task once a helper runs.
void RemoteExchange::update_catalogue(Clock::time_point now) {
  updated_at_ = now;
  is_updating_ =
      client_.send(catalogue_.request(), [this](const Outcome& outcome) { on_keys(outcome); });
  // The helper does not read its requests.
  if (!is_updating_ && client_.is_running()) client_.restart();
}

void RemoteExchange::on_keys(const Outcome& outcome) {
  const auto read = Catalogue::read(outcome, settings_);
  const MutexLock lock(mutex_);
  is_updating_ = false;
  if (const auto* const error = std::get_if<RemoteError>(&read)) {
    count(parts_.counters.remote_errors);
    catalogue_.note_failure(*error);
    fail(*error);
    return task_.wake();
  }
  if (!catalogue_.add(std::get<Catalogue::Page>(read))) return update_catalogue(Clock::now());
  has_answered_ = true;
  if (breaker_.note_success(Clock::now())) {
    spdlog::info("the remote tier is used: {} entries", catalogue_.size());
    set_usable(true);
  }
  answered_.notify_all();
  task_.wake();
}

}  // namespace cacheshim
