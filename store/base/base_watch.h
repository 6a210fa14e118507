// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/base/watch_mode.h"

namespace cacheshim {

class EventLoop;

// A change to the base. WatchMode::kInotify also reports changes that this process has made. Paths
// are relative to the base or, if the base is merged from several directories, to the one of these
// directories that has changed.
struct BaseChange {
  enum class Kind {
    kName,           // `name` in `directory` was created, removed or replaced
    kDirectoryName,  // as kName, for a directory that was moved with everything below it
    // the data or attributes of `name` in `directory` changed; if `name` is "", those of `directory` itself
    kContent,
    kUnknown,  // changes were lost: anything may have changed
  };
  Kind kind;
  std::string directory;
  std::string name;
};

// Reports changes to the base by other processes of this machine, within a few milliseconds. Does not report changes by
// other machines on a network file system (is_local_file_system() is false there). Reports a change to a marker
// (whiteout.h) as a change to the name that the marker hides; if the marker does not contain that name, as kUnknown. If
// an xattr makes a directory opaque, reports only a change to the directory's attributes. See fanotify(7) and
// inotify(7).
class BaseWatch {
 public:
  // Called on the loop's thread with the changes since the last call, in order.
  using Callback = std::function<void(const std::vector<BaseChange>&)>;

  // Starts a watch on all of `directories`: the base, or the directories that are merged into it, one of which may
  // contain another. Uses the best mode that works on this machine for all of them, but none better than `best`. The
  // descriptors must stay open, and may be O_PATH descriptors.
  static std::unique_ptr<BaseWatch> start(EventLoop& loop, const std::vector<int>& directories,
                                          WatchMode best, Callback changed);
  virtual ~BaseWatch() = default;  // waits until a running callback has returned

  virtual WatchMode mode() const = 0;
  // Call before a lookup in `directory`. Returns true if changes in the directory are reported from
  // now on. Thread-safe; fast when repeated.
  virtual bool ensure(const std::string& directory) = 0;
};

}  // namespace cacheshim
