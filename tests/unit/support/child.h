// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include "tests/unit/support/owned_process.h"

namespace cacheshim {

// A child process that does nothing.
class Child : public OwnedProcess {
 public:
  Child() : OwnedProcess(::fork()) {
    if (pid() == 0) {
      for (;;) (void)::pause();
    }
  }
};

}  // namespace cacheshim
