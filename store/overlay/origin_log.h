// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/lower_stack.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Records, for each copied-up object, the object of the lowers that it was copied from. The mount shows the copy with
// the lower object's inode number, even after a rename and after a restart of the daemon. overlayfs uses an xattr for
// this (overlayfs.rst, "Inode properties").
//
// On disk: a text file in the layer's work directory. Each copy-up, and each removal of a copy, adds one line. The
// daemon writes a record before the copy gets its name, and withdraws the record before the copy loses its last name. A
// record applies only to the object with the recorded file handle. So if the daemon crashes between two steps, or a
// power cut loses lines, the mount never shows an object with the inode number of another object: at worst it shows a
// copy with the copy's own number. The daemon rewrites the file if the file has more than 1,024 lines and more than
// twice as many lines as there are copies, or if it had superfluous lines when the daemon loaded it. If the file cannot
// be written, the records last until the layer is unmounted.
//
// Thread-safe. Inode numbers in arguments are those of objects of the layer, which is one file system.
class OriginLog {
 public:
  static constexpr const char* kFile = "origins";

  struct Origin {
    dev_t device = 0;
    ino_t inode = 0;
  };
  struct Record {
    // A hash of the copy's file handle. 0 if the file system has no file handles: only the inode number
    // then identifies the copy.
    std::uint64_t handle = 0;
    std::size_t lower = 0;  // the index of a lower on the origin's file system
    ino_t origin = 0;
  };

  // `lowers` must outlive the log.
  explicit OriginLog(const LowerStack& lowers) : lowers_(lowers) {}

  // To take over a layer, call begin_load() with its work directory, then found() for every object
  // of the layer, then end_load(), which removes the records of objects that were not found. The
  // work directory must stay open.
  void begin_load(int work);
  void found(int directory, const std::string& name, ino_t inode);
  void end_load();
  void clear();  // call when the overlay loses its layer

  bool is_empty() const { return count_ == 0; }
  std::optional<Origin> find(ino_t inode) const;
  // Call before `name` in `directory`, a copy of `base`, gets its name in the layer. Returns the
  // copy's inode number; nothing if no record was made.
  std::optional<ino_t> add(int directory, const std::string& name, const struct stat& base);
  // Call before the object loses its last name. Returns the record, for put_back() if the object
  // keeps its name.
  std::optional<Record> remove(ino_t inode);
  void put_back(ino_t inode, const Record& record);
  // Syncs the file to disk.
  Status sync();

 private:
  using Records = std::unordered_map<ino_t, Record>;

  static std::uint64_t handle_of(int directory, const std::string& name);
  static std::string line_of(ino_t inode, const Record& record);
  static void apply(std::string_view line, Records& records);
  void append(const std::string& line) REQUIRES(file_mutex_);
  void rewrite() REQUIRES(file_mutex_);

  const LowerStack& lowers_;
  // records_.size(), read without a lock. A thread that finds a copy by its name also sees a count that
  // includes the copy's record, because the thread took the overlay's mutex after the record was added.
  std::atomic<std::size_t> count_{0};
  mutable SharedMutex mutex_;  // not held across a system call
  Records records_ GUARDED_BY(mutex_);
  Mutex file_mutex_{LockRank::kOriginFile};
  int work_ GUARDED_BY(file_mutex_) = -1;
  UniqueFd file_ GUARDED_BY(file_mutex_);  // opened by append()
  off_t size_ GUARDED_BY(file_mutex_) = 0;
  std::size_t lines_ GUARDED_BY(file_mutex_) = 0;
  Records pending_ GUARDED_BY(file_mutex_);  // used from begin_load() to end_load()
  std::atomic<bool> is_unsynced_{false};
};

}  // namespace cacheshim
