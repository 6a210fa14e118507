// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/control_session.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/sys/json_text.h"

namespace cacheshim {

using Json = nlohmann::ordered_json;

Status ControlSession::begin() {
  const std::lock_guard lock(mutex_);
  if (has_request_) return Errno(EBUSY);
  has_request_ = true;
  return {};
}

std::string ControlSession::progress_line() const {
  const Json json = {{"progress", {{"what", what_}, {"done", done_}, {"total", total_}}}};
  return dump_json(json) + "\n";
}

// Takes what is to be answered from under the lock, and answers after it is released.
void ControlSession::reply(std::unique_lock<std::mutex>& lock) {
  Completion<Result<std::string_view>> reader = *std::move(reader_);
  reader_.reset();
  const std::string text = pending_.substr(fetched_, reader_size_);
  fetched_ += text.size();
  if (!has_pending()) {
    pending_.clear();
    fetched_ = 0;
  }
  lock.unlock();
  reader.complete(std::string_view(text));
}

void ControlSession::read(Completion<Result<std::string_view>> reader, std::size_t size) {
  std::unique_lock lock(mutex_);
  if (reader_) {
    lock.unlock();
    return reader.complete(Errno(EBUSY));
  }
  reader_.emplace(std::move(reader));
  reader_size_ = size;
  if (has_pending() || answered_ || !has_request_) reply(lock);
}

void ControlSession::tick() {
  std::unique_lock lock(mutex_);
  if (!reader_) return;
  if (!has_pending()) pending_ = progress_line();
  reply(lock);
}

void ControlSession::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  if (reader_) reply(lock);
}

bool ControlSession::is_waiting() {
  const std::lock_guard lock(mutex_);
  return !closed_ && (!answered_ || has_pending());
}

bool ControlSession::has_unread_answer() {
  const std::lock_guard lock(mutex_);
  return !closed_ && answered_ && has_pending();
}

void ControlSession::progress(std::string_view what, std::uint64_t done, std::uint64_t total) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  done_ = done;
  total_ = total;
}

void ControlSession::answer(const Json& line) { answer_line(dump_json(line)); }

void ControlSession::answer_line(std::string line) {
  std::unique_lock lock(mutex_);
  if (answered_) return;  // that was the last line
  line += '\n';
  if (pending_.empty()) {
    pending_ = std::move(line);
  } else {
    pending_ += line;
  }
  answered_ = true;
  if (reader_) reply(lock);
}

void ControlSession::refuse(const std::string& why, int exit_code) {
  answer(Json{{"error", why}, {"exit", exit_code}});
}

}  // namespace cacheshim
