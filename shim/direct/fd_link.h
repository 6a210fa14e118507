// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

namespace cacheshim {

// Formats a text and a number, such as "/proc/self/fd/3" or "uid 1000". Avoids printf, which may
// allocate.
class FdLink {
 public:
  // Returns `directory` followed by the number. Requires: `directory` is at most 16 bytes long. The
  // result is valid during the object's lifetime.
  const char* name(const char* directory, int fd) {
    std::size_t length = std::strlen(directory);
    std::memcpy(text_, directory, length);
    char digits[12];
    std::size_t count = 0;
    for (unsigned n = static_cast<unsigned>(fd); n != 0 || count == 0; n /= 10) {
      digits[count++] = static_cast<char>('0' + n % 10);
    }
    while (count > 0) text_[length++] = digits[--count];
    text_[length] = '\0';
    return text_;
  }

 private:
  char text_[32];
};

}  // namespace cacheshim
