// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/staged_copies.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "store/sys/copy_file.h"
#include "store/sys/sys.h"

namespace cacheshim {

StagedCopy::~StagedCopy() {
  // If this fails, the next daemon that loads the layer removes the copy (load_layer()).
  if (!taken_) (void)sys::unlink_at(work(), name_);
}

StagedCopies::State::State(const struct stat& st)
    : device(st.st_dev),
      inode(st.st_ino),
      size(st.st_size),
      seconds(st.st_mtim.tv_sec),
      nanoseconds(st.st_mtim.tv_nsec) {}

bool StagedCopies::State::operator<(const State& other) const {
  return std::tie(device, inode, size, seconds, nanoseconds) <
         std::tie(other.device, other.inode, other.size, other.seconds, other.nanoseconds);
}

void StagedCopies::set_work(std::shared_ptr<const UniqueFd> work) {
  const MutexLock lock(mutex_);
  work_ = std::move(work);
  copies_.clear();
}

std::string StagedCopies::new_name() {
  return fmt::format("staged.{}", count_.fetch_add(1, std::memory_order_relaxed));
}

Status StagedCopies::at_step(CopyUpStep step) const {
  return observer_ != nullptr ? observer_->at_step(step) : Status();
}

StagedCopies::Ticket StagedCopies::find(const State& state, off_t bytes) const {
  const auto [begin, end] = copies_.equal_range(state);
  for (auto it = begin; it != end; ++it) {
    Ticket copy = it->second.lock();
    if (copy && copy->keep_bytes() >= bytes) return copy;
  }
  return nullptr;
}

StagedCopies::Ticket StagedCopies::find_ready(const struct stat& st, off_t keep_bytes) {
  const MutexLock lock(mutex_);
  Ticket copy = find(State(st), std::min(st.st_size, keep_bytes));
  return copy && copy->is_done_ ? copy : nullptr;
}

Result<StagedCopies::Claim> StagedCopies::begin(UniqueFd source, off_t keep_bytes, Keep keep) {
  CACHESHIM_TRY(st, sys::stat_fd(source.get()));
  if (!S_ISREG(st.st_mode)) return Errno(ESTALE);
  const off_t bytes = std::min(st.st_size, keep_bytes);
  const MutexLock lock(mutex_);
  std::erase_if(copies_, [](const auto& entry) { return entry.second.expired(); });
  const State state(st);
  if (Ticket other = find(state, bytes)) return Claim{std::move(other), false, {}};
  auto copy = std::make_shared<StagedCopy>(work_, new_name(), bytes);
  copies_.emplace(state, copy);
  return Claim{std::move(copy), true, std::move(source), st, keep};
}

Status StagedCopies::complete(const Claim& claim) {
  if (claim.is_maker) {
    try {
      auto made = make(claim);
      const Status outcome = made ? Status() : made.error();
      finish(claim.copy, outcome,
             made && claim.keep == Keep::kOpen ? *std::move(made) : UniqueFd());
      return outcome;
    } catch (...) {  // no memory
      finish(claim.copy, Errno(ENOMEM));
      throw;
    }
  }
  const MutexLock lock(mutex_);
  while (!claim.copy->is_done_) done_.wait(mutex_);
  return claim.copy->outcome_;
}

Result<UniqueFd> StagedCopies::make(const Claim& claim) const {
  const StagedCopy& copy = *claim.copy;
  if (observer_ != nullptr)
    CACHESHIM_CHECK(observer_->grow(size_of_copy(claim.st, copy.keep_bytes()), 1));
  CACHESHIM_TRY(target, sys::open_beneath(copy.work(), copy.name(), O_RDWR | O_CREAT | O_EXCL,
                                          claim.st.st_mode & 0777));
  CACHESHIM_CHECK(at_step(CopyUpStep::kBegun));
  CACHESHIM_CHECK(copy_file(claim.source.get(), target.get(),
                            {.keep_bytes = copy.keep_bytes(), .keep_owner = keep_owner_}));
  CACHESHIM_CHECK(at_step(CopyUpStep::kFilled));
  return target;
}

void StagedCopies::forget(const Ticket& copy) {
  std::erase_if(copies_, [&](const auto& entry) { return entry.second.lock() == copy; });
}

void StagedCopies::finish(const Ticket& copy, Status outcome, UniqueFd file) {
  const MutexLock lock(mutex_);
  copy->outcome_ = outcome;
  copy->file_ = std::move(file);
  copy->is_done_ = true;
  if (!outcome) forget(copy);  // a later request tries again
  done_.notify_all();
}

UniqueFd StagedCopies::set_taken(const Ticket& copy) {
  const MutexLock lock(mutex_);
  copy->taken_ = true;
  forget(copy);
  return std::move(copy->file_);
}

}  // namespace cacheshim
