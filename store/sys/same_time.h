// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace cacheshim {

inline bool is_same_time(const timespec& left, const timespec& right) {
  return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
}

}  // namespace cacheshim
