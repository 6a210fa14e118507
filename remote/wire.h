// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"

// The messages between a process of cacheshim and its helper `cacheshim-remote`, which speaks to the engine. They go
// through a socket pair of type SOCK_SEQPACKET. A message is a JSON object of at most kMostMessageBytes. It may carry a
// sealed memory file with an object or a list of keys.
//
// The first request is `open`; it has no id. Every other request has an `id`, and its reply has the same `id`. The
// order of the replies may differ from the order of the requests.
//
//   request                                       reply
//   open urls, timeout_ms, secrets                leases: whether the engine has leases
//   get key, most                                 found, and a file with the object if it is true
//   put key, and a file with the object           stored
//   remove key                                    existed
//   claim key, owner, ttl_ms, most                acquires the lease, and then gets the object. If the object exists,
//                                                 releases the lease, and replies as to `get`; otherwise fence. Nothing
//                                                 while another owner holds the lease
//   renew key, owner, ttl_ms                      held
//   release key, owner
//   wait key, timeout_ms
//   keys since, most                              position, last, and a file with a JSON array of keys
//
// A reply to a request that failed has `error` ("unavailable", "full" or "refused") and `text`, one line.
namespace cacheshim::remote {

inline constexpr std::size_t kMostMessageBytes = 65536;

// Whether engines accept the key: 1 to kMostKeyBytes bytes without control characters.
inline constexpr std::size_t kMostKeyBytes = 1024;
bool is_valid_key(std::string_view key);

struct Message {
  nlohmann::json json;
  UniqueFd file;  // empty: the message has none
};

enum class WhenFull { kWait, kFail };
// Sends a message. `file` is only borrowed; -1: none. Thread-safe: several threads may send on one socket. Errors:
// EPIPE if the peer has exited; EMSGSIZE if the message is too long; with WhenFull::kFail, EAGAIN if the socket is
// full; otherwise those of sendmsg(2).
Status send_message(int socket, const nlohmann::json& json, int file = -1,
                    WhenFull when_full = WhenFull::kWait);
// Blocks until a message arrives, and returns it. Errors: EPIPE if the peer has exited; EBADMSG if the message is too
// long or not a JSON object; otherwise those of recvmsg(2).
Result<Message> receive_message(int socket);

// Returns a memory file with these bytes, sealed so that no process can change it (memfd_create(2)).
Result<UniqueFd> make_sealed_file(std::string_view bytes);
// Returns the content of a sealed memory file. Errors: EFBIG if it has more than `most_bytes`; EINVAL if the file is
// not sealed; otherwise those of the system calls.
Result<std::string> read_sealed_file(int file, std::size_t most_bytes);

}  // namespace cacheshim::remote
