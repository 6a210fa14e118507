// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/pack_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "remote/engine_keys.h"
#include "store/base/base_units.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using remote::Message;
using remote::RemoteError;

// Each takes one of the mount's 32 threads for control requests.
constexpr unsigned kMostFetches = 8;
constexpr std::size_t kMostUnsentPacks = 64;
constexpr std::size_t kMostLogged = 3;  // unusable entries of one pack

// Counts a call while the call is in progress.
class InProgress {
 public:
  explicit InProgress(std::atomic<unsigned>& calls) : calls_(calls), count_(++calls) {}
  ~InProgress() { --calls_; }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;
  // The number of calls in progress when this one began, with this one.
  unsigned count() const { return count_; }

 private:
  std::atomic<unsigned>& calls_;
  const unsigned count_;
};

std::string key_of(const RemoteEntries::Pack& pack, const remote::Settings& settings) {
  return remote::pack_key(settings, fmt::format("{}/{}", pack.uid, pack.name));
}

}  // namespace

std::optional<std::vector<std::string>> choose_packed(const std::vector<std::string>& used,
                                                      const std::vector<std::string>& previous,
                                                      bool has_succeeded) {
  const bool is_outdated = has_succeeded && previous.size() > 2 * used.size();
  const bool is_complete = std::ranges::includes(previous, used);
  if (used.empty() || (is_complete && !is_outdated)) return std::nullopt;
  if (is_outdated) return used;
  std::vector<std::string> both;
  std::ranges::set_union(used, previous, std::back_inserter(both));
  return both;
}

PackExchange::PackExchange(Exchange exchange, remote::AsyncClient& client, Engine engine)
    : exchange_(exchange), client_(client), engine_(std::move(engine)) {
  if (!exchange_.keys.signing) return;
  queue_ = std::make_unique<PushQueue>(kMostUnsentPacks, exchange_.parts.counters,
                                       exchange_.settings, client_, engine_.on_failed);
}

void PackExchange::set_usable(bool is_usable) {
  if (queue_) queue_->set_usable(is_usable);
}

void PackExchange::finish_within(std::chrono::seconds time) {
  if (queue_) queue_->finish_within(time);
}

// ---- Fetching

RemoteEntries::Pack PackExchange::fetch(unsigned uid, const std::string& name,
                                        const IsWanted& is_wanted) {
  Pack pack{.uid = uid, .name = name};
  const InProgress call(fetches_);
  if (call.count() > kMostFetches) {
    pack.why = "too many jobs are fetching their entries now";
    return pack;
  }
  const MutexLock lock(mutex_);
  receive(is_wanted, pack);
  return pack;
}

void PackExchange::receive(const IsWanted& is_wanted, Pack& pack) {
  pack.why = engine_.why_unused();
  if (!pack.why.empty()) return;
  const auto reply = client_.call(
      {{"op", "get"}, {"key", key_of(pack, exchange_.settings)}, {"most", remote::kMostPackBytes}},
      exchange_.settings.timeout,
      [&] { return !is_still_wanted(is_wanted) || !engine_.why_unused().empty(); });
  Counters& counters = exchange_.parts.counters;
  if (const auto* const error = std::get_if<RemoteError>(&reply)) {
    pack.why = engine_.why_unused();
    if (!pack.why.empty())
      return;  // the engine has failed in the meantime, at this request or another one
    pack.why = error->text;
    if (error->kind == RemoteError::Kind::kRefused) {  // the engine refuses only this pack
      ++counters.remote_errors;
    } else if (is_still_wanted(is_wanted)) {
      engine_.on_failed(*error);
    }
    return;
  }
  const Message& message = std::get<Message>(reply);
  if (!message.json.value("found", false)) {
    pack.is_known = true;
    return;
  }
  const auto bytes = remote::read_sealed_file(message.file.get(), remote::kMostPackBytes);
  if (!bytes) {
    pack.why = "cacheshim-remote sent no pack";
    ++counters.remote_errors;
    return;
  }
  counters.remote_bytes_in += bytes->size();
  add_objects(*bytes, is_wanted, pack);
  pack.is_known = is_still_wanted(is_wanted);
}

// Adds to the base the pack's entries that the base lacks. Adds all entries to `pack.units`, even unusable ones,
// because other machines may be able to use them.
void PackExchange::add_objects(std::string_view bytes, const IsWanted& is_wanted,
                               Pack& pack) const {
  Counters& counters = exchange_.parts.counters;
  const auto objects = remote::read_pack(bytes);
  if (!objects) {
    ++counters.remote_untrusted;
    pack.why = "the pack is damaged";
    return;
  }
  std::size_t unusable = 0;
  for (const remote::PackedObject& packed : *objects) {
    if (!is_still_wanted(is_wanted)) break;
    const auto added = add(packed);
    if (added.outcome == remote::Adoption::kAdopted) ++pack.added;
    if (added.outcome == remote::Adoption::kPresent) ++pack.present;
    if (!added.why.empty() && ++unusable <= kMostLogged)
      spdlog::warn("an entry of a pack is not used: {}", added.why);
    pack.units.emplace_back(packed.unit);
  }
  counters.remote_prefetched += pack.added;
  std::ranges::sort(pack.units);
  pack.units.erase(std::unique(pack.units.begin(), pack.units.end()), pack.units.end());
  if (unusable > 0)
    pack.why = fmt::format("{} of its entries are not usable; see the log", unusable);
}

remote::AdoptionResult PackExchange::add(const remote::PackedObject& packed) const {
  const std::string unit(packed.unit);
  if (!remote::is_exchanged(exchange_.parts.entries, unit)) {
    return {remote::Adoption::kUntrusted,
            fmt::format("'{}': no profile allows to exchange it", unit),
            {}};
  }
  if (sys::open_beneath(exchange_.parts.store.base(), unit, O_PATH | O_NOFOLLOW))
    return {remote::Adoption::kPresent, "", {}};
  return add_object(exchange_, unit, packed.object);
}

// ---- Sending

void PackExchange::push(const Pack& pack, std::function<bool(std::string_view path)> is_used,
                        bool has_succeeded) {
  if (!queue_) return;
  PushQueue::Item item{.key = key_of(pack, exchange_.settings),
                       .name = fmt::format("the pack of '{}'", pack.name),
                       .replaces = true};
  item.make = [this, is_used = std::move(is_used), previous = pack.units, has_succeeded] {
    return make(is_used, previous, has_succeeded);
  };
  item.on_done = [name = item.name](PushQueue::Sent sent) {
    if (sent == PushQueue::Sent::kStored) spdlog::info("{} was sent to the remote tier", name);
  };
  // If the queue is full, the next job of this name sends a pack.
  (void)queue_->add(std::move(item));
}

// Returns a file with the next pack, or an empty descriptor if the previous pack is to stay.
UniqueFd PackExchange::make(const std::function<bool(std::string_view path)>& is_used,
                            const std::vector<std::string>& previous, bool has_succeeded) const {
  const RemoteParts& parts = exchange_.parts;
  const IsWanted is_wanted = [this] { return !queue_->is_given_up(); };
  auto used = find_base_units(parts.store, parts.entries, is_used, is_wanted);
  if (!used) return {};
  std::erase_if(
      *used, [&](const std::string& unit) { return !remote::is_exchanged(parts.entries, unit); });
  const auto chosen = choose_packed(*used, previous, has_succeeded);
  return chosen ? make_pack(exchange_, *chosen, is_wanted) : UniqueFd();
}

}  // namespace cacheshim
