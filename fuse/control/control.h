// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "fuse/jobs/caller.h"
#include "fuse/jobs/job_table.h"
#include "fuse/requests/completion.h"

namespace cacheshim {

class Filesystem;
class Job;

// One open `control` file: a request and the lines that answer it (docs/control.md). Thread-safe.
class ControlSession {
 public:
  // Errors: EINVAL for what is no request, EBUSY for a second one.
  Status submit(Filesystem& filesystem, const Caller& caller, std::string_view request,
                const std::shared_ptr<ControlSession>& self);
  // Answers with the next line now, or when there is one; tick() sees to it that this is soon.
  void read(Completion<Result<std::string_view>> reader, std::size_t size);
  // Answers a read that waits, by a line of progress.
  void tick();
  void close();

  void progress(std::string_view what, std::uint64_t done, std::uint64_t total);
  void answer(const nlohmann::ordered_json& line);
  void answer_line(std::string line);  // JSON, without the end of the line
  void refuse(const std::string& why, int exit_code);
  // Whether the file is still open and the answer not given, or not fetched.
  bool is_waiting();
  bool has_unread_answer();

 private:
  void reply(std::unique_lock<std::mutex>& lock);
  bool has_pending() const { return fetched_ < pending_.size(); }
  std::string progress_line() const;

  std::mutex mutex_;  // not held while a request is answered
  bool has_request_ = false;
  bool answered_ = false;
  bool closed_ = false;
  std::string pending_;      // lines for the reader
  std::size_t fetched_ = 0;  // how many of their bytes have been read
  std::string what_ = "working";
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  std::optional<Completion<Result<std::string_view>>> reader_;
  std::size_t reader_size_ = 0;
};

nlohmann::ordered_json describe_job(Job& job, const std::string& layers_dir);
// The same as text, written without a tree of values: this takes a tenth of the time for ten thousand jobs.
void append_job(const JobTable::State& state, const std::string& layers_dir, std::string& text);
std::string stats_json(Filesystem& filesystem);
std::string stats_metrics(Filesystem& filesystem);
std::string status_json(Filesystem& filesystem);
std::string flights_json(const Filesystem& filesystem);

// A thread for what comes due: ticks of control files that somebody reads, and the regular look for
// jobs that are over. Sleeps as long as there is nothing to do.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds idle_interval, std::function<void()> on_idle_interval);
  ~Ticker();
  void watch(std::shared_ptr<ControlSession> session);
  // Calls `then` at that time, in place of what it was to call before; never, with nothing.
  void call_at(std::chrono::steady_clock::time_point when, std::function<void()> then);
  // Waits until those who were answered have fetched it. Who asks for that is not waited for.
  void wait_until_answered(std::chrono::milliseconds at_most);

 private:
  void run();

  const std::chrono::milliseconds idle_interval_;
  const std::function<void()> on_idle_interval_;
  std::mutex mutex_;
  std::condition_variable wake_;  // of the thread, and of those who wait for answers
  bool stopping_ = false;
  std::vector<std::weak_ptr<ControlSession>> watched_;
  std::function<void()> then_;  // due at call_at_
  std::chrono::steady_clock::time_point call_at_{};
  std::thread thread_;
};

}  // namespace cacheshim
