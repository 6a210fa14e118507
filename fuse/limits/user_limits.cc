// SPDX-License-Identifier: Apache-2.0
#include "fuse/limits/user_limits.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace cacheshim {
namespace {

constexpr std::size_t kMostInPart = UserLimits::kMostAccounts / 256;

// Spreads consecutive ids, such as the subordinate ids of a user namespace, over the parts.
std::uint32_t hash_of(uid_t uid) { return uid * 0x9e3779b1U; }
std::size_t part_of(uid_t uid) { return hash_of(uid) >> 24; }
std::size_t first_slot_of(uid_t uid) { return hash_of(uid) >> 8; }

}  // namespace

bool UserAccount::take(Limit limit, std::uint64_t count) {
  const auto at = static_cast<std::size_t>(limit);
  UserLimits::Pool& pool = limits_.pools_[at];
  const std::uint64_t own = used_[at].fetch_add(count, std::memory_order_relaxed) + count;
  const std::uint64_t all = pool.total.fetch_add(count, std::memory_order_relaxed) + count;
  if (!is_limited_) return true;
  const bool is_within_own = pool.most == 0 || own <= pool.most;
  const bool is_within_all = pool.capacity == 0 || own + all <= pool.capacity;
  if (is_within_own && is_within_all) return true;
  give_back(limit, count);
  note_refusal(limit);
  return false;
}

void UserAccount::add(Limit limit, std::uint64_t count) {
  const auto at = static_cast<std::size_t>(limit);
  used_[at].fetch_add(count, std::memory_order_relaxed);
  limits_.pools_[at].total.fetch_add(count, std::memory_order_relaxed);
}

std::uint64_t UserAccount::most(Limit limit) const {
  return is_limited_ ? limits_.pools_[static_cast<std::size_t>(limit)].most : 0;
}

bool UserAccount::is_near(Limit limit) const {
  const std::uint64_t permitted = most(limit);
  return permitted != 0 && used(limit) > permitted - permitted / 4;
}

void UserAccount::give_back(Limit limit, std::uint64_t count) {
  const auto at = static_cast<std::size_t>(limit);
  used_[at].fetch_sub(count, std::memory_order_relaxed);
  limits_.pools_[at].total.fetch_sub(count, std::memory_order_relaxed);
}

// Logs the first refusal of each user and limit: a line for every refusal would let a user fill the log.
void UserAccount::note_refusal(Limit limit) {
  const auto at = static_cast<std::size_t>(limit);
  UserLimits::Pool& pool = limits_.pools_[at];
  pool.refused.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t bit = std::uint32_t{1} << at;
  if ((reported_.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  const LimitRow& row = row_of(limit);
  const bool is_own = pool.most != 0 && used(limit) + 1 >= pool.most;
  spdlog::warn("uid {} has reached its limit of {} ({} in use{}): {} (reported once)", uid_, row.key,
               used(limit), is_own ? "" : ", as many as are free", row.effect);
}

Result<Charge> Charge::take(UserAccount* account, Limit limit, std::uint64_t count) {
  Charge charge(account, limit);
  if (charge.resize(count)) return charge;
  const int error = error_of(limit);
  return Errno(error == 0 ? EAGAIN : error);
}

bool Charge::resize(std::uint64_t count) {
  if (account_ == nullptr) return true;
  if (count > count_ && !account_->take(limit_, count - count_)) return false;
  if (count < count_) account_->give_back(limit_, count_ - count);
  count_ = count;
  return true;
}

void Charge::set(std::uint64_t count) {
  if (account_ != nullptr && count > count_) account_->add(limit_, count - count_);
  if (account_ != nullptr && count < count_) account_->give_back(limit_, count_ - count);
  count_ = count;
}

UserLimits::UserLimits(const Options& options)
    : own_uid_(options.own_uid), shared_(*this, static_cast<uid_t>(-1), true) {
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    pools_[i].most = options.most[i];
    pools_[i].capacity = options.capacities[i];
  }
}

UserLimits::~UserLimits() = default;

UserAccount& UserLimits::account(uid_t uid) {
  UserAccount* const found = find(uid);
  return found != nullptr ? *found : add(uid);
}

// The search ends, because parts are at most half full and so have empty slots.
UserAccount* UserLimits::find(uid_t uid) const {
  const Part* const part = parts_[part_of(uid)].load(std::memory_order_acquire);
  if (part == nullptr) return nullptr;
  for (std::size_t slot = first_slot_of(uid);; ++slot) {
    UserAccount* const account = part->slots[slot % kSlots].load(std::memory_order_acquire);
    if (account == nullptr || account->uid() == uid) return account;
  }
}

UserAccount& UserLimits::add(uid_t uid) {
  const MutexLock lock(mutex_);
  if (UserAccount* const found = find(uid)) return *found;
  Part* part = parts_[part_of(uid)].load(std::memory_order_relaxed);
  if (part == nullptr) {
    part = owned_parts_.emplace_back(std::make_unique<Part>()).get();
    parts_[part_of(uid)].store(part, std::memory_order_release);
  }
  const auto is_used = [](const auto& slot) { return slot.load(std::memory_order_relaxed) != nullptr; };
  const auto used = std::count_if(part->slots.begin(), part->slots.end(), is_used);
  if (static_cast<std::size_t>(used) >= kMostInPart) return shared_;
  std::size_t slot = first_slot_of(uid);
  while (is_used(part->slots[slot % kSlots])) ++slot;
  UserAccount* const account =
      accounts_.emplace_back(std::make_unique<UserAccount>(*this, uid, is_limited(uid))).get();
  part->slots[slot % kSlots].store(account, std::memory_order_release);
  return *account;
}

std::array<UserLimits::Use, kLimitRows.size()> UserLimits::uses() const {
  std::array<Use, kLimitRows.size()> uses{};
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Pool& pool = pools_[i];
    uses[i] = {pool.most, pool.capacity, pool.total.load(std::memory_order_relaxed), 0,
               pool.refused.load(std::memory_order_relaxed)};
    const auto note = [&](const UserAccount& account) {
      uses[i].highest = std::max(uses[i].highest, account.used(static_cast<Limit>(i)));
    };
    note(shared_);
    for (const auto& account : accounts_) {
      if (is_limited(account->uid())) note(*account);
    }
  }
  return uses;
}

}  // namespace cacheshim
