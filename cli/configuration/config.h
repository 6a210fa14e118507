// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/limit_rows.h"
#include "metrics/settings.h"
#include "remote/settings.h"
#include "store/base/eviction_limits.h"
#include "store/base/watch_mode.h"
#include "store/profiles/publish_allow.h"
#include "store/profiles/publish_policy.h"

namespace cacheshim::cli {

// The contents of cacheshim.toml. A missing setting is empty; in `limits` and `gc`, it has its default value.
struct Config {
  std::string layers;
  std::optional<unsigned> threads;
  std::optional<std::chrono::seconds> job_idle;
  std::optional<std::chrono::seconds> layer_keep;
  std::optional<std::chrono::seconds> flight_timeout;
  std::optional<PublishPolicy> publish;
  std::optional<bool> open_files;
  std::optional<PublishAllow> allow;
  std::string cuda_defaults;  // [cuda], in the format of the run directory's file `cuda`
  std::optional<bool> verify_on_open;
  LimitValues limits = default_limits();
  EvictionLimits gc;
  std::optional<std::chrono::seconds> gc_interval;
  // The most capable mode to try. The daemon uses a simpler mode if this one does not work.
  std::optional<WatchMode> watch;
  remote::Settings remote;       // [remote]
  metrics::Settings metrics;     // [metrics]
  std::optional<bool> io_uring;  // whether to use io_uring, if the kernel allows it
};

// Parses the text of a configuration file. If it is invalid, throws Failure (usage) with "FILE:LINE: reason"; `origin`
// is FILE.
Config parse_config(std::string_view text, std::string_view origin);

// Reads `file`, which must exist. If `file` is empty, reads cacheshim.toml in config_dir(); returns the defaults if
// this file does not exist, or (with one line on stderr) if this user cannot enter the directory. Throws Failure
// (usage) in the cases of parse_config(), and if the file cannot be read.
Config load_config(const std::string& file);

}  // namespace cacheshim::cli
