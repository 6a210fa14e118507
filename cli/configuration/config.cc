// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/config.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include "cli/configuration/cuda_config.h"
#include "cli/configuration/limits_config.h"
#include "cli/configuration/metrics_config.h"
#include "cli/configuration/publish_allow_config.h"
#include "cli/configuration/remote_config.h"
#include "cli/configuration/toml_units.h"
#include "cli/configuration/units.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "common/exit_codes.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {
namespace {

constexpr std::int64_t kMaxThreads = 256;

void read_publish(TomlReader& root, Config& config, TomlProblem& problem) {
  const toml::table* table = root.find_table("publish");
  if (table == nullptr) return;
  TomlReader publish(*table, "publish", problem);
  if (const auto policy = publish.find_string("policy")) {
    config.publish = parse_publish_policy(*policy);
    if (!config.publish) publish.report("policy", "must be one of never, end, complete");
  }
  config.open_files = publish.find_bool("open_files");
  config.allow = read_publish_allow(publish, problem);
  publish.finish();
}

// Reads a size, or a share of the file system such as "5%".
void read_min_free(TomlReader& gc, EvictionLimits& limits) {
  const toml::node* node = gc.find_node("min_free");
  const auto text = node != nullptr ? node->value_exact<std::string>() : std::nullopt;
  if (!text || text->empty() || text->back() != '%') {
    limits.min_free = find_size(gc, "min_free");
    return;
  }
  int percent = -1;
  const char* const end = text->data() + text->size() - 1;
  const auto [rest, error] = std::from_chars(text->data(), end, percent);
  if (error != std::errc() || rest != end || percent < 0 || percent > 100) {
    gc.report("min_free", "must be a size, or a percentage from 0% to 100%");
  }
  limits.min_free_percent = percent;
}

void read_gc(TomlReader& root, Config& config, TomlProblem& problem) {
  const toml::table* table = root.find_table("gc");
  if (table == nullptr) return;
  TomlReader gc(*table, "gc", problem);
  config.gc.max_size = find_size(gc, "max_size");
  if (const auto files = gc.find_integer("max_files")) {
    if (*files < 0) gc.report("max_files", "must not be negative");
    config.gc.max_files = static_cast<std::uint64_t>(*files);
  }
  config.gc.max_age = find_duration(gc, "max_age");
  read_min_free(gc, config.gc);
  config.gc.min_age = find_duration(gc, "min_age").value_or(config.gc.min_age);
  config.gc_interval = find_duration(gc, "interval");
  gc.finish();
}

void read_root(TomlReader& root, Config& config) {
  config.layers = root.find_string("layers").value_or("");
  if (!config.layers.empty() && config.layers.front() != '/') {
    root.report("layers", "must be an absolute path");
  }
  if (const auto threads = root.find_integer("threads")) {
    if (*threads < 0 || *threads > kMaxThreads) {
      root.report("threads",
                  fmt::format("must be from 0 (depends on the cores) to {}", kMaxThreads));
    }
    config.threads = static_cast<unsigned>(*threads);
  }
  config.job_idle = find_duration(root, "job_idle");
  config.layer_keep = find_duration(root, "layer_keep");
  config.flight_timeout = find_duration(root, "flight_timeout");
  config.verify_on_open = root.find_bool("verify_on_open");
  config.io_uring = root.find_bool("io_uring");
  if (const auto watch = root.find_string("watch")) {
    config.watch = parse_watch_mode(*watch);
    if (!config.watch) root.report("watch", "must be one of fanotify, inotify, none");
  }
}

// Returns nothing if the file does not exist.
std::optional<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  std::ostringstream text;
  if (file.is_open() && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || !text) {
    const std::string reason = std::generic_category().message(errno != 0 ? errno : EIO);
    throw Failure(kExitUsage, fmt::format("cannot read the configuration '{}': {}", path, reason));
  }
  return text.str();
}

}  // namespace

Config parse_config(std::string_view text, std::string_view origin) {
  TomlProblem problem(origin);
  Config config;
  if (const auto table = parse_toml(text, problem)) {
    TomlReader root(*table, "", problem);
    read_root(root, config);
    read_publish(root, config, problem);
    config.cuda_defaults = read_cuda_defaults(root, problem);
    read_gc(root, config, problem);
    config.limits = read_limits(root, problem);
    config.remote = read_remote(root, problem);
    config.metrics = read_metrics(root, problem);
    root.finish();
  }
  if (problem) throw Failure(kExitUsage, problem.message());
  return config;
}

Config load_config(const std::string& file) {
  if (!file.empty()) {
    const auto text = read_file(file);
    if (text) return parse_config(*text, file);
    throw Failure(kExitUsage, fmt::format("no configuration file at '{}'", file));
  }
  const std::string directory = config_dir();
  if (directory.empty()) return {};
  const std::string path = directory + "/cacheshim.toml";
  if (::access(directory.c_str(), X_OK) != 0 && errno == EACCES) {
    // In containers and after setpriv, HOME often belongs to another user.
    print_line(
        fmt::format("cannot look into '{}': Permission denied; going on without a "
                    "configuration",
                    directory));
    return {};
  }
  const auto text = read_file(path);
  return text ? parse_config(*text, path) : Config();
}

}  // namespace cacheshim::cli
