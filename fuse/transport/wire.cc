// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/wire.h"

#include <linux/fuse.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "fuse/transport/request_source.h"
#include "fuse/transport/request_trace.h"
#include "store/sys/user_credentials.h"
#include "store/threads/lock_ranks.h"

namespace cacheshim::wire {
namespace {

// Older kernel headers lack these constants.
constexpr std::uint32_t kPassthroughInFlags2 = 1U << 5;  // FUSE_PASSTHROUGH, 1 << 37
constexpr std::uint32_t kFopenPassthrough = 1U << 7;     // FOPEN_PASSTHROUGH
constexpr std::uint32_t kFlagsGoOn = 1U << 30;           // FUSE_INIT_EXT
constexpr std::uint32_t kKillSetIdsV2 = 1U << 28;        // FUSE_HANDLE_KILLPRIV_V2
constexpr std::uint32_t kWriteKills = 1U << 2;           // FUSE_WRITE_KILL_SUIDGID
constexpr std::uint32_t kSetattrKills = 1U << 11;        // FATTR_KILL_SUIDGID
// A backing file must not itself be on a stacked file system. Other file systems may be stacked on
// the mount.
constexpr std::uint32_t kStackDepth = 1;

struct BackingMap {
  std::int32_t fd;
  std::uint32_t flags;
  std::uint64_t padding;
};
constexpr unsigned long kBackingOpen = _IOW(229, 1, BackingMap);
constexpr unsigned long kBackingClose = _IOW(229, 2, std::uint32_t);

struct InitIn {  // the beginning of fuse_init_in; older headers lack `flags2`
  std::uint32_t major, minor, max_readahead, flags, flags2;
};
struct InitOut {
  std::uint32_t major, minor, max_readahead, flags;
  std::uint16_t max_background, congestion_threshold;
  std::uint32_t max_write, time_granularity;
  std::uint16_t max_pages, map_alignment;
  std::uint32_t flags2, max_stack_depth;
};
struct OpenOut {
  std::uint64_t fh;
  std::uint32_t open_flags;
  std::uint32_t backing_id;
};

struct Request {
  const char* bytes = nullptr;
  std::uint32_t init_flags = 0;
  std::uint32_t init_flags2 = 0;
  std::uint32_t backing_id = 0;
};
thread_local Request request;
std::span<const std::unique_ptr<RequestSource>> sources;
RequestTrace* trace = nullptr;

const fuse_in_header& header() { return *reinterpret_cast<const fuse_in_header*>(request.bytes); }

template <class Body>
Body body() {
  Body copied;
  std::memcpy(&copied, request.bytes + sizeof(fuse_in_header), sizeof copied);
  return copied;
}

bool is_of(std::uint32_t opcode) { return request.bytes != nullptr && header().opcode == opcode; }

std::uint32_t flags2_of_sources() {
  std::uint32_t flags2 = 0;
  for (const auto& source : sources) flags2 |= source->init_flags2();
  return flags2;
}

// Call after the reply to FUSE_INIT has been sent: from then on, the kernel holds requests back until these sources are
// started.
void start_agreed_sources() {
  for (const auto& source : sources) {
    if ((request.init_flags2 & source->init_flags2()) != 0) source->start();
  }
}

template <class Body, class Change>
void patch(char* at, Change&& change) {
  Body reply;
  std::memcpy(&reply, at, sizeof reply);
  change(reply);
  std::memcpy(at, &reply, sizeof reply);
}

void patch_init(const iovec& payload) {
  if (payload.iov_len < sizeof(InitOut)) return;
  patch<InitOut>(static_cast<char*>(payload.iov_base), [](InitOut& out) {
    out.flags |= request.init_flags;
    out.flags2 |= request.init_flags2;
    if ((request.init_flags2 & kPassthroughInFlags2) != 0) out.max_stack_depth = kStackDepth;
  });
}

// Changes the fuse_open_out at the end of the answer. In the answer to a FUSE_CREATE, a fuse_entry_out precedes it.
void patch_open(const iovec& payload) {
  if (payload.iov_len < sizeof(OpenOut)) return;
  char* const end = static_cast<char*>(payload.iov_base) + payload.iov_len;
  patch<OpenOut>(end - sizeof(OpenOut), [](OpenOut& out) {
    out.open_flags |= kFopenPassthrough;
    out.backing_id = request.backing_id;
  });
}

bool answers_request(const iovec* parts, int count) {
  fuse_out_header out;
  if (count != 2 || parts[0].iov_len != sizeof out || request.bytes == nullptr) return false;
  std::memcpy(&out, parts[0].iov_base, sizeof out);
  return out.error == 0 && out.unique == header().unique;
}

// In a traced mount, the kernel must not cache ENOENT, because it would then answer the next lookup itself. Without
// that lookup, the trace could not distinguish a program's stat of an absent name from the lookup before the call that
// creates the name.
void expire_miss(const iovec* parts, int count) {
  if (!answers_request(parts, count) || header().opcode != FUSE_LOOKUP) return;
  if (parts[1].iov_len != sizeof(fuse_entry_out)) return;
  patch<fuse_entry_out>(static_cast<char*>(parts[1].iov_base), [](fuse_entry_out& entry) {
    if (entry.nodeid == 0) entry.entry_valid = entry.entry_valid_nsec = 0;
  });
}

ssize_t send_by_source(const iovec* parts, int count) {
  for (const auto& source : sources) {
    if (const auto sent = source->reply(parts, count)) return *sent;
  }
  errno = ENOTCONN;
  return -1;
}

}  // namespace

void use_sources(std::span<const std::unique_ptr<RequestSource>> of_session) {
  sources = of_session;
}

void use_trace(RequestTrace* of_mount) { trace = of_mount; }

void begin_request(const char* bytes) {
  request = Request{.bytes = bytes};
  if (trace != nullptr && bytes != nullptr) trace->add_request(bytes);
}

ssize_t send(int /*device*/, iovec* parts, int count, void* /*userdata*/) {
  require_no_lock();
  if (trace != nullptr) {
    expire_miss(parts, count);
    trace->add_reply(parts, count);
  }
  const bool has_additions = request.init_flags != 0 || request.backing_id != 0;
  const bool is_answer = has_additions && answers_request(parts, count);
  const bool is_init = is_answer && header().opcode == FUSE_INIT;
  if (is_init) {
    patch_init(parts[1]);
  } else if (is_answer && request.backing_id != 0) {
    patch_open(parts[1]);
  }
  const ssize_t sent = send_by_source(parts, count);
  if (is_init && sent > 0) start_agreed_sources();
  return sent;
}

std::array<std::uint64_t, 2> nodes() {
  const std::uint64_t first = header().nodeid;
  switch (header().opcode) {
    case FUSE_RENAME:
    case FUSE_RENAME2:
      return {first, body<fuse_rename_in>().newdir};
    case FUSE_LINK:
      return {first, body<fuse_link_in>().oldnodeid};
    case FUSE_COPY_FILE_RANGE:
      return {first, body<fuse_copy_file_range_in>().nodeid_out};
    default:
      return {first, first};
  }
}

void refuse(int error) {
  fuse_out_header out{sizeof out, -error, header().unique};
  iovec part{&out, sizeof out};
  (void)send(-1, &part, 1, nullptr);  // fails if the kernel has withdrawn the request
}

char* reply_space(std::size_t size) {
  for (const auto& source : sources) {
    if (char* const space = source->reply_space(size)) return space;
  }
  return nullptr;
}

Connection connect(bool pass_through) {
  if (!is_of(FUSE_INIT)) return {};
  const bool goes_on = header().len >= sizeof(fuse_in_header) + sizeof(InitIn);
  const auto offered =
      body<InitIn>();  // an older kernel sends less; the fields that it omits are not used
  request.init_flags = offered.flags & (FUSE_PARALLEL_DIROPS | kKillSetIdsV2);
  if (!goes_on || (offered.flags & kFlagsGoOn) == 0) return {};
  const std::uint32_t wanted = (pass_through ? kPassthroughInFlags2 : 0) | flags2_of_sources();
  request.init_flags2 = offered.flags2 & wanted;
  if (request.init_flags2 != 0) request.init_flags |= kFlagsGoOn;
  return {.can_pass_through = (request.init_flags2 & kPassthroughInFlags2) != 0,
          .uses_io_uring = (request.init_flags2 & kOverIoUringInFlags2) != 0};
}

bool kills_set_ids() {
  if (is_of(FUSE_WRITE)) return (body<fuse_write_in>().write_flags & kWriteKills) != 0;
  if (is_of(FUSE_SETATTR)) return (body<fuse_setattr_in>().valid & kSetattrKills) != 0;
  return false;
}

pid_t lock_process() {
  if (!is_of(FUSE_SETLK) && !is_of(FUSE_SETLKW) && !is_of(FUSE_GETLK)) return 0;
  return static_cast<pid_t>(body<fuse_lk_in>().lk.pid);
}

void pass_through(std::uint32_t backing_id) { request.backing_id = backing_id; }

// The kernel writes a backing file with the credentials of the thread that has registered it. UserCredentials keeps
// these writes out of the blocks that are reserved for root.
std::uint32_t register_backing(int device, int fd) {
  const UserCredentials credentials(fd);
  BackingMap map{.fd = fd, .flags = 0, .padding = 0};
  const int id = ::ioctl(device, kBackingOpen, &map);
  return id > 0 ? static_cast<std::uint32_t>(id) : 0;
}

void release_backing(int device, std::uint32_t backing_id) {
  (void)::ioctl(device, kBackingClose, &backing_id);  // fails only for an unknown id
}

}  // namespace cacheshim::wire
