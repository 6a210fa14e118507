// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/failure.h"

namespace cacheshim::cli {

// Returns the exit code and the message of the Failure that `action` throws, for example "2
// MESSAGE", or "accepted" if `action` throws none.
template <class Action>
std::string failure_of(Action action) {
  try {
    action();
  } catch (const Failure& failure) {
    return std::to_string(failure.exit_code()) + " " + failure.what();
  }
  return "accepted";
}

}  // namespace cacheshim::cli
