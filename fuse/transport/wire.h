// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

// What of the kernel's protocol libfuse 3.14 does not pass on, read from the requests and put into the
// replies as they go by. Source: linux/fuse.h of kernel 6.14, whose names those below are.
//
// Each thread handles one request at a time, from begin_request() to its reply, if it is the one that
// replies; what is asked for below concerns that request.
namespace cacheshim {
class RequestTrace;
class RingLoop;
}

namespace cacheshim::wire {

// A request has been read whole: `bytes` must stay until it has been handled. nullptr: it is one that the
// kernel has not sent, and nothing is asked of it.
void begin_request(const char* bytes);
// Answers to requests that came by rings go there, and not to the device. To be called before there are
// requests, and with nullptr when they have ended.
void use_rings(RingLoop* rings);
// Requests and replies are added to the trace. To be called before there are requests.
void use_trace(RequestTrace* trace);
// As fuse_custom_io::writev: the way of every reply and notice.
ssize_t send(int fd, iovec* parts, int count, void* userdata);

// ---- FUSE_INIT
struct Connection {
  bool can_pass_through = false;
  bool is_by_rings = false;
};
// Takes up what the kernel offers and we want: folders looked up in by several threads at once (which
// 3.14 takes for granted and does not ask for), set-id bits that are ours to clear on a write, requests by
// rings, if there are any, and, where `pass_through`, reads and writes that go past us.
Connection connect(bool pass_through);

// ---- FUSE_WRITE, FUSE_SETATTR of a size: the caller may not leave set-id bits and capabilities.
bool kills_set_ids();

// ---- FUSE_SETLK and its kind: the process that asks, its own id and not that of a thread, as the
// daemon sees it; 0 for an unlock, and for a process outside of its pid namespace.
pid_t lock_process();

// ---- FUSE_OPEN, FUSE_CREATE: the kernel reads and writes this backing file itself.
void pass_through(std::uint32_t backing_id);

// A file that the kernel is to read and write by itself, from an open descriptor of it. Needs
// CAP_SYS_ADMIN in the initial user namespace. 0 where that cannot be; ELOOP: the file system is
// stacked on others itself.
std::uint32_t register_backing(int device, int fd);
void release_backing(int device, std::uint32_t backing_id);

}  // namespace cacheshim::wire
