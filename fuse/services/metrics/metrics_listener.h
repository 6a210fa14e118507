// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "helper/process.h"
#include "metrics/settings.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Serves a mount's metrics to Prometheus: listens on the address of the settings, and starts the helper
// `cacheshim-metrics`, which reads the HTTP requests. Computes the metrics at most once a second, however many requests
// the helper sends. If the address is in use, or the helper ends, logs a line, and tries again, at first after 5 s and
// later once a minute. Thread-safe.
class MetricsListener {
 public:
  struct Options {
    metrics::Settings settings;
    std::string helper;                 // the path of cacheshim-metrics
    std::function<std::string()> text;  // returns the metrics; called on the loop's thread
  };
  // `loop` must outlive this object.
  MetricsListener(EventLoop& loop, Options options);
  ~MetricsListener() { stop(); }
  MetricsListener(const MetricsListener&) = delete;
  MetricsListener& operator=(const MetricsListener&) = delete;

  // Call once the daemon has its final user and capabilities.
  void start() { task_.wake(); }
  // Ends the helper. Idempotent. Requires: the caller holds no lock that `text` takes.
  void stop();

  // Returns ADDRESS:PORT, as in the configuration.
  std::string address() const;
  // Returns why the metrics are not served now; "" if they are.
  std::string problem() const EXCLUDES(mutex_);

 private:
  EventLoop::Clock::time_point tend();
  std::string begin();
  bool answer_one();
  const std::string& recent_text();
  EventLoop::Clock::time_point retry_later(const std::string& problem);
  void note(const std::string& problem) EXCLUDES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::string problem_ GUARDED_BY(mutex_) = "not started yet";
  // Used only by the task, and by stop() after its end.
  UniqueFd listener_;
  std::optional<helper::Process> helper_;
  UniqueFd socket_;  // to the helper
  EventLoop::Clock::time_point begun_at_{};
  std::chrono::seconds pause_{0};  // before the next attempt
  std::string text_;
  EventLoop::Clock::time_point text_made_at_{};
  EventLoop::Task task_;  // keep last: the task uses the other members
};

}  // namespace cacheshim
