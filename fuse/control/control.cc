// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/control.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cacheshim_version.h"
#include "common/counters.h"
#include "common/exit_codes.h"
#include "fuse/control/control_requests.h"
#include "fuse/control/explain.h"
#include "fuse/vfs/filesystem.h"
#include "store/sys/json_text.h"

namespace cacheshim {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);  // a read waits for two at the most

constexpr std::size_t kMostRejectedShown = 5;

// A path of 4,095 bytes takes 24 KiB if each byte is escaped.
constexpr JsonLimits kRequestLimits{std::size_t{64} << 10, 8};

using Json = nlohmann::ordered_json;

CounterValues counter_values(Filesystem& filesystem) {
  return read_counters(filesystem.counters(),
                       {.hits_direct = filesystem.direct_opens(),
                        .jobs_active = filesystem.jobs().active_count()});
}

}  // namespace

Status ControlSession::submit(Filesystem& filesystem, const Caller& caller,
                              std::string_view request,
                              const std::shared_ptr<ControlSession>& self) {
  const auto json = parse_json(request, kRequestLimits);
  if (!json.is_object() || !json.contains("op") || !json["op"].is_string()) return Errno(EINVAL);
  {
    const std::lock_guard lock(mutex_);
    if (has_request_) return Errno(EBUSY);
    has_request_ = true;
  }
  run_control_request(filesystem, caller, json, self);
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

// With JSON's escapes; what is not UTF-8 becomes U+FFFD.
void append_quoted(std::string_view value, std::string& text) {
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    ((text += '"') += value) += '"';
  } else {
    text += Json(std::string(value)).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

// Ids and cycles contain no characters that JSON escapes.
void append_job(const JobTable::State& state, const std::string& layers_dir, std::string& text) {
  Job& job = *state.job;
  const View view = job.view(0);
  const ViewFilter::Counts direct = job.filter.counts();
  fmt::format_to(
      std::back_inserter(text),
      R"({{"job":"{}","cycle":"{}","state":"{}","outcome":"{}","uid":{},"shared_uids":{},)"
      R"("started":{},"open_files":{},"runs":{},"direct_opens":{},"direct_looks":{},)",
      job.id, job.cycle(), state.is_active ? "active" : "ended", to_string(state.outcome),
      view.uid ? fmt::to_string(*view.uid) : "null", job.shares_uids(), job.started(),
      job.open_files.load(), job.runs.load(), direct.opens, direct.looks);
  const std::shared_lock lock(job.overlay.mutex());
  text += R"("layer":)";
  if (job.layer) {
    append_quoted(layers_dir + "/" + job.layer->path(), text);
  } else {
    text += "null";
  }
  fmt::format_to(std::back_inserter(text), R"(,"publish":"{}","refused":)",
                 to_string(job.policy()));
  append_quoted(job.why_refused(), text);
  text += '}';
}

Json describe_job(Job& job, const std::string& layers_dir) {
  std::string text;
  append_job({&job, job.is_active(), job.outcome()}, layers_dir, text);
  return Json::parse(text);
}

std::string stats_json(Filesystem& filesystem) {
  const CounterValues values = counter_values(filesystem);
  Json json;
  for (std::size_t i = 0; i < values.size(); ++i) {
    json[std::string(kCounterRows[i].name)] = values[i];
  }
  return dump_json(json, 2) + "\n";
}

std::string stats_metrics(Filesystem& filesystem) {
  const CounterValues values = counter_values(filesystem);
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const CounterRow& row = kCounterRows[i];
    text += fmt::format("# TYPE cacheshim_{0} {1}\ncacheshim_{0} {2}\n", row.name,
                        row.unit == CounterUnit::kNow ? "gauge" : "counter", values[i]);
  }
  return text;
}

std::string flights_json(const Filesystem& filesystem) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  if (filesystem.flights() != nullptr) {
    for (const Flights::Description& flight : filesystem.flights()->describe()) {
      all.push_back({{"path", flight.path},
                     {"job", flight.job},
                     {"leader", flight.leader},
                     {"waiting", flight.waiting}});
    }
  }
  return dump_json(all, 2) + "\n";
}

