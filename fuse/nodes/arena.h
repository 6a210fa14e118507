// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "store/threads/mutex.h"

namespace cacheshim {

// An array of slots whose indexes start at 1 and are reused after release. There is one arena for
// nodes and one for handles; the kernel identifies a node or a handle by its index. Memory is freed
// in chunks, once all slots of a chunk are released.
//
// Thread-safe; find() and get() take no lock. A slot stays in place until it is released; the caller ensures that no
// thread uses it afterwards (the kernel sends no request for it after FORGET or RELEASE).
template <class Slot>
class Arena {
 public:
  Arena() : chunks_(std::make_unique<Chunks>()) {}
  ~Arena() {
    for (auto& chunk : *chunks_) delete[] chunk.load();
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Throws std::bad_alloc if there is no memory, or if all 67 million slots are in use.
  std::uint32_t allocate() {
    const MutexLock lock(mutex_);
    if (open_.empty()) open_.push_back(add_chunk());
    const std::uint32_t chunk = open_.back();
    Use& use = uses_[chunk];
    const std::uint32_t place = use.free.back();
    use.free.pop_back();
    if (use.free.empty()) open_.pop_back();
    in_use_.fetch_add(1, std::memory_order_relaxed);
    return chunk * kChunk + place + 1;
  }

  void release(std::uint32_t index) {
    get(index) = Slot();  // without the lock: a destructor may wait for other locks
    const MutexLock lock(mutex_);
    const std::uint32_t chunk = (index - 1) / kChunk;
    Use& use = uses_[chunk];
    if (use.free.empty()) open_.push_back(chunk);
    use.free.push_back(static_cast<std::uint16_t>((index - 1) % kChunk));
    in_use_.fetch_sub(1, std::memory_order_relaxed);
    if (use.free.size() == kChunk) drop_chunk(chunk);
  }

  // Returns null if the index is in no allocated chunk. The slot that is returned may be free; it then has its initial
  // value.
  Slot* find(std::uint32_t index) const {
    const std::uint32_t number = (index - 1) / kChunk;
    if (index == 0 || number >= kMostChunks) return nullptr;
    Slot* const chunk = (*chunks_)[number].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[(index - 1) % kChunk];
  }

  Slot& get(std::uint32_t index) const {
    Slot* const chunk = (*chunks_)[(index - 1) / kChunk].load(std::memory_order_acquire);
    return chunk[(index - 1) % kChunk];
  }

  std::uint32_t in_use() const { return in_use_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kChunk = 4096;
  static constexpr std::uint32_t kMostChunks = 16384;
  using Chunks = std::array<std::atomic<Slot*>, kMostChunks>;

  struct Use {
    std::vector<std::uint16_t> free;
  };

  std::uint32_t add_chunk() REQUIRES(mutex_) {
    std::uint32_t chunk = 0;
    if (!missing_.empty()) {
      chunk = missing_.back();
      missing_.pop_back();
    } else {
      if (uses_.size() == kMostChunks) throw std::bad_alloc();
      chunk = static_cast<std::uint32_t>(uses_.size());
      uses_.emplace_back();
    }
    (*chunks_)[chunk].store(new Slot[kChunk], std::memory_order_release);
    Use& use = uses_[chunk];
    use.free.resize(kChunk);
    for (std::uint32_t i = 0; i < kChunk; ++i) {  // the lowest index is used first
      use.free[i] = static_cast<std::uint16_t>(kChunk - 1 - i);
    }
    return chunk;
  }

  // Keeps the chunk if no other chunk has free slots: it would be slow to free and allocate a chunk repeatedly.
  void drop_chunk(std::uint32_t chunk) REQUIRES(mutex_) {
    if (open_.size() == 1) return;
    std::erase(open_, chunk);
    uses_[chunk].free = {};
    delete[](*chunks_)[chunk].exchange(nullptr);
    missing_.push_back(chunk);
  }

  const std::unique_ptr<Chunks> chunks_;
  std::atomic<std::uint32_t> in_use_{0};
  mutable Mutex mutex_;
  std::vector<Use> uses_ GUARDED_BY(mutex_);               // indexed by chunk
  std::vector<std::uint32_t> open_ GUARDED_BY(mutex_);     // chunks with free slots
  std::vector<std::uint32_t> missing_ GUARDED_BY(mutex_);  // freed chunks
};

}  // namespace cacheshim
