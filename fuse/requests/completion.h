// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <utility>

#include "common/result.h"
#include "fuse/requests/interruptible.h"

namespace cacheshim {

// Completes one pending request of the kernel exactly once: if complete() is not called, the
// destructor replies with EIO. `R` is a Result. A completion consists of the dispatcher's pointer to
// the request, and a pointer to the functions that reply to it, so it allocates nothing. Move-only.
// Any thread may complete it; call with no lock held.
template <class R>
class Completion {
 public:
  struct Replier {
    void (*reply)(void* request, const R& result);
    // Makes each later interrupt of the request call waiter->interrupt(). With nullptr, removes the waiter, and blocks
    // until a call in progress has returned.
    void (*watch)(void* request, Interruptible* waiter) = nullptr;
  };

  Completion(void* request, const Replier& replier) : request_(request), replier_(&replier) {}
  Completion(const Completion&) = delete;
  Completion(Completion&& other) noexcept
      : request_(other.request_.exchange(nullptr)), replier_(other.replier_) {}
  Completion& operator=(Completion&&) = delete;
  ~Completion() {
    if (request_.load() != nullptr) complete(Errno(EIO));
  }

  // Does nothing if the request has been completed.
  void complete(const R& result) {
    void* const request = request_.exchange(nullptr);
    if (request != nullptr) replier_->reply(request, result);
  }
  // Makes each later interrupt of the request call waiter->interrupt(). Call before another thread
  // may complete the request, and again with nullptr before the request is completed.
  void watch(Interruptible* waiter) {
    if (void* const request = request_.load()) replier_->watch(request, waiter);
  }

 private:
  std::atomic<void*> request_;
  const Replier* replier_;
};

}  // namespace cacheshim
