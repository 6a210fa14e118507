// SPDX-License-Identifier: Apache-2.0
#include "remote/helper/server.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "store/sys/json_text.h"

namespace cacheshim::remote {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kMostObjectBytes = std::size_t{4} << 30;
constexpr milliseconds kLongestWait{60'000};

const char* to_text(TierError::Kind kind) {
  switch (kind) {
    case TierError::Kind::kFull:
      return "full";
    case TierError::Kind::kRefused:
      return "refused";
    default:
      return "unavailable";
  }
}

// Thrown for a request that does not have the form in wire.h.
struct BadRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string key_of(const json& request) {
  std::string key = request.value("key", "");
  if (!is_valid_key(key)) throw BadRequest("not a valid key");
  return key;
}

milliseconds time_of(const json& request, const char* name) {
  return std::clamp(milliseconds(find_integer(request, name, 0, INT64_MAX, 0)), milliseconds(0),
                    kLongestWait);
}

UniqueFd seal(std::string_view bytes) {
  auto file = make_sealed_file(bytes);
  if (!file) throw TierError(TierError::Kind::kUnavailable, "no memory for the answer");
  return *std::move(file);
}

std::string object_of(const Message& request) {
  auto object = read_sealed_file(request.file.get(), kMostObjectBytes);
  if (!object) throw BadRequest("the request carries no object");
  return *std::move(object);
}

struct Answer {
  json reply = json::object();
  UniqueFd file{};
};

std::size_t limit_of(const json& request) {
  return static_cast<std::size_t>(find_integer(request, "most", 0, INT64_MAX, INT64_MAX));
}

Answer answer_with(const std::optional<std::string>& object) {
  if (!object) return {{{"found", false}}};
  return {{{"found", true}}, seal(*object)};
}

// Acquires the lease, and then gets the object, because the last owner may have stored it just before its lease ended.
Answer claim(RemoteTier& tier, const std::string& key, const std::string& owner,
             const json& request) {
  const auto fence = tier.acquire(key, owner, time_of(request, "ttl_ms"));
  if (!fence) return {};
  std::optional<std::string> object;
  try {
    object = tier.get(key, limit_of(request));
  } catch (const TierError& error) {
    if (error.kind() != TierError::Kind::kRefused) throw;  // the lease expires after ttl_ms
    return {{{"fence", *fence}}};                          // for example, the object is too large
  }
  if (!object) return {{{"fence", *fence}}};
  tier.release(key, owner);
  return answer_with(object);
}

Answer carry_out(RemoteTier& tier, const Message& request) {
  const json& words = request.json;
  const std::string op = words.value("op", "");
  if (op == "keys") {
    const CataloguePage page =
        tier.keys_since(words.value("since", ""),
                        static_cast<std::size_t>(find_integer(words, "most", 1, INT64_MAX, 1000)));
    return {{{"position", page.position}, {"last", page.is_last}}, seal(json(page.keys).dump())};
  }
  const std::string key = key_of(words);
  const std::string owner = words.value("owner", "");
  if (op == "get") return answer_with(tier.get(key, limit_of(words)));
  if (op == "put")
    return {{{"stored", tier.put_if_absent(key, object_of(request)) == PutOutcome::kStored}}};
  if (op == "remove") return {{{"existed", tier.remove(key)}}};
  if (op == "wait") {
    tier.wait(key, time_of(words, "timeout_ms"));
    return {};
  }
  if (op == "claim") return claim(tier, key, owner, words);
  if (op == "renew") return {{{"held", tier.renew(key, owner, time_of(words, "ttl_ms"))}}};
  if (op != "release") throw BadRequest("unknown request '" + op + "'");
  tier.release(key, owner);
  return {};
}

}  // namespace

Server::Server(int socket, MakeTier make_tier)
    : socket_(socket), make_tier_(std::move(make_tier)) {}

void Server::serve() {
  while (auto message = receive_message(socket_)) {
    Pool& pool = message->json.value("op", "") == "wait" ? waiters_ : workers_;
    post(pool, *std::move(message));
  }
}

void Server::post(Pool& pool, Message request) {
  {
    const std::lock_guard lock(mutex_);
    if (pool.queue.size() < kMostQueued) {
      pool.queue.push_back(std::move(request));
      if (pool.idle < pool.queue.size() && pool.threads < pool.most_threads) {
        ++pool.threads;
        std::thread([this, &pool] { work(pool); }).detach();
      }
      pool.wakes.notify_one();
      return;
    }
  }
  reply({{"error", "unavailable"}, {"text", "too many requests are waiting"}}, request);
}

// The threads end with the process: a call into an engine cannot be interrupted.
void Server::work(Pool& pool) {
  const auto tier = make_tier_();
  while (true) {
    Message request;
    {
      std::unique_lock lock(mutex_);
      ++pool.idle;
      pool.wakes.wait(lock, [&] { return !pool.queue.empty(); });
      --pool.idle;
      request = std::move(pool.queue.front());
      pool.queue.pop_front();
    }
    answer(*tier, request);
  }
}

void Server::answer(RemoteTier& tier, const Message& request) const {
  try {
    Answer made = carry_out(tier, request);
    reply(std::move(made.reply), request, made.file.get());
  } catch (const TierError& error) {
    reply({{"error", to_text(error.kind())}, {"text", error.what()}}, request);
  } catch (const std::exception& error) {  // a bad request, a value of the wrong type, or no memory
    reply({{"error", "refused"}, {"text", error.what()}}, request);
  }
}

void Server::reply(json answer, const Message& request, int file) const {
  answer["id"] = request.json.value("id", json());
  // An error needs no handling: if the peer has exited, serve() returns.
  (void)send_message(socket_, answer, file);
}

}  // namespace cacheshim::remote
