// SPDX-License-Identifier: Apache-2.0
#include "fuse/limits/layer_use.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cacheshim {
namespace {

constexpr std::uint64_t kBytesOfName = 4096;  // a new object needs at most about one block
// While a user's layers hold at most this many bytes in total, try_grow() does not compare them with the free space.
constexpr std::uint64_t kSmallLayers = 1 << 30;

}  // namespace

Status LayerUse::grow(uid_t owner, const LayerSize& added) {
  if (quota_ == nullptr) return {};
  if (!quota_->space.take(added.bytes + added.files * kBytesOfName)) return Errno(ENOSPC);
  UserAccount& account = quota_->limits.account(owner);
  const MutexLock lock(mutex_);
  if (!charge_to(account)) return {};
  const bool is_permitted = try_grow(added);
  if (is_near()) quota_->wake();
  return is_permitted ? Status() : Errno(EDQUOT);
}

// Refuses growth beyond a limit. If the user has a max_layer_size, also refuses to add bytes while the user's layers
// hold more than kSmallLayers and more than the last known free space. So above kSmallLayers, one user can take at most
// half of the space that was free.
bool LayerUse::try_grow(const LayerSize& added) {
  const std::uint64_t share = std::max(quota_->space.last_available(), kSmallLayers);
  if (added.bytes > 0 && account_->most(Limit::kLayerSize) != 0 &&
      account_->used(Limit::kLayerSize) > share) {
    account_->note_refusal(Limit::kLayerSize);
    return false;
  }
  if (!files_.resize(files_.count() + added.files)) return false;
  if (!bytes_.resize(bytes_.count() + added.bytes)) {
    (void)files_.resize(files_.count() - added.files);  // shrinking never fails
    return false;
  }
  grown_.bytes += added.bytes;
  grown_.files += added.files;
  return true;
}

bool LayerUse::note_grown(uid_t owner, const LayerSize& added) {
  if (quota_ == nullptr) return false;
  UserAccount& account = quota_->limits.account(owner);
  const MutexLock lock(mutex_);
  if (!charge_to(account)) return false;
  bytes_.set(bytes_.count() + added.bytes);
  files_.set(files_.count() + added.files);
  grown_.bytes += added.bytes;
  grown_.files += added.files;
  if (is_near()) quota_->wake();
  const std::uint64_t most = account.most(Limit::kLayerSize);
  return most != 0 && account.used(Limit::kLayerSize) > most;
}

// Moves the charges to `account`. Returns false if the account's user has no limits on layers. A job has no owner until
// the first request of a user other than root; until then root is charged.
bool LayerUse::charge_to(UserAccount& account) {
  const bool has_limits =
      account.most(Limit::kLayerSize) != 0 || account.most(Limit::kLayerFiles) != 0;
  if (account_ == &account) return has_limits;
  account_ = &account;
  const LayerSize old{bytes_.count(), files_.count()};
  bytes_ = Charge(&account, Limit::kLayerSize);
  files_ = Charge(&account, Limit::kLayerFiles);
  bytes_.set(old.bytes);
  files_.set(old.files);
  return has_limits;
}

void LayerUse::adopt() {
  is_unmeasured_ = true;
  if (quota_ != nullptr) quota_->wake();
}

void LayerUse::clear() {
  is_unmeasured_ = false;
  const MutexLock lock(mutex_);
  is_being_measured_ = false;
  bytes_.set(0);
  files_.set(0);
}

bool LayerUse::is_near() const {
  return account_ != nullptr &&
         (account_->is_near(Limit::kLayerSize) || account_->is_near(Limit::kLayerFiles) ||
          (account_->most(Limit::kLayerSize) != 0 &&
           account_->used(Limit::kLayerSize) >
               std::max(quota_->space.last_available(), kSmallLayers) / 4 * 3));
}

bool LayerUse::is_near_limit() const {
  const MutexLock lock(mutex_);
  return is_near();
}

bool LayerUse::is_due() const { return is_unmeasured_ || is_near_limit(); }

void LayerUse::begin_measuring() {
  is_unmeasured_ = false;
  const MutexLock lock(mutex_);
  is_being_measured_ = true;
  grown_ = {};
}

void LayerUse::end_measuring(uid_t owner, const LayerSize& found) {
  if (quota_ == nullptr) return;
  UserAccount& account = quota_->limits.account(owner);
  const MutexLock lock(mutex_);
  if (!std::exchange(is_being_measured_, false) || !charge_to(account)) return;
  bytes_.set(found.bytes + grown_.bytes);
  files_.set(found.files + grown_.files);
}

LayerSize LayerUse::size() const {
  const MutexLock lock(mutex_);
  return {bytes_.count(), files_.count()};
}

LayerUse::Walk LayerUse::last_walk() const {
  const MutexLock lock(mutex_);
  return last_walk_;
}

void LayerUse::note_walk(const Walk& walk) {
  const MutexLock lock(mutex_);
  last_walk_ = walk;
}

}  // namespace cacheshim
