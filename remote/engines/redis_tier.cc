// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/redis_tier.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <future>
#include <initializer_list>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/printable_text.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "remote/engines/redis_connection.h"

namespace cacheshim::remote {
namespace {

using namespace redis;
using Kind = TierError::Kind;
using std::chrono::milliseconds;

constexpr std::size_t kMostObjectBytes = std::size_t{1} << 40;  // keeps sums of sizes in range
constexpr std::size_t kBytesPerPageKey = 1200;  // a key, its score, and the lengths of both

// ARGV: the operation, the channel of the key, and up to two values for the operation.
// In put(), the commands that a full server or an ACL can refuse come before SET, so an error leaves at most a key
// without an object in the catalogue.
constexpr std::string_view kScript = R"lua(
local object, lease, catalogue, sequence, fence = unpack(KEYS)
local channel = ARGV[2]
local operations = {}

local function next_number(counter)
  local now = redis.call('TIME')
  redis.call('SET', counter, string.format('%s%06d', now[1], now[2]), 'NX')
  return string.format('%.0f', redis.call('INCR', counter))
end

local function holds_lease(owner)
  local held = redis.call('GET', lease)
  return held and string.sub(held, 1, #owner + 1) == owner .. ' '
end

function operations.is_empty()
  return redis.call('EXISTS', object) == 1 and redis.call('STRLEN', object) == 0 and 1 or 0
end

function operations.put(key, bytes)
  if redis.call('EXISTS', object) == 1 then return 0 end
  local position = next_number(sequence)
  redis.call('PUBLISH', channel, 'stored')
  redis.call('ZADD', catalogue, position, key)
  redis.call('SET', object, bytes)
  return 1
end

function operations.remove(key)
  redis.call('ZREM', catalogue, key)
  return redis.call('UNLINK', object)
end

function operations.acquire(owner, ttl_ms)
  if redis.call('EXISTS', lease) == 1 and not holds_lease(owner) then return false end
  local number = next_number(fence)
  redis.call('SET', lease, owner .. ' ' .. number, 'PX', ttl_ms)
  return number
end

function operations.renew(owner, ttl_ms)
  if not holds_lease(owner) then return 0 end
  return redis.call('PEXPIRE', lease, ttl_ms)
end

function operations.release(owner)
  if not holds_lease(owner) then return 0 end
  redis.call('PUBLISH', channel, 'released')
  return redis.call('DEL', lease)
end

return operations[ARGV[1]](ARGV[3], ARGV[4])
)lua";

// All names of one key on the server.
struct Names {
  std::string object, lease, catalogue, sequence, fence, channel;
};

// A score is a double that holds an integer: Redis may write it as "1.76e+15".
std::string position_of(const Call& call, std::string_view score) {
  double number = -1;
  (void)std::from_chars(score.data(), score.data() + score.size(), number);
  if (!(number >= 0 && number < 9e15)) fail_by_type(call);
  return std::to_string(static_cast<std::uint64_t>(number));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;
struct Lookup {
  int error = 0;  // EAI_*, or 0
  Addresses addresses = {};
};

Lookup look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return {error, Addresses(error == 0 ? list : nullptr)};
}

std::string server_name(const RedisOptions& options) {
  return printable(options.unix_socket.empty() ? fmt::format("{}:{}", options.host, options.port)
                                               : options.unix_socket);
}

}  // namespace

// The connections of a RedisTier. A connection that has failed is closed; the next call connects again.
class RedisTier::Session {
 public:
  explicit Session(RedisOptions options)
      : options_(std::move(options)), server_(server_name(options_)) {}

  Call begin(std::string_view action, std::string_view key) const {
    return {action, key, &server_, Clock::now() + options_.timeout};
  }

  Names names_of(std::string_view key) const {
    const std::string& prefix = options_.prefix;
    return {fmt::format("{}o:{}", prefix, key),
            fmt::format("{}l:{}", prefix, key),
            prefix + "keys",
            prefix + "sequence",
            prefix + "fence",
            fmt::format("{}w:{}", prefix, key)};
  }

