// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "remote/engines/remote_tier.h"

namespace cacheshim::remote {

// The server's address, and how a RedisTier uses the server.
struct RedisOptions {
  std::string host = "127.0.0.1";  // a name or an address
  std::uint16_t port = 6379;
  // If not empty, the path of the server's socket. The host and the port are then not used.
  std::string unix_socket = {};
  std::string user = {};      // "": the server's default user
  std::string password = {};  // "" without a user: no AUTH command
  int database = 0;
  // The beginning of all names on the server. Caches with different prefixes are independent.
  std::string prefix = "cacheshim:";
  std::chrono::milliseconds timeout{5000};  // of each call; greater than 0
};

// The engine for Redis 5 or later and for Valkey. Names on the server:
//   PREFIXo:KEY       string: the object
//   PREFIXl:KEY       string that expires: the lease, "OWNER FENCE"
//   PREFIXfence       the last fencing number, which all keys share
//   PREFIXkeys        sorted set: the catalogue; the score of a key is its position
//   PREFIXsequence    the last score
//   PREFIXw:KEY       pub/sub channel: a message whenever the object was stored or its lease was released
//
// One script, which the server runs atomically, stores an object, numbers it and adds it to the catalogue. Therefore no
// key appears below the position of a page that was returned before. The two counters start at the server's time in
// microseconds, so that they continue to rise if the server loses its data, unless its clock was set back.
//
// The server:
// - It is one primary without TLS. A Redis Cluster works only if it has one node (MOVED is kRefused). A failover can
//   lose the last writes: objects, leases and positions.
// - maxmemory-policy may be noeviction (a full server is then kFull), allkeys-lru or allkeys-lfu. The latter two evict
//   objects and leases, but rarely the catalogue, because every put_if_absent() uses it. allkeys-random may evict the
//   catalogue. The volatile-* policies evict only leases.
// - A user with ACL rules needs ~PREFIX*, &PREFIX* and the commands del, eval, evalsha, exists, get, getrange, incr,
//   pexpire, pttl, publish, script|load, set, strlen, subscribe, time, unlink, unsubscribe, zadd, zrangebyscore and
//   zrem; also select for a database other than 0.
//
// Errors (Redis's error codes): kFull for OOM and MISCONF; kUnavailable for LOADING, BUSY, MASTERDOWN, CLUSTERDOWN,
// TRYAGAIN, NOREPLICAS, too many clients, and all errors of the connection; kRefused for all others, for example
// NOAUTH, WRONGPASS, NOPERM and READONLY. If put_if_absent() throws kUnavailable, it may have stored the object.
//
// The timeout also bounds the name lookup, which a thread runs; a lookup that takes longer goes on in the background,
// at most one per RedisTier. Memory: get() uses about three times the size of the object, put_if_absent() about twice,
// including the caller's copy.
// Source: Redis, "Commands" and "Redis serialization protocol specification" (RESP2).
class RedisTier final : public RemoteTier {
 public:
  // Does not connect: the first call does. If `unix_socket` is too long for an address, every call throws kRefused.
  explicit RedisTier(RedisOptions options);
  ~RedisTier() override;

  std::optional<std::string> get(const std::string& key, std::size_t most_bytes) override;
  PutOutcome put_if_absent(const std::string& key, std::string_view object) override;
  bool remove(const std::string& key) override;

  bool has_leases() const override { return true; }
  // An owner that holds the lease already gets it again, with a new fencing number and `ttl`. An owner whose first
  // request was answered too late can therefore repeat the request.
  std::optional<std::uint64_t> acquire(const std::string& key, const std::string& owner,
                                       std::chrono::milliseconds ttl) override;
  bool renew(const std::string& key, const std::string& owner,
             std::chrono::milliseconds ttl) override;
  void release(const std::string& key, const std::string& owner) override;
  // Also returns when the lease expires, and immediately if the key exists or no owner holds its lease. Throws if the
  // server cannot be reached or ends the connection before `timeout`. Keeps a second connection for later calls.
  void wait(const std::string& key, std::chrono::milliseconds timeout) override;

  // A page has at most 10,000 keys.
  CataloguePage keys_since(const std::string& position, std::size_t most) override;

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace cacheshim::remote
