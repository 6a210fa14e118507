// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/failure.h"

namespace cacheshim::cli {

// "2 MESSAGE" of what `action` throws.
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
