// SPDX-License-Identifier: Apache-2.0
#include "learn/file_history.h"

#include <errno.h>

#include <optional>
#include <utility>

namespace cacheshim::learn {
namespace {

class Replay {
 public:
  explicit Replay(const std::map<std::string, File>& before) { history_.files = before; }

  void add(const FileEvent& event) {
    history_.threads.insert(event.thread);
    note_miss(event);
    ++order_;
    if (event.error != 0) return;
    switch (event.op) {
      case Op::kMakeDir:
        history_.files[event.path] = File{.is_directory = true, .order = order_};
        break;
      case Op::kCreate:
        create(event);
        break;
      case Op::kOpen:
        open(event);
        break;
      case Op::kRename:
        rename(event);
        break;
      case Op::kLink:
        arrive(event.to, File{.arrival = Arrival::kRenamed});
        break;
      case Op::kUnlink:
      case Op::kRmdir:
        leave(event.path, "");
        break;
      case Op::kLock:
        history_.locked.insert(event.path);
        break;
      case Op::kLookup:
      case Op::kUnlock:
        break;
    }
  }

  History take() { return std::move(history_); }

 private:
  using Op = FileEvent::Op;

  // Does not count a miss if the thread's next call creates the name, because the kernel looks
  // every name up before it creates the object.
  void note_miss(const FileEvent& event) {
    const auto last = last_miss_.find(event.thread);
    if (last != last_miss_.end()) {
      const bool makes =
          event.op == Op::kRename || event.op == Op::kLink
              ? event.to == last->second
              : (event.op == Op::kCreate || event.op == Op::kMakeDir) && event.path == last->second;
      if (!makes) history_.missed.insert(last->second);
      last_miss_.erase(last);
    }
    if (event.op == Op::kLookup && event.error == ENOENT) last_miss_[event.thread] = event.path;
  }

  void arrive(const std::string& path, File file) {
    const auto there = history_.files.find(path);
    if (there != history_.files.end() && !there->second.is_directory)
      ++history_.written_again[path];
    file.order = order_;
    history_.files[path] = std::move(file);
  }

  void create(const FileEvent& event) {
    if (history_.files.contains(event.path)) return open(event);
    arrive(event.path, File{.is_exclusive = event.is_exclusive});
  }

  void open(const FileEvent& event) {
    if (!event.writes) history_.read.insert(event.path);
    const auto there = history_.files.find(event.path);
    if (event.writes && there != history_.files.end()) ++history_.written_again[event.path];
  }

  void rename(const FileEvent& event) {
    const auto from = history_.files.find(event.path);
    if (from == history_.files.end()) return;
    const File file = from->second;
    leave(event.path, event.to);
    if (!file.is_directory) return arrive(event.to, File{.arrival = Arrival::kRenamed});
    history_.files[event.to] =
        File{.is_directory = true, .arrival = Arrival::kRenamed, .order = order_};
    const std::string below = event.path + '/';
    for (auto at = history_.files.lower_bound(below);
         at != history_.files.end() && at->first.starts_with(below);) {
      File moved = at->second;
      moved.arrival = Arrival::kWithDirectory;
      moved.renamed_directory = event.to;
      const std::string to = event.to + at->first.substr(event.path.size());
      at = history_.files.erase(at);
      history_.files[to] = std::move(moved);
    }
  }

  void leave(const std::string& path, const std::string& to) {
    const auto there = history_.files.find(path);
    if (there == history_.files.end()) return;
    history_.gone.push_back({path, to, there->second.is_directory, there->second.is_exclusive});
    history_.files.erase(there);
  }

  History history_;
  std::size_t order_ = 0;
  std::map<pid_t, std::string> last_miss_;
};

}  // namespace

History replay(const std::vector<FileEvent>& events, const std::map<std::string, File>& before) {
  Replay replay(before);
  for (const FileEvent& event : events) replay.add(event);
  return replay.take();
}

}  // namespace cacheshim::learn
