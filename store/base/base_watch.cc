// SPDX-License-Identifier: Apache-2.0
#include "store/base/base_watch.h"

#include <utility>

#include "store/base/base_watch_modes.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

class NoWatch final : public BaseWatch {
 public:
  WatchMode mode() const override { return WatchMode::kNone; }
  bool ensure(const std::string&) override { return false; }
};

}  // namespace

std::unique_ptr<BaseWatch> BaseWatch::start(EventLoop& loop, const std::vector<int>& directories,
                                            WatchMode best, Callback changed) {
  std::unique_ptr<BaseWatch> watch;
  if (best == WatchMode::kFanotify) watch = start_fanotify(loop, directories, changed);
  if (!watch && best != WatchMode::kNone) watch = start_inotify(loop, directories, changed);
  if (!watch) watch = std::make_unique<NoWatch>();
  return watch;
}

void add_change(std::vector<BaseChange>& changes, BaseChange change) {
  if (is_reserved_name(change.name)) {
    if (change.kind == BaseChange::Kind::kContent) return;  // a marker's contents have no meaning
    std::string hidden = change.name.substr(kWhiteoutPrefix.size());
    // The marker of an opaque directory, or of a long name, does not contain the names that it hides.
    if (is_reserved_name(hidden)) return changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
    change.name = std::move(hidden);
  }
  changes.push_back(std::move(change));
}

}  // namespace cacheshim