std::string status_json(Filesystem& filesystem) {
  const FilesystemOptions& options = filesystem.options();
  Json json;
  json["version"] = CACHESHIM_VERSION;
  json["store"] = options.store_dir;
  json["layers"] = options.layers_dir;
  json["mount"] = options.shown_path;
  json["run_dir"] = options.run_dir;
  json["pid"] = ::getpid();
  json["started"] = filesystem.started();
  json["publish"] = to_string(options.publish);
  json["publishers"] = filesystem.trust().text();
  json["watch"] = to_string(filesystem.watch_mode());
  json["base_is_local"] = filesystem.is_base_local();
  json["passthrough"] = filesystem.passes_through();
  json["requests"] = filesystem.is_asked_by_rings() ? "io_uring" : "/dev/fuse";
  json["locks"] = filesystem.has_local_locks_only() ? "this mount" : "file system";
  json["jobs_active"] = filesystem.jobs().active_count();
  Json names = Json::array();
  for (const Profile& profile : filesystem.entries().profiles()) names.push_back(profile.name);
  json["profiles"] = std::move(names);
  json["rejected"] = Json::array();
  for (const auto& summary : filesystem.publishing().publisher().rejected().worst(kMostRejectedShown)) {
    Json entry;
    put_name(entry, "entry", summary.unit);
    entry.update(describe(summary));
    json["rejected"].push_back(std::move(entry));
  }
  return dump_json(json, 2) + "\n";
}

Ticker::Ticker(std::chrono::milliseconds idle_interval, std::function<void()> on_idle_interval)
    : idle_interval_(idle_interval),
      on_idle_interval_(std::move(on_idle_interval)),
      thread_([this] { run(); }) {}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  // No reader may outlive the libfuse session that it is completed through.
  for (const auto& watched : watched_) {
    if (const auto session = watched.lock()) session->close();
  }
}

void Ticker::watch(std::shared_ptr<ControlSession> session) {
  {
    const std::lock_guard lock(mutex_);
    watched_.push_back(std::move(session));
  }
  wake_.notify_all();
}

void Ticker::call_at(std::chrono::steady_clock::time_point when, std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    then_ = std::move(then);
    call_at_ = when;
  }
  wake_.notify_all();
}

void Ticker::wait_until_answered(std::chrono::milliseconds at_most) {
  constexpr std::chrono::milliseconds kLook{5};
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  std::unique_lock lock(mutex_);
  const auto has_unread = [this] {
    return std::any_of(watched_.begin(), watched_.end(), [](const auto& watched) {
      const auto session = watched.lock();
      return session && session->has_unread_answer();
    });
  };
  while (has_unread() && std::chrono::steady_clock::now() < deadline) {
    wake_.wait_for(lock, kLook);
  }
}

void Ticker::run() {
  auto idle_due = std::chrono::steady_clock::now() + idle_interval_;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::erase_if(watched_, [](const auto& watched) {
      const auto session = watched.lock();
      return !session || !session->is_waiting();
    });
    if (watched_.empty()) {
      wake_.wait_until(lock, then_ ? std::min(idle_due, call_at_) : idle_due);
    } else {
      wake_.wait_for(lock, kTick);
    }
    const auto sessions = watched_;
    const bool is_due = then_ && std::chrono::steady_clock::now() >= call_at_;
    const auto then = is_due ? std::exchange(then_, nullptr) : nullptr;
    lock.unlock();
    if (then) (void)run_guarded("what was due", then);
    for (const auto& watched : sessions) {
      (void)run_guarded("a line of progress", [&] {
        if (const auto session = watched.lock()) session->tick();
      });
    }
    if (std::chrono::steady_clock::now() >= idle_due) {
      (void)run_guarded("tending jobs and the store", on_idle_interval_);
      idle_due = std::chrono::steady_clock::now() + idle_interval_;
    }
    lock.lock();
  }
}

}  // namespace cacheshim
