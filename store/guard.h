// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

namespace cacheshim {

// Runs `work`, a piece of work of the daemon, and returns whether it came to its end. An exception, which
// is memory that cannot be had or a mistake of ours, is logged in one line, and costs this piece alone.
// Release builds included: an exception that leaves a thread ends the daemon, and with it every job's mount.
template <class Work>
bool run_guarded(const char* what, Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return true;
  } catch (const std::exception& error) {
    try {
      spdlog::error("{} failed: {}; the daemon goes on", what, error.what());
    } catch (...) {  // no memory for the line either
    }
  } catch (...) {
    try {
      spdlog::error("{} failed for an unknown reason; the daemon goes on", what);
    } catch (...) {  // likewise
    }
  }
  return false;
}

}  // namespace cacheshim
