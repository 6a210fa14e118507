// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/failure.h"

namespace cacheshim::cli {

// Returns the exception that `action` throws as "CODE MESSAGE", for example "2 MESSAGE".
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
