// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace cacheshim {

// A trace of those requests of a mount that concern names, opens and locks, and of the replies to them, for `cacheshim
// profile learn`. The daemon writes the trace into memory that it shares with the process that started the daemon. That
// process reads the trace once the daemon has exited.
//
// A record is a TraceRecord and the bytes after it: the first kMostRequest bytes of a request, or the header of a reply
// and the node or file handle that follows. The bytes have the format of the kernel's protocol (linux/fuse.h);
// learn/request_decoder.h reads them.
struct TraceRecord {
  enum Kind : std::uint32_t { kNone, kRequest, kReply };
  Kind kind;
  std::uint32_t size;  // the number of bytes that follow, without the padding to a multiple of 8
};

class RequestTrace {
 public:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMostRequest =
      640;  // two names of 255 bytes, and the structures before them

  // Returns null if there is no memory.
  static std::unique_ptr<RequestTrace> make();
  ~RequestTrace();
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  // Thread-safe. Drops records beyond kBytes.
  void add_request(const char* bytes);
  void add_reply(const iovec* parts, int count);

  // Call these after the daemon has exited.
  std::string_view records() const;
  bool is_full() const;

 private:
  struct Header {
    std::atomic<std::size_t> used;
  };
  explicit RequestTrace(char* memory) : memory_(memory) {}
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  void add(TraceRecord::Kind kind, const iovec* parts, int count, std::size_t most);

  char* const memory_;
};

}  // namespace cacheshim