  // Sends the commands, and returns their replies. Each reply may have about `most_bytes`. First replaces an idle
  // connection that the server has closed. Sends nothing twice, because the server may have executed the command.
  std::vector<Reply> exchange(
      const Call& call, std::initializer_list<std::initializer_list<std::string_view>> commands,
      std::size_t most_bytes = kMostReplyBytes) {
    std::unique_ptr<Connection> connection = std::move(main_);
    if (!connection || !connection->is_usable(false)) connection = connect(call, true);
    std::string bytes;
    for (const auto& command : commands) append_command(bytes, command);
    connection->send(call, bytes);
    std::vector<Reply> replies;
    for (std::size_t i = 0; i < commands.size(); ++i)
      replies.push_back(connection->read(call, most_bytes));
    main_ = std::move(connection);
    return replies;
  }

  Reply run_script(const Call& call, std::string_view operation, std::string_view one,
                   std::string_view two = "") {
    const Names names = names_of(call.key);
    const auto run = [&](std::string_view command, std::string_view script) {
      return std::move(
          exchange(call, {{command, script, "5", names.object, names.lease, names.catalogue,
                           names.sequence, names.fence, operation, names.channel, one, two}})
              .front());
    };
    Reply reply = script_digest_.empty() ? run("EVAL", kScript) : run("EVALSHA", script_digest_);
    if (has_error(*reply, "NOSCRIPT ")) reply = run("EVAL", kScript);
    check(call, *reply);
    return reply;
  }

  // Returns at the next event of the key (RedisTier::wait()), or at `end`. Messages that the server sent before the
  // subscription are lost, but time_to_event() finds the object or the released lease.
  void wait_until(std::string_view key, Clock::time_point end) {
    const auto begin_step = [&] {
      Call call = begin("wait for", key);
      call.deadline = std::min(call.deadline, end);
      return call;
    };
    std::unique_ptr<Connection> connection = subscribe(begin_step(), names_of(key).channel);
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      const Call call = begin_step();
      const auto left = time_to_event(call);
      if (!left || connection->read_before(call, std::min(end, now + *left))) break;
    }
    end_subscription(begin_step(), std::move(connection));
  }

 private:
  std::unique_ptr<Connection> connect(const Call& call, bool runs_scripts) {
    auto connection = std::make_unique<Connection>(
        options_.unix_socket.empty() ? connect_to_host(call) : connect_to_path(call));
    const bool has_credentials = !options_.user.empty() || !options_.password.empty();
    const bool selects = runs_scripts && options_.database != 0;
    std::string bytes;
    if (has_credentials && options_.user.empty())
      append_command(bytes, {"AUTH", options_.password});
    if (!options_.user.empty()) append_command(bytes, {"AUTH", options_.user, options_.password});
    if (selects) append_command(bytes, {"SELECT", std::to_string(options_.database)});
    if (runs_scripts) append_command(bytes, {"SCRIPT", "LOAD", kScript});
    connection->send(call, bytes);
    if (has_credentials) check(call, *connection->read(call), options_.password);
    if (selects) check(call, *connection->read(call));
    if (runs_scripts) script_digest_ = text_of(call, *connection->read(call));
    return connection;
  }

  // Returns how long a waiting process has to wait if no message arrives: until the lease expires. Returns nothing if
  // the key exists or no owner holds its lease.
  std::optional<milliseconds> time_to_event(const Call& call) {
    const Names names = names_of(call.key);
    const auto replies = exchange(call, {{"EXISTS", names.object}, {"PTTL", names.lease}});
    const bool exists = integer_of(call, *replies[0]) != 0;
    const long long ttl_ms = integer_of(call, *replies[1]);  // -2: no lease; -1: it does not expire
    if (exists || ttl_ms < -1) return std::nullopt;
    return ttl_ms == -1 ? kLongestWait
                        : std::min(milliseconds(ttl_ms) + milliseconds(1), kLongestWait);
  }

