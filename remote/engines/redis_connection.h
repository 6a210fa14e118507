// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hiredis/hiredis.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "remote/engines/remote_tier.h"

// A connection of RedisTier, and the replies that it reads. hiredis only parses the replies here. Its own connections
// do not meet the contract of RemoteTier: redisSetTimeout() bounds each read(2), not the whole call; connecting waits
// for the name lookup; and a write to a closed connection raises SIGPIPE.
namespace cacheshim::remote::redis {

using Clock = std::chrono::steady_clock;

inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24);
// The maximum size of a reply, not counting an object or a page of the catalogue in it.
inline constexpr std::size_t kMostReplyBytes = std::size_t{64} << 10;
// The longest array in a reply is a page of the catalogue: a key and a score for each key of the page and for one more.
inline constexpr std::size_t kMostPageKeys = 10'000;
inline constexpr std::size_t kMostElements = 2 * (kMostPageKeys + 1);

// The call of RedisTier that is being served.
struct Call {
  std::string_view action;  // the words after "cannot" in an error
  std::string_view key;     // "" if the action has no key
  const std::string* server;
  Clock::time_point deadline;
};

// Throw a TierError that names the call, its key and the server.
[[noreturn]] void fail(const Call& call, TierError::Kind kind, std::string_view why);
[[noreturn]] void fail(const Call& call, std::string_view what, Errno error);  // kUnavailable
[[noreturn]] void fail_by_type(const Call& call);  // the reply has another type than the command's

struct FreeReply {
  void operator()(redisReply* reply) const { ::freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

bool has_error(const redisReply& reply, std::string_view code);
// Throws if the reply is an error. The message does not contain `secret`.
void check(const Call& call, const redisReply& reply, std::string_view secret = {});
// Return the reply's value. Throw if the reply is an error or has another type; element_of() also if it has too few
// elements. The results point into the reply.
std::string_view text_of(const Call& call, const redisReply& reply);
long long integer_of(const Call& call, const redisReply& reply);
const redisReply& element_of(const Call& call, const redisReply& reply, std::size_t index);

// Appends a command in the form of the Redis protocol.
void append_command(std::string& out, std::initializer_list<std::string_view> arguments);

// Errors: ETIMEDOUT at the deadline, else from socket(2) and connect(2).
Result<UniqueFd> connect_socket(const sockaddr* address, socklen_t length,
                                Clock::time_point deadline);

// A connection to the server. Every function throws TierError (kUnavailable) at the call's deadline; the connection is
// then unusable. Not thread-safe.
class Connection {
 public:
  explicit Connection(UniqueFd socket);

  // Returns whether the connection is open and, unless `may_have_input`, has no unread input.
  bool is_usable(bool may_have_input) const;
  // If the server has closed the connection, returns normally. The next read() then throws, or returns the error reply
  // that the server sent before.
  void send(const Call& call, std::string_view bytes);
  // Returns the next reply. Throws TierError (kUnavailable) if the reply has more than about `most_bytes`.
  Reply read(const Call& call, std::size_t most_bytes = kMostReplyBytes);
  // As read(), but returns null at `end`. The connection is then still usable.
  Reply read_before(const Call& call, Clock::time_point end,
                    std::size_t most_bytes = kMostReplyBytes);

 private:
  struct FreeReader {
    void operator()(redisReader* reader) const { ::redisReaderFree(reader); }
  };

  void receive(const Call& call);

  UniqueFd socket_;
  // hiredis's functions, but with a bounded createArray. The reader refers to them.
  redisReplyObjectFunctions functions_{};
  std::unique_ptr<redisReader, FreeReader> reader_;
  std::size_t received_bytes_ = 0;  // since the last reply
};

}  // namespace cacheshim::remote::redis
