// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <utility>

#include "common/result.h"

namespace cacheshim {

// Completes one pending request of the kernel, exactly once: with EIO if it is destroyed before it was called.
// Holds what the dispatcher knows the request by and the function that replies to it, so it allocates nothing.
// Call with no lock held. Not thread-safe.
template <class T>
class Completion {
 public:
  using Reply = void (*)(void* request, const Result<T>& result);

  Completion(void* request, Reply reply) : request_(request), reply_(reply) {}
  Completion(Completion&& other) noexcept
      : request_(std::exchange(other.request_, nullptr)), reply_(other.reply_) {}
  Completion& operator=(Completion&&) = delete;
  ~Completion() { complete(Errno(EIO)); }

  // Does nothing if the request has been completed.
  void complete(const Result<T>& result) {
    void* const request = std::exchange(request_, nullptr);
    if (request != nullptr) reply_(request, result);
  }

 private:
  void* request_;
  Reply reply_;
};

}  // namespace cacheshim