  // Returns a connection with a confirmed subscription to the channel. Pass it to end_subscription() afterwards.
  std::unique_ptr<Connection> subscribe(const Call& call, const std::string& channel) {
    std::unique_ptr<Connection> connection = std::move(subscriber_);
    if (!connection || !connection->is_usable(true)) connection = connect(call, false);
    std::string bytes;
    append_command(bytes, {"SUBSCRIBE", channel});
    connection->send(call, bytes);
    // Replies for the previous channel may come first.
    while (text_of(call, element_of(call, *connection->read(call), 0)) != "subscribe") continue;
    return connection;
  }

  void end_subscription(const Call& call, std::unique_ptr<Connection> connection) {
    std::string bytes;
    append_command(bytes, {"UNSUBSCRIBE"});
    connection->send(call, bytes);
    subscriber_ = std::move(connection);
  }

  UniqueFd connect_to_path(const Call& call) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options_.unix_socket.size() >= sizeof address.sun_path)
      fail(call, Kind::kRefused, "the socket's path is too long");
    options_.unix_socket.copy(address.sun_path, sizeof address.sun_path - 1);
    auto socket =
        connect_socket(reinterpret_cast<const sockaddr*>(&address), sizeof address, call.deadline);
    if (!socket) fail(call, "cannot connect", socket.error());
    return *std::move(socket);
  }

  // Tries all addresses of the host. Each gets an equal share of the time that is left.
  UniqueFd connect_to_host(const Call& call) {
    const Addresses addresses = look_up_host(call);
    int left = 0;
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) ++left;
    Errno error(EADDRNOTAVAIL);
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next, --left) {
      const auto now = Clock::now();
      auto socket = connect_socket(at->ai_addr, at->ai_addrlen, now + (call.deadline - now) / left);
      if (!socket) {
        error = socket.error();
        continue;
      }
      const int on = 1;  // a failure costs only latency
      (void)::setsockopt(socket->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return *std::move(socket);
    }
    fail(call, "cannot connect", error);
  }

  // getaddrinfo(3) has no timeout and cannot be canceled, so a thread runs it. The next call uses the result of a
  // lookup that was too late for this call.
  Addresses look_up_host(const Call& call) {
    if (!pending_lookup_.valid()) {
      std::packaged_task<Lookup()> task(
          [host = options_.host, port = options_.port] { return look_up(host, port); });
      pending_lookup_ = task.get_future();
      try {
        std::thread(std::move(task)).detach();
      } catch (const std::system_error& error) {
        pending_lookup_ = {};
        fail(call, "cannot start a thread for the name lookup", Errno(error.code().value()));
      }
    }
    if (pending_lookup_.wait_until(call.deadline) != std::future_status::ready)
      fail(call, Kind::kUnavailable, "the name lookup takes too long");
    Lookup lookup = pending_lookup_.get();
    if (lookup.error != 0)
      fail(call, Kind::kUnavailable,
           fmt::format("cannot look up the host: {}", ::gai_strerror(lookup.error)));
    return std::move(lookup.addresses);
  }

  const RedisOptions options_;
  const std::string server_;
  std::string script_digest_;  // as the server computes it; "" before the first connection
  std::future<Lookup> pending_lookup_;
  std::unique_ptr<Connection> main_;        // null, or idle between two calls
  std::unique_ptr<Connection> subscriber_;  // null, or without a subscription
};

RedisTier::RedisTier(RedisOptions options)
    : session_(std::make_unique<Session>(std::move(options))) {}
RedisTier::~RedisTier() = default;

