// SPDX-License-Identifier: Apache-2.0
#include "common/names.h"

namespace cacheshim {
namespace {

// Appends to a buffer of fixed size and records an overflow.
class Writer {
 public:
  Writer(char* out, std::size_t capacity) : out_(out), capacity_(capacity) {}

  void put(char c) {
    if (length_ < capacity_) {
      out_[length_++] = c;
    } else {
      overflow_ = true;
    }
  }
  void put_escaped(char c) {
    constexpr const char* kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    put('\\');
    put('x');
    put(kHex[byte >> 4]);
    put(kHex[byte & 15]);
  }
  std::size_t finish() const { return overflow_ ? 0 : length_; }

 private:
  char* out_;
  std::size_t capacity_;
  std::size_t length_ = 0;
  bool overflow_ = false;
};

}  // namespace

std::size_t escape_mount_path(std::string_view path, char* out, std::size_t capacity) {
  const char* at = path.data();
  const char* end = at + path.size();
  while (at != end && *at == '/') ++at;
  while (end != at && end[-1] == '/') --end;
  Writer writer(out, capacity);
  if (at == end) writer.put('-');  // the root directory, as systemd-escape --path names it
  for (const char* first = at; at != end; ++at) {
    const bool low = static_cast<unsigned char>(*at) < 0x21;
    if (*at == '/') {
      writer.put('-');
    } else if (low || *at == '-' || *at == '\\' || (*at == '.' && at == first)) {
      writer.put_escaped(*at);
    } else {
      writer.put(*at);
    }
  }
  return writer.finish();
}

}  // namespace cacheshim
