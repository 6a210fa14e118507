// SPDX-License-Identifier: Apache-2.0
#include "store/base/entry_sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "common/open_to_all.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using Clock = std::chrono::steady_clock;

bool is_closed(const Result<struct stat>& st) { return st && !is_open_to_all(st->st_mode); }

class Sampler {
 public:
  Sampler(int base, const std::string& mount_path, const EntryMap& entries,
          Clock::time_point deadline)
      : base_(base), mount_path_(mount_path), entries_(entries), deadline_(deadline) {}

  EntrySample take() {
    // Spends at most half of the time on listing names, so that the rest is left for reading files.
    const auto now = Clock::now();
    const auto half = now + (deadline_ - now) / 2;
    for (const Profile& profile : entries_.profiles()) {
      if (has_directories(profile)) directories_.push_back(profile.name);
    }
    while (!directories_.empty()) {  // no recursion: a store may hold trees of any depth
      const std::string directory = std::move(directories_.back());
      directories_.pop_back();
      list(directory, half);
    }
    std::shuffle(found_.begin(), found_.end(), std::mt19937(std::random_device{}()));
    for (const std::string& entry : found_) {
      if (Clock::now() >= deadline_) {
        sample_.is_whole = false;
        break;
      }
      read_entry(entry);
    }
    return std::move(sample_);
  }

 private:
  static bool has_directories(const Profile& profile) {
    return std::any_of(profile.entries.begin(), profile.entries.end(),
                       [](const EntryRule& rule) { return rule.is_directory(); });
  }

  void list(const std::string& directory, Clock::time_point deadline) {
    auto opened = sys::open_beneath(base_, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!opened) return;
    if (is_closed(sys::stat_fd(opened->get()))) sample_.closed.push_back(directory);
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(opened->get()), ::closedir);
    if (!dir) return;
    (void)opened->release();
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has this stream
    while (const dirent* name = ::readdir(dir.get())) {
      if (Clock::now() >= deadline) {
        sample_.is_whole = false;
        return;
      }
      const bool may_be_directory = name->d_type == DT_DIR || name->d_type == DT_UNKNOWN;
      if (!may_be_directory || is_dot_name(name->d_name)) continue;
      add(join_path(directory, name->d_name));
    }
  }

  static bool is_dot_name(std::string_view name) { return name == "." || name == ".."; }

  void add(std::string path) {
    const auto ref = entries_.find(path);
    if (!ref || !ref->is_entry_directory()) {
      if (!entries_.is_beside_entry(path)) directories_.push_back(std::move(path));
    } else {
      found_.push_back(std::move(path));
    }
  }

  void read_entry(const std::string& entry) {
    const auto directory = sys::open_beneath(base_, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const auto names = directory ? sys::list_dir(directory->get()) : directory.error();
    if (!names) return;
    ++sample_.entries;
    const auto is_closed_part = [&](const sys::DirEntry& name) {
      return !entries_.is_beside_entry(join_path(entry, name.name)) &&
             is_closed(sys::stat_at(directory->get(), name.name));
    };
    if (is_closed(sys::stat_fd(directory->get())) ||
        std::any_of(names->begin(), names->end(), is_closed_part)) {
      sample_.closed.push_back(entry);
    }
    const auto ref = entries_.find(entry);
    if (!ref || ref->rule->paths_in.empty()) return;
    for (const sys::DirEntry& name : *names) {
      const std::string path = join_path(entry, name.name);
      std::string fault = path_fault_of(base_, mount_path_, entries_, path);
      if (!fault.empty()) sample_.damaged.push_back({path, entry, std::move(fault)});
    }
  }

  const int base_;
  const std::string& mount_path_;
  const EntryMap& entries_;
  const Clock::time_point deadline_;
  std::vector<std::string> directories_;  // directories that are still to be listed
  std::vector<std::string> found_;    // the entries found so far
  EntrySample sample_;
};

}  // namespace

EntrySample sample_entries(int base, const std::string& mount_path, const EntryMap& entries,
                           Clock::time_point deadline) {
  return Sampler(base, mount_path, entries, deadline).take();
}

}  // namespace cacheshim
