// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// A waiting request that may be interrupted.
class Interruptible {
 public:
  // Any thread may call this at any time, even with locks held. Implementations must not take a lock that is held while
  // the request is completed.
  virtual void interrupt() = 0;

 protected:
  ~Interruptible() = default;
};

}  // namespace cacheshim
