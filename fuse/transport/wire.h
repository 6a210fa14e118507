// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

// The parts of the kernel's protocol that libfuse 3.14 does not pass on: read from the requests and
// written into the replies. Source: linux/fuse.h of kernel 6.14, whose names are used below.
//
// Each thread handles one request at a time, from begin_request() to its reply, if it is the one
// that replies; the functions below concern that request.
namespace cacheshim {
class RequestTrace;
class RingLoop;
}

namespace cacheshim::wire {

// Call when a request has been read completely: `bytes` must stay until it has been handled.
// nullptr: a request that the kernel has not sent, and for which no function below is called.
void begin_request(const char* bytes);
// Replies to the request with this errno value, in libfuse's place.
void refuse(int fd, int error);
// The nodes that the request names: that of its header, and the second one of a rename, link or
// copy, otherwise the first again.
std::array<std::uint64_t, 2> nodes();
// Sends answers to requests of rings there, and not to the device. Call before there are requests,
// and with nullptr when they have ended.
void use_rings(RingLoop* rings);
// Adds requests and replies to the trace. Call before there are requests.
void use_trace(RequestTrace* trace);
// Has the contract of fuse_custom_io::writev: every reply and notification passes here.
ssize_t send(int fd, iovec* parts, int count, void* userdata);

// ---- FUSE_INIT
struct Connection {
  bool can_pass_through = false;
  bool is_by_rings = false;
};
// Accepts the kernel's features that we need: parallel lookups in a directory (which 3.14 assumes
// and does not request), set-id bits that we must clear on a write, requests through rings, if
// there are any, and, if `pass_through`, reads and writes that bypass the daemon.
Connection connect(bool pass_through);

// ---- FUSE_WRITE, FUSE_SETATTR of a size: the caller may not leave set-id bits and capabilities.
bool kills_set_ids();

// ---- FUSE_SETLK and its kind: the process that asks, its own id and not that of a thread, as the
// daemon sees it; 0 for an unlock, and for a process outside of its pid namespace.
pid_t lock_process();

// ---- FUSE_OPEN, FUSE_CREATE: the kernel reads and writes this backing file itself.
void pass_through(std::uint32_t backing_id);

// Registers a file that the kernel shall read and write by itself, from an open descriptor of it.
// Needs CAP_SYS_ADMIN in the initial user namespace. Returns 0 if that is impossible; ELOOP: the
// file system is itself stacked on others.
std::uint32_t register_backing(int device, int fd);
void release_backing(int device, std::uint32_t backing_id);

}  // namespace cacheshim::wire
