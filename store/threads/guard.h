// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

namespace cacheshim {

// Runs `work`, one task of the daemon, and returns whether it completed. Logs an exception in one
// line; only this task is lost. Exceptions come from a lack of memory or from bugs. Catches them in
// release builds as well, because an exception that leaves a thread ends the daemon, and with it
// every job's mount.
template <class Work>
bool run_guarded(const char* what, Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return true;
  } catch (const std::exception& error) {
    try {
      spdlog::error("{} failed: {}; the daemon goes on", what, error.what());
    } catch (...) {  // no memory even for the log line
    }
  } catch (...) {
    try {
      spdlog::error("{} failed for an unknown reason; the daemon goes on", what);
    } catch (...) {  // no memory even for the log line
    }
  }
  return false;
}

}  // namespace cacheshim
