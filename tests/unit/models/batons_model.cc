// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/models/batons_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fuse/services/locks/batons.h"

namespace cacheshim::batons_model {
namespace {

constexpr pid_t kFirstPid = 1 << 23;  // above every real pid (PID_MAX_LIMIT)

std::string directory_of(std::size_t path) { return "fam/KEY" + std::to_string(path / 2); }
std::string path_of(std::size_t path) {
  return directory_of(path) + "/baton" + std::to_string(path % 2);
}

struct ModelProcess {
  pid_t pid = 0;
  std::vector<UniqueFd> watched;  // the write ends of pipes, closed when the process ends
};

struct File {
  ino_t inode = 0;
  pid_t creator = 0;
  bool is_locked = false;
};

class World {
 public:
  World();
  // Runs the actions. Returns the first fault, or "" if there is none.
  std::string run(const std::vector<Action>& actions);

 private:
  void act(const Action& action);
  void make(ModelProcess& process, std::size_t path);
  void reap(const Baton& baton);
  void tend();
  bool may_be_reaped(std::size_t path) const;
  bool is_in_use(pid_t creator, const std::string& directory) const {
    return working_.contains({creator, directory});
  }
  UniqueFd watch(const ProcessOrigin& creator);
  void fault(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }
  BatonSystem system();

  pid_t next_pid_ = kFirstPid;
  ino_t next_inode_ = 1;
  std::vector<ModelProcess> processes_;
  std::set<pid_t> dead_;
  std::array<std::optional<File>, kPaths> files_;
  // The inodes of moved files. Batons may reap a moved file, although its old path no longer exists.
  std::array<ino_t, kPaths> moved_{};
  std::set<std::pair<pid_t, std::string>>
      working_;  // a creator's pid, and a directory that a descendant of the creator uses
  std::string fault_;
  EventLoop loop_;  // not started: tend() runs its tasks
  Batons batons_;
};

BatonSystem World::system() {
  return {.watch = [this](const ProcessOrigin& creator) { return watch(creator); },
          .is_alive =
              [this](const ProcessOrigin& creator) {
                return creator.process != 0 && !dead_.contains(creator.process);
              },
          .is_in_use =
              [this](const ProcessOrigin& creator, const std::string& directory) {
                if (!dead_.contains(creator.process))
                  fault("Batons treats a living creator as dead");
                return is_in_use(creator.process, directory.substr(1));
              }};
}

World::World() : batons_(loop_, [this](const Baton& baton) { reap(baton); }, system()) {
  for (std::size_t at = 0; at < kProcesses; ++at) processes_.push_back({next_pid_++, {}});
}

// Returns a descriptor that, like a pidfd, becomes readable for poll(2) when the process ends. For
// every second process, returns no descriptor, as on Linux before 5.3, which has no pidfds.
UniqueFd World::watch(const ProcessOrigin& creator) {
  const auto process = std::find_if(processes_.begin(), processes_.end(),
                                    [&](const auto& one) { return one.pid == creator.process; });
  std::array<int, 2> ends{-1, -1};
  if (process == processes_.end() || creator.process % 2 == 0) return {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  process->watched.emplace_back(ends[1]);
  return UniqueFd(ends[0]);
}

void World::make(ModelProcess& process, std::size_t path) {
  if (files_.at(path)) return;  // EEXIST
  const bool is_visible = &process != processes_.data();
  files_.at(path) = File{next_inode_++, is_visible ? process.pid : 0};
  moved_.at(path) = 0;
  ProcessOrigin creator;
  creator.process = files_.at(path)->creator;
  batons_.watch({nullptr, path_of(path), 1, files_.at(path)->inode}, creator);
}

bool World::may_be_reaped(std::size_t path) const {
  const auto& file = files_.at(path);
  return file && !file->is_locked && dead_.contains(file->creator) &&
         !is_in_use(file->creator, directory_of(path));
}

void World::reap(const Baton& baton) {
  for (std::size_t path = 0; path < kPaths; ++path) {
    auto& file = files_.at(path);
    if (path_of(path) != baton.path) continue;
    if (baton.inode == moved_.at(path)) return;
    if (!file || file->inode != baton.inode) return fault(baton.path + " is reaped too late");
    if (!may_be_reaped(path)) fault(baton.path + " is reaped without a reason");
    file.reset();
    return;
  }
  fault("an unknown baton is reaped");
}

void World::tend() {
  loop_.run_all();
  for (std::size_t path = 0; path < kPaths; ++path) {
    if (may_be_reaped(path)) fault(path_of(path) + " is left though its creator is dead");
  }
}

void World::act(const Action& action) {
  ModelProcess& process = processes_.at(action.process);
  auto& file = files_.at(action.path);
  switch (action.kind) {
    case ActionKind::kMake:
      return make(process, action.path);
    case ActionKind::kMove:
      if (file) moved_.at(action.path) = file->inode;
      file.reset();
      return;
    case ActionKind::kRemove:
      moved_.at(action.path) = 0;
      file.reset();
      return batons_.removed(nullptr, path_of(action.path));
    case ActionKind::kLock:
      if (file) file->is_locked = true;
      return batons_.removed(nullptr, path_of(action.path));
    case ActionKind::kKill:
      dead_.insert(process.pid);
      process = {next_pid_++, {}};
      return;
    case ActionKind::kEnter:
      working_.insert({process.pid, directory_of(action.path)});
      return;
    case ActionKind::kLeave:
      std::erase_if(working_,
                    [&](const auto& one) { return one.second == directory_of(action.path); });
      return;
    case ActionKind::kTend:
      return tend();
  }
}

std::string World::run(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    act(action);
    if (!fault_.empty()) return fault_;
  }
  working_.clear();
  tend();
  return fault_;
}

}  // namespace

std::string run(const std::vector<Action>& actions) { return World().run(actions); }

}  // namespace cacheshim::batons_model
