// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/request_trace.h"

#include <linux/fuse.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace cacheshim {
namespace {

constexpr std::size_t kStart = 64;  // the offset of the first record, after the header

bool is_traced(std::uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP:
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
    case FUSE_LINK:
    case FUSE_CREATE:
    case FUSE_OPEN:
    case FUSE_RELEASE:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_SETLK:
    case FUSE_SETLKW:
      return true;
    default:
      return false;
  }
}

// Replies to traced requests have one of these sizes. Replies to other requests may have them too; the reader of the
// trace skips those.
bool is_traced_reply(std::size_t size) {
  return size == 0 || size == sizeof(fuse_open_out) || size == sizeof(fuse_entry_out) ||
         size == sizeof(fuse_entry_out) + sizeof(fuse_open_out);
}

}  // namespace

std::unique_ptr<RequestTrace> RequestTrace::make() {
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<RequestTrace>(new RequestTrace(static_cast<char*>(memory)));
}

RequestTrace::~RequestTrace() { (void)::munmap(memory_, kBytes); }

void RequestTrace::add(TraceRecord::Kind kind, const iovec* parts, int count, std::size_t most) {
  std::size_t size = 0;
  for (int i = 0; i < count; ++i) size += parts[i].iov_len;
  size = std::min(size, most);
  const std::size_t whole = (sizeof(TraceRecord) + size + 7) / 8 * 8;
  const std::size_t at = header().used.fetch_add(whole, std::memory_order_relaxed);
  if (at > kBytes - kStart - whole) return;
  const TraceRecord record{kind, static_cast<std::uint32_t>(size)};
  char* to = memory_ + kStart + at;
  std::memcpy(to, &record, sizeof record);
  to += sizeof record;
  for (int i = 0; i < count && size > 0; ++i) {
    const std::size_t part = std::min(size, parts[i].iov_len);
    std::memcpy(to, parts[i].iov_base, part);
    to += part;
    size -= part;
  }
}

void RequestTrace::add_request(const char* bytes) {
  fuse_in_header in;
  std::memcpy(&in, bytes, sizeof in);
  if (!is_traced(in.opcode)) return;
  const iovec part{const_cast<char*>(bytes), in.len};
  add(TraceRecord::kRequest, &part, 1, kMostRequest);
}

void RequestTrace::add_reply(const iovec* parts, int count) {
  fuse_out_header out;
  if (count == 0 || parts[0].iov_len != sizeof out) return;
  std::memcpy(&out, parts[0].iov_base, sizeof out);
  if (out.unique == 0 || !is_traced_reply(out.len - sizeof out)) return;
  add(TraceRecord::kReply, parts, count, sizeof out + sizeof(std::uint64_t));
}

std::string_view RequestTrace::records() const {
  return {memory_ + kStart, std::min(header().used.load(), kBytes - kStart)};
}

bool RequestTrace::is_full() const { return header().used.load() > kBytes - kStart; }

}  // namespace cacheshim
