// SPDX-License-Identifier: Apache-2.0
#include "store/staged_copies.h"

#include "store/sys.h"

namespace cacheshim {

StagedCopy::~StagedCopy() {
  if (!taken_) (void)sys::unlink_at(work(), name_);  // else whoever takes up the layer does
}

StagedCopies::State::State(const struct stat& st)
    : device(st.st_dev),
      inode(st.st_ino),
      size(st.st_size),
      seconds(st.st_mtim.tv_sec),
      nanoseconds(st.st_mtim.tv_nsec) {}

StagedCopies::Claim StagedCopies::claim(const struct stat& source, off_t keep_bytes,
                                        const std::function<Ticket()>& make) {
  const std::lock_guard lock(mutex_);
  std::erase_if(copies_, [](const auto& entry) { return entry.second.expired(); });
  const State state(source);
  const auto [begin, end] = copies_.equal_range(state);
  for (auto it = begin; it != end; ++it) {
    Ticket copy = it->second.lock();
    if (copy && copy->keep_bytes() >= keep_bytes) return {std::move(copy), false};
  }
  Ticket copy = make();
  copies_.emplace(state, copy);
  return {std::move(copy), true};
}

void StagedCopies::forget(const Ticket& copy) {
  std::erase_if(copies_, [&](const auto& entry) { return entry.second.lock() == copy; });
}

void StagedCopies::finish(const Ticket& copy, Status outcome) {
  const std::lock_guard lock(mutex_);
  copy->outcome_ = outcome;
  copy->is_done_ = true;
  if (!outcome) forget(copy);  // whoever comes later tries again
  done_.notify_all();
}

Status StagedCopies::wait(const Ticket& copy) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return copy->is_done_; });
  return copy->outcome_;
}

void StagedCopies::set_taken(const Ticket& copy) {
  const std::lock_guard lock(mutex_);
  copy->taken_ = true;
  forget(copy);
}

void StagedCopies::clear() {
  const std::lock_guard lock(mutex_);
  copies_.clear();
}

}  // namespace cacheshim
