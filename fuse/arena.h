// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cacheshim {

// Slots known by their index, 1 upwards, reused after release; nodes and handles live in one each.
// An index is all that the kernel holds of a node or a handle, so that the slots can move to shared
// memory that outlives a worker process without a change outside this class.
//
// Thread-safe. A slot stays where it is until it is released; the caller sees to it that nobody
// uses it after that (the kernel does: it sends nothing more after FORGET or RELEASE).
template <class Slot>
class Arena {
 public:
  std::uint32_t allocate() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const std::uint32_t index = free_.back();
      free_.pop_back();
      slot(index) = Slot();
      return index;
    }
    if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<Slot[]>(kChunk));
    return ++size_;
  }

  void release(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    slot(index) = Slot();
    free_.push_back(index);
  }

  Slot& get(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    return slot(index);
  }

  std::uint32_t in_use() const {
    const std::lock_guard lock(mutex_);
    return size_ - static_cast<std::uint32_t>(free_.size());
  }

 private:
  static constexpr std::uint32_t kChunk = 1024;

  Slot& slot(std::uint32_t index) { return chunks_[(index - 1) / kChunk][(index - 1) % kChunk]; }

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Slot[]>> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t size_ = 0;
};

}  // namespace cacheshim
