// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/base/watch_mode.h"

namespace cacheshim {

// A change of the base that this process did not make. Paths are relative to the base; where that is
// merged from several folders, to the one that has changed.
struct BaseChange {
  enum class Kind {
    kName,        // `name` in `folder` has come, gone, or leads to another object
    kFolderName,  // the same of a folder that was moved: what is below it has moved with it
    kContent,     // data or attributes of `name` in `folder`, or of `folder` itself where it is ""
    kUnknown,     // changes were lost: anything may have changed
  };
  Kind kind;
  std::string folder;
  std::string name;
};

// Tells of changes that other processes of this machine make in the base, within a few milliseconds.
// Changes by other machines, on a network file system, are not seen (is_local_file_system() is false
// there). Of a marker (whiteout.h) what it hides is told; that a folder was made opaque by an xattr
// is seen as a change of its attributes alone. Sources: fanotify(7), inotify(7).
class BaseWatch {
 public:
  // Called on the watch's own thread with what has come since the last call, in order.
  using Callback = std::function<void(const std::vector<BaseChange>&)>;

  // The best mode that works here for all of `folders`, no better than `best`. They are the base, or
  // are merged into it; they may lie anywhere, in each other too. They must stay open; each may be
  // O_PATH.
  static std::unique_ptr<BaseWatch> start(const std::vector<int>& folders, WatchMode best,
                                          Callback changed);
  virtual ~BaseWatch() = default;  // ends the thread

  virtual WatchMode mode() const = 0;
  // To be called before anything is looked up in `folder`: whether changes in it will be told from
  // now on. Thread-safe, cheap when repeated.
  virtual bool ensure(const std::string& folder) = 0;
};

// Whether no other machine can change the file system of `fd`.
bool is_local_file_system(int fd);

}  // namespace cacheshim