// GETRANGE transfers at most one byte more than allowed, which shows that the object is too large. It returns "" for an
// empty object and for an absent key. These need a second request, except when EXISTS finds no key.
// - A script that runs GETRANGE would need no second request, but takes four times as long for an object of 64 MiB,
//   during which the server answers no other client.
// - A transaction would not need a second request either, but a full server refuses all commands after MULTI.
std::optional<std::string> RedisTier::get(const std::string& key, std::size_t most_bytes) {
  const Call call = session_->begin("read", key);
  const std::string name = session_->names_of(key).object;
  const std::size_t most = std::min(most_bytes, kMostObjectBytes);
  const auto replies =
      session_->exchange(call, {{"GETRANGE", name, "0", std::to_string(most)}, {"EXISTS", name}},
                         most + kMostReplyBytes);
  const std::string_view object = text_of(call, *replies[0]);
  if (object.size() > most)
    fail(call, Kind::kRefused, fmt::format("the object has more than {} bytes", most));
  if (!object.empty()) return std::string(object);
  if (integer_of(call, *replies[1]) == 0) return std::nullopt;
  // If the key does not hold an empty object now, then it was absent at some time during this call.
  const Reply is_empty = session_->run_script(call, "is_empty", "");
  return integer_of(call, *is_empty) == 1 ? std::optional<std::string>("") : std::nullopt;
}

PutOutcome RedisTier::put_if_absent(const std::string& key, std::string_view object) {
  const Call call = session_->begin("store", key);
  const Reply reply = session_->run_script(call, "put", key, object);
  return integer_of(call, *reply) == 1 ? PutOutcome::kStored : PutOutcome::kExists;
}

bool RedisTier::remove(const std::string& key) {
  const Call call = session_->begin("remove", key);
  return integer_of(call, *session_->run_script(call, "remove", key)) == 1;
}

std::optional<std::uint64_t> RedisTier::acquire(const std::string& key, const std::string& owner,
                                                milliseconds ttl) {
  const Call call = session_->begin("acquire the lease of", key);
  const Reply reply = session_->run_script(call, "acquire", owner,
                                           std::to_string(std::max(ttl, milliseconds(1)).count()));
  if (reply->type == REDIS_REPLY_NIL) return std::nullopt;
  const std::string_view text = text_of(call, *reply);
  std::uint64_t fence = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), fence).ec != std::errc())
    fail_by_type(call);
  return fence;
}

bool RedisTier::renew(const std::string& key, const std::string& owner, milliseconds ttl) {
  const Call call = session_->begin("renew the lease of", key);
  const std::string ttl_ms = std::to_string(std::max(ttl, milliseconds(1)).count());
  return integer_of(call, *session_->run_script(call, "renew", owner, ttl_ms)) == 1;
}

void RedisTier::release(const std::string& key, const std::string& owner) {
  const Call call = session_->begin("release the lease of", key);
  (void)session_->run_script(call, "release", owner);  // 0: the owner did not hold the lease
}

void RedisTier::wait(const std::string& key, milliseconds timeout) {
  const auto end = Clock::now() + std::min(timeout, kLongestWait);
  try {
    if (timeout > milliseconds::zero()) session_->wait_until(key, end);
  } catch (const TierError&) {
    // A server that did not answer within the whole `timeout` is no error here. The next call reports it.
    if (Clock::now() < end) throw;
  }
}

CataloguePage RedisTier::keys_since(const std::string& position, std::size_t most) {
  const Call call = session_->begin("list the keys", "");
  if (position.find_first_not_of("0123456789") != std::string::npos)
    fail(call, Kind::kRefused, fmt::format("'{}' is not a position", printable(position)));
  const std::size_t wanted = std::clamp<std::size_t>(most, 1, kMostPageKeys);
  // One key more than wanted shows whether this page is the last.
  const auto replies =
      session_->exchange(call,
                         {{"ZRANGEBYSCORE", session_->names_of("").catalogue,
                           position.empty() ? "-inf" : "(" + position, "+inf", "WITHSCORES",
                           "LIMIT", "0", std::to_string(wanted + 1)}},
                         kMostReplyBytes + wanted * kBytesPerPageKey);
  const redisReply& found = *replies.front();
  check(call, found);
  if (found.type != REDIS_REPLY_ARRAY) fail_by_type(call);
  const std::size_t count = found.elements / 2;
  CataloguePage page{{}, position, count <= wanted};
  for (std::size_t i = 0; i < std::min(count, wanted); ++i) {
    page.keys.emplace_back(text_of(call, element_of(call, found, 2 * i)));
    page.position = position_of(call, text_of(call, element_of(call, found, 2 * i + 1)));
  }
  return page;
}

}  // namespace cacheshim::remote
