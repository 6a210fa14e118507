// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

// Handles the parts of the kernel's protocol that libfuse 3.14 does not pass on: reads them from
// requests, and writes them into replies. Source of the protocol and of the names below: linux/fuse.h
// of kernel 6.14.
//
// The functions below concern the request for which the calling thread last called begin_request().
// A thread handles one request at a time. The functions have no effect on a reply that another
// thread sends.
namespace cacheshim {
class RequestSource;
class RequestTrace;
}

namespace cacheshim::wire {

// Call when a request has been read completely. `bytes` must remain valid until the request has been
// handled. Pass nullptr for a request that the daemon itself has made; do not call the functions
// below for such a request.
void begin_request(const char* bytes);
// Replies to the request with this errno value, without libfuse.
void refuse(int error);
// As RequestSource::reply_space().
char* reply_space(std::size_t size);
// Returns the nodes that the request names: the one in its header, and the second node of a rename, link or copy. For
// other requests, both elements are the node in the header.
std::array<std::uint64_t, 2> nodes();
// Makes send() offer each reply to these sources (see RequestSources). Call before the first request, and again, with
// no sources, after the last reply.
void use_sources(std::span<const std::unique_ptr<RequestSource>> sources);
// Adds requests and replies to the trace. Call before the first request.
void use_trace(RequestTrace* trace);
// Implements fuse_custom_io::writev: libfuse sends all replies and notifications through this function, except replies
// whose data are sent by splice(2). After the reply to FUSE_INIT, starts the sources on whose flags kernel and daemon
// have agreed.
ssize_t send(int device, iovec* parts, int count, void* userdata);

// ---- FUSE_INIT
inline constexpr std::uint32_t kOverIoUringInFlags2 = 1U << 9;  // FUSE_OVER_IO_URING, 1 << 41
struct Connection {
  bool can_pass_through = false;
  bool uses_io_uring = false;
};
// Accepts the kernel's features that the daemon needs: parallel lookups in a directory (which libfuse 3.14 assumes but
// does not request), the duty to clear set-id bits on a write, the flags that the sources need
// (RequestSource::init_flags2), and, if `pass_through`, reads and writes that bypass the daemon.
Connection connect(bool pass_through);

// ---- FUSE_WRITE, and FUSE_SETATTR that changes the size: whether the daemon must clear set-id bits and capabilities.
bool kills_set_ids();

// ---- FUSE_SETLK, FUSE_SETLKW: the id of the calling process (not of its thread) in the daemon's
// PID namespace; 0 for an unlock, and for a process outside this namespace. The kernel sends 0 with
// FUSE_GETLK.
pid_t lock_process();

// ---- FUSE_OPEN, FUSE_CREATE: makes the kernel read and write this backing file itself.
void pass_through(std::uint32_t backing_id);

// Registers a backing file, open as `fd`, for the kernel to read and write without the daemon. Needs CAP_SYS_ADMIN in
// the initial user namespace. Returns the id of the backing file, or 0 if the kernel refuses it, for example because
// its file system is itself stacked on others (ELOOP).
std::uint32_t register_backing(int device, int fd);
void release_backing(int device, std::uint32_t backing_id);

}  // namespace cacheshim::wire
