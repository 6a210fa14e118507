// SPDX-License-Identifier: Apache-2.0
#include "remote/async_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <utility>

#include "store/sys/json_text.h"
#include "store/threads/guard.h"

namespace cacheshim::remote {
namespace {

constexpr std::chrono::milliseconds kPoll{100};  // how often call() checks whether to stop waiting

RemoteError helper_has_ended() {
  return {RemoteError::Kind::kUnavailable, "cacheshim-remote has ended"};
}

RemoteError not_understood() {
  return {RemoteError::Kind::kUnavailable, "cacheshim-remote sent what is no reply"};
}

std::variant<HelperProcess, RemoteError> try_start(const AsyncClient::StartHelper& start) {
  try {
    return start();
  } catch (const std::
               exception&) {  // a value of the wrong type in the helper's first reply, or no memory
    return not_understood();
  }
}

}  // namespace

AsyncClient::AsyncClient(StartHelper start, Events events)
    : start_(std::move(start)), events_(std::move(events)), thread_([this] { run(); }) {}

void AsyncClient::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (helper_) (void)::shutdown(helper_->socket(), SHUT_RDWR);  // ends receive()
  }
  stops_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AsyncClient::restart() {
  const MutexLock lock(mutex_);
  if (helper_) (void)::shutdown(helper_->socket(), SHUT_RDWR);  // ends receive()
}

bool AsyncClient::send(nlohmann::json request, OnReply on_reply, int file) {
  const MutexLock lock(mutex_);
  if (!helper_ || stopping_) return false;
  const std::uint64_t id = ++last_id_;
  request["id"] = id;
  // take() needs this lock, so it finds the request even if the reply arrives immediately.
  if (!send_message(helper_->socket(), request, file, WhenFull::kFail)) return false;
  requests_.emplace(id, std::move(on_reply));
  return true;
}

Outcome<Message> AsyncClient::call(nlohmann::json request, std::chrono::milliseconds timeout,
                                   const std::function<bool()>& is_given_up, int file) {
  const auto promise = std::make_shared<std::promise<Outcome<Message>>>();
  auto future = promise->get_future();
  const auto on_reply = [promise](Outcome<Message> reply) { promise->set_value(std::move(reply)); };
  if (!send(std::move(request), on_reply, file))
    return RemoteError{RemoteError::Kind::kUnavailable, "cacheshim-remote takes no requests"};
  const auto deadline = Clock::now() + timeout + kAnswerMargin;
  while (future.wait_for(kPoll) != std::future_status::ready) {
    if (is_given_up()) return RemoteError{RemoteError::Kind::kUnavailable, "the mount ends"};
    if (Clock::now() >= deadline) restart();  // the reply is then an error
  }
  return future.get();
}

bool AsyncClient::is_running() const {
  const MutexLock lock(mutex_);
  return helper_.has_value();
}

bool AsyncClient::has_leases() const {
  const MutexLock lock(mutex_);
  return helper_ && helper_->has_leases();
}

void AsyncClient::run() {
  auto restart = kFirstRestart;
  do {
    auto started = try_start(start_);
    if (const auto* const error = std::get_if<RemoteError>(&started)) {
      events_.on_ended(*error);
      continue;
    }
    const auto since = Clock::now();
    int socket = -1;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      helper_.emplace(std::get<HelperProcess>(std::move(started)));
      socket = helper_->socket();
    }
    events_.on_started();
    receive(socket);
    end_helper();
    if (Clock::now() - since >= kLongRun) restart = kFirstRestart;
  } while (pause(std::exchange(restart, std::min(2 * restart, kLastRestart))));
}

// Returns false if the client stops.
bool AsyncClient::pause(std::chrono::seconds time) {
  const auto end = Clock::now() + time;
  const MutexLock lock(mutex_);
  while (!stopping_ && stops_.wait_until(mutex_, end)) {
  }
  return !stopping_;
}

void AsyncClient::receive(int socket) {
  while (auto message = receive_message(socket)) {
    OnReply on_reply;
    Outcome<Message> outcome = not_understood();
    (void)run_guarded("reading a reply of cacheshim-remote", [&] {
      on_reply = take(*message);
      RemoteError error = error_of(message->json);
      outcome = error.text.empty() ? Outcome<Message>(*std::move(message)) : std::move(error);
    });
    if (on_reply)
      (void)run_guarded("a reply of cacheshim-remote", [&] { on_reply(std::move(outcome)); });
  }
}

AsyncClient::OnReply AsyncClient::take(const Message& reply) {
  const auto id = find_integer(reply.json, "id", 1, INT64_MAX, 0);
  const MutexLock lock(mutex_);
  const auto node = requests_.extract(static_cast<std::uint64_t>(id));
  return node.empty() ? OnReply() : std::move(node.mapped());
}

void AsyncClient::end_helper() {
  std::optional<HelperProcess> ended;  // destroyed last: its destructor may block for 2 s
  bool is_stopping = false;
  std::map<std::uint64_t, OnReply> unanswered;
  {
    const MutexLock lock(mutex_);
    ended.emplace(*std::move(helper_));
    helper_.reset();
    unanswered.swap(requests_);
    is_stopping = stopping_;
  }
  if (!is_stopping) events_.on_ended(helper_has_ended());
  for (const auto& [id, on_reply] : unanswered) {
    (void)run_guarded("a request to cacheshim-remote",
                      [&on_reply = on_reply] { on_reply(helper_has_ended()); });
  }
}

}  // namespace cacheshim::remote
