// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "common/unique_fd.h"
#include "fuse/nodes/node_ref.h"

// The values that the node table takes and returns.
namespace cacheshim {

class Job;

enum class NodeKind : std::uint8_t {
  kRoot,         // the mount's root
  kRootLink,     // a symlink in the root; its target depends on the caller
  kJobsDir,      // .jobs
  kJobLink,      // .jobs/<job> of a job with several users; its target depends on the caller
  kControlDir,   // .cacheshim
  kControlFile,  // a file in .cacheshim
  kJobInfoDir,   // .cacheshim/jobs
  kJobInfo,      // a file in .cacheshim/jobs
  kObject,       // an object in a job's view, including the view's root
};

// The kinds of common files: files of the base whose inode all jobs share (LockFiles).
enum class CommonKind : std::uint8_t { kNone, kLock, kShared };

inline constexpr NodeIndex kRootNode = 1;

// A copy of a node's data: safe to use after the table's lock is released.
struct NodeInfo {
  NodeKind kind = NodeKind::kObject;
  NodeIndex parent = 0;
  Job* job = nullptr;
  std::uint64_t ino = 0;  // st_ino: constant while the node lives, across copy-up
  bool is_view_root = false;
  bool is_dir = false;
  bool removed = false;       // the node has no name
  bool was_unlinked = false;  // if removed: a request in this view has removed the last name
  bool in_upper = false;
  CommonKind common = CommonKind::kNone;
  // An O_PATH descriptor of the object, if the node holds one: for a removed object, or for a common file that was
  // looked up recently. Otherwise null. The descriptor stays open as long as this struct exists.
  std::shared_ptr<const UniqueFd> object;

  int object_fd() const { return object ? object->get() : -1; }
};

// A name in the table. Valid as long as the text that `component` refers to.
struct NodeName {
  NodeIndex parent;
  std::string_view component;
  friend bool operator==(const NodeName&, const NodeName&) = default;
};

// Identifies a file of a backing file system.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

struct FileIdHash {
  std::size_t operator()(const FileId& id) const {
    return id.inode * 0x9e3779b97f4a7c15ULL ^ id.device;
  }
};

// A common file that a lookup or a rename has found. `object`: an O_PATH descriptor of the file.
struct CommonFile {
  CommonKind kind;
  struct stat st;
  UniqueFd object;
};

}  // namespace cacheshim
