// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/control_session.h"

#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/sys/json_text.h"

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Status ControlSession::begin(Charge charge) {
  const MutexLock lock(mutex_);
  if (has_request_) return Errno(EBUSY);
  has_request_ = true;
  charge_ = std::move(charge);
  return {};
}

std::string ControlSession::progress_line() const {
  const Json json = {{"progress", {{"what", what_}, {"done", done_}, {"total", total_}}}};
  return dump_json(json) + "\n";
}

PendingReplies ControlSession::take_reply() {
  std::string text = pending_.substr(fetched_, reader_size_);
  fetched_ += text.size();
  if (!has_pending()) {
    pending_.clear();
    fetched_ = 0;
  }
  PendingReplies reply;
  reply.add([reader = std::make_shared<Completion<Result<std::string_view>>>(*std::move(reader_)),
             text = std::move(text)] { reader->complete(std::string_view(text)); });
  reader_.reset();
  return reply;
}

// The functions below declare `replies` before the lock, so that its destructor sends the replies after the lock is
// released.

void ControlSession::read(Completion<Result<std::string_view>> reader, std::size_t size) {
  PendingReplies replies;
  const MutexLock lock(mutex_);
  if (reader_) {
    replies.add([second = std::make_shared<Completion<Result<std::string_view>>>(
                     std::move(reader))] { second->complete(Errno(EBUSY)); });
    return;
  }
  reader_.emplace(std::move(reader));
  reader_size_ = size;
  if (has_pending() || answered_ || !has_request_) replies += take_reply();
}

void ControlSession::tick() {
  PendingReplies replies;
  const MutexLock lock(mutex_);
  if (!reader_) return;
  if (!has_pending()) pending_ = progress_line();
  replies += take_reply();
}

void ControlSession::close() {
  PendingReplies replies;
  const MutexLock lock(mutex_);
  closed_ = true;
  if (reader_) replies += take_reply();
}

bool ControlSession::is_waiting() {
  const MutexLock lock(mutex_);
  return !closed_ && (!answered_ || has_pending());
}

bool ControlSession::has_unread_answer() {
  const MutexLock lock(mutex_);
  return !closed_ && answered_ && has_pending();
}

void ControlSession::progress(std::string_view what, std::uint64_t done, std::uint64_t total) {
  const MutexLock lock(mutex_);
  what_ = what;
  done_ = done;
  total_ = total;
}

void ControlSession::answer(const Json& line) { answer_line(dump_json(line)); }

void ControlSession::answer_line(std::string line) {
  PendingReplies replies;
  const MutexLock lock(mutex_);
  if (answered_) return;  // the last line has been added already
  line += '\n';
  if (pending_.empty()) {
    pending_ = std::move(line);
  } else {
    pending_ += line;
  }
  answered_ = true;
  charge_ = Charge();
  if (reader_) replies += take_reply();
}

void ControlSession::refuse(const std::string& why, int exit_code) {
  answer(Json{{"error", why}, {"exit", exit_code}});
}

}  // namespace cacheshim
