// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/counters.h"
#include "fuse/requests/remote_entries.h"
#include "remote/settings.h"
#include "store/base/store.h"
#include "store/profiles/entry_map.h"
#include "store/publish/publisher.h"
#include "store/threads/event_loop.h"

namespace cacheshim {

struct RemoteParts {  // all must outlive the result of make_remote_entries()
  const Store& store;
  const EntryMap& entries;
  Counters& counters;
  Publisher& publisher;
  // How long a process waits, at most, for another machine's build.
  std::chrono::seconds longest_wait;
  // Called when these files were added to the base. May block.
  std::function<void(const std::vector<std::string>& paths)> on_added;
};

// Starts the exchange of entries with the engine that the settings name. `helper`: the path of cacheshim-remote. If the
// keys cannot be read, the result uses no engine, and its state says why. Returns null if the settings name no engine,
// or if this build has no remote tier (meson_options.txt). Throws std::system_error.
std::unique_ptr<RemoteEntries> make_remote_entries(EventLoop& loop,
                                                   const remote::Settings& settings,
                                                   const std::string& helper,
                                                   const RemoteParts& parts);

}  // namespace cacheshim
