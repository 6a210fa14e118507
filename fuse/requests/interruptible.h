// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// A request that waits and may be interrupted.
class Interruptible {
 public:
  // May be called at any time and by any thread, under locks of the caller. Takes no lock that is held when the
  // request is completed.
  virtual void interrupt() = 0;

 protected:
  ~Interruptible() = default;
};

}  // namespace cacheshim
