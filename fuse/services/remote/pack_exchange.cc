// SPDX-License-Identifier: Apache-2.0
// Packs: the part of RemoteExchange that fetches and sends the entries of a job's name.
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "fuse/services/remote/remote_exchange.h"
#include "remote/object_pack.h"
#include "store/base/base_units.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using remote::Message;
using remote::RemoteError;

// Of the 32 threads for control requests, at most so many wait for packs.
constexpr unsigned kMostPrefetches = 8;
constexpr std::size_t kMostLogged = 3;  // of a pack's entries

void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

// A call that counts while it lasts.
class InProgress {
 public:
  explicit InProgress(std::atomic<unsigned>& calls) : calls_(calls), count_(++calls) {}
  ~InProgress() { --calls_; }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;
  unsigned count() const { return count_; }  // of the calls, including this one

 private:
  std::atomic<unsigned>& calls_;
  const unsigned count_;
};

}  // namespace

RemoteEntries::Pack RemoteExchange::fetch_pack(unsigned uid, const std::string& name,
                                               const std::function<bool()>& is_wanted) {
  Pack pack{.uid = uid, .name = name};
  const InProgress call(prefetches_);
  if (call.count() > kMostPrefetches) {
    pack.why = "too many jobs are fetching their entries now";
    return pack;
  }
  const MutexLock lock(pack_mutex_);
  receive_pack(is_wanted, pack);
  return pack;
}

void RemoteExchange::receive_pack(const std::function<bool()>& is_wanted, Pack& pack) {
  if (const State now = state(); !now.is_used) {
    pack.why = now.why;
    return;
  }
  const auto reply =
      client_.call({{"op", "get"},
                    {"key", remote::pack_key(settings_, remote::pack_name(pack.uid, pack.name))},
                    {"most", remote::kMostPackBytes}},
                   settings_.timeout, [&] { return !is_wanted() || !state().is_used; });
  if (const auto* const error = std::get_if<RemoteError>(&reply)) {
    pack.why = error->text;
    if (error->kind == RemoteError::Kind::kRefused) {  // only this pack
      count(parts_.counters.remote_errors);
    } else if (const State now = state(); !now.is_used) {
      pack.why = now.why;
    } else if (is_wanted()) {
      note_error(*error);
    }
    return;
  }
  const Message& message = std::get<Message>(reply);
  pack.is_known = true;
  if (!message.json.value("found", false)) return;
  const auto bytes = remote::read_sealed_file(message.file.get(), remote::kMostPackBytes);
  if (!bytes) {
    pack.is_known = false;
    pack.why = "cacheshim-remote sent no pack";
    count(parts_.counters.remote_errors);
    return;
  }
  count(parts_.counters.remote_bytes_in, bytes->size());
  add_packed(*bytes, is_wanted, pack);
}

// Adds the entries that the base lacks. An entry that is not usable stays among the pack's units, because other machines
// may use it.
void RemoteExchange::add_packed(std::string_view bytes, const std::function<bool()>& is_wanted,
                                Pack& pack) const {
  const auto objects = remote::read_pack(bytes);
  if (!objects) {
    count(parts_.counters.remote_untrusted);
    pack.why = "the pack is damaged";
    return;
  }
  std::size_t unusable = 0;
  for (const remote::PackedObject& packed : *objects) {
    if (!is_wanted()) break;
    const auto added = add_packed(packed);
    if (added.outcome == remote::Adoption::kAdopted) ++pack.added;
    if (added.outcome == remote::Adoption::kPresent) ++pack.present;
    if (!added.why.empty() && ++unusable <= kMostLogged)
      spdlog::warn("an entry of a pack is not used: {}", added.why);
    pack.units.emplace_back(packed.unit);
  }
  count(parts_.counters.remote_prefetched, pack.added);
  std::ranges::sort(pack.units);
  pack.units.erase(std::unique(pack.units.begin(), pack.units.end()), pack.units.end());
  if (unusable > 0)
    pack.why = fmt::format("{} of its entries are not usable; see the log", unusable);
}

remote::AdoptionResult RemoteExchange::add_packed(const remote::PackedObject& packed) const {
  const std::string unit(packed.unit);
  if (!remote::is_exchanged(parts_.entries, unit)) {
    return {remote::Adoption::kUntrusted,
            fmt::format("'{}': no profile allows to exchange it", unit),
            {}};
  }
  if (sys::open_beneath(parts_.store.base(), unit, O_PATH | O_NOFOLLOW))
    return {remote::Adoption::kPresent, "", {}};
  return adopt(unit, packed.object);
}

void RemoteExchange::push_pack(const Pack& pack, std::function<bool(std::string_view path)> is_used,
                               bool has_succeeded) {
  if (!packs_) return;
  PushQueue::Item item{.key = remote::pack_key(settings_, remote::pack_name(pack.uid, pack.name)),
                       .name = fmt::format("the pack of '{}'", pack.name),
                       .replaces = true};
  item.make = [this, previous = pack.units, is_used = std::move(is_used), has_succeeded] {
    auto used = find_base_units(parts_.store, parts_.entries, is_used);
    std::erase_if(
        used, [&](const std::string& unit) { return !remote::is_exchanged(parts_.entries, unit); });
    const auto chosen = choose_packed(used, previous, has_succeeded);
    if (!chosen) return UniqueFd();
    return make_pack(maker(), *chosen, [this] { return !packs_->is_given_up(); });
  };
  item.on_done = [name = item.name](PushQueue::Sent sent) {
    if (sent == PushQueue::Sent::kStored) spdlog::info("{} was sent to the remote tier", name);
  };
  (void)packs_->add(std::move(item));  // a full queue: the next job of this name sends it
}

}  // namespace cacheshim
