// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// A waiting request that may be interrupted.
class Interruptible {
 public:
  // May be called at any time and by any thread, under the caller's locks. Takes no lock that is
  // held while the request is completed.
  virtual void interrupt() = 0;

 protected:
  ~Interruptible() = default;
};

}  // namespace cacheshim
